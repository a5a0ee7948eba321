"""What personal methods ask of any client: an evaluation of what it has trained, and guidance."""

import io

import numpy as np
import pytest
import torch

from fda_flower.clients import LocalTraining, SourceClient, TargetClient
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.models import build_model

SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50)
BOTH = pytest.mark.parametrize(
    ("kind", "domain"), [(SourceClient, "source-1"), (TargetClient, "target")], ids=["source", "target"]
)


def make(kind, domain):
    data = load_federation(SPEC)
    return kind(data.domains[domain], build_model("mlp", data.shape, 10, 0), LocalTraining(0.01, 11))


@BOTH
def test_the_evaluation_is_that_of_the_trained_model(kind, domain):
    client = make(kind, domain)
    plain, _, _ = make(kind, domain).fit(client.get_parameters({}), {"server-round": 3})
    plain = [array.copy() for array in plain]
    trained, _, metrics = client.fit(client.get_parameters({}), {"server-round": 3, "evaluate-trained": True})
    assert all(a.tobytes() == b.tobytes() for a, b in zip(plain, trained, strict=True))
    loss, examples, expected = make(kind, domain).evaluate(plain, {"server-round": 3})
    assert metrics["eval-accuracy"] == expected["accuracy"]
    assert metrics["eval-loss"] == loss
    assert metrics["eval-num-examples"] == examples


@BOTH
def test_the_guidance_is_the_model_after_as_much_training_again(kind, domain):
    client = make(kind, domain)
    first = client.get_parameters({})
    trained, _, metrics = client.fit(first, {"server-round": 1, "guidance": True})
    plain, _, _ = make(kind, domain).fit(first, {"server-round": 1})
    assert all(a.tobytes() == b.tobytes() for a, b in zip(plain, trained, strict=True)), "w is restored"
    guidance = {
        name.removeprefix("guidance."): np.load(io.BytesIO(value), allow_pickle=False)
        for name, value in metrics.items()
        if name.startswith("guidance.")
    }
    assert guidance.keys() == dict(client.model.named_parameters()).keys()
    names = list(client.model.state_dict())
    further = [np.abs(guidance[name] - w).max() for name, w in zip(names, trained, strict=True)]
    assert min(further) > 0
    assert max(further) < 1


@BOTH
def test_with_the_head_alone_nothing_else_moves(kind, domain):
    client = make(kind, domain)
    before = client.get_parameters({})
    after, _, metrics = client.fit([array.copy() for array in before], {"server-round": 1, "tune": "head"})
    moved = [a.tobytes() != b.tobytes() for a, b in zip(after, before, strict=True)]
    assert moved == [False] * (len(moved) - 2) + [True, True]
    assert metrics["num-steps"] == client.training.steps(len(client.domain.train))


def batch_norm_model():
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(16, 10),
    )


def test_with_the_head_alone_the_bodys_batch_norm_statistics_stay():
    data = load_federation(SPEC)
    client = TargetClient(data.domains["target"], batch_norm_model(), LocalTraining(0.01, 11))
    before = client.layers()
    client.fit(client.get_parameters({}), {"server-round": 1, "tune": "head"})
    after = client.layers()
    moved = {name for name, array in before.items() if array.tobytes() != after[name].tobytes()}
    assert moved == {"4.weight", "4.bias"}


@BOTH
def test_the_guidance_is_trained_with_the_rounds_rate_factor(kind, domain):
    client = make(kind, domain)
    first = client.get_parameters({})

    def step(factor):
        trained, _, metrics = client.fit(
            [array.copy() for array in first], {"server-round": 1, "guidance": True, "rate-factor": factor}
        )
        names = list(client.model.state_dict())
        guidance = [np.load(io.BytesIO(metrics[f"guidance.{n}"]), allow_pickle=False) for n in names]
        return max(float(np.abs(g - w).max()) for g, w in zip(guidance, trained, strict=True))

    assert step(1e-3) < 0.01 * step(1.0)
