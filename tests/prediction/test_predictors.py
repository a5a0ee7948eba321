"""The predictors of every method: the model file predicts what the record says, and its modules the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from blocks_net import normed
from torch import nn

from fda_flower import RunConfig
from fda_flower.aggregation import Mixture
from fda_flower.datasets import load_domain
from fda_flower.models import MODELS, Model
from fda_flower.prediction import Mixed
from fda_flower.prediction.model import load
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.methods import CENTRAL, METHODS, PREFIX

SETTINGS: dict[str, Any] = {
    **{"shift": "rotate", "sources": 2, "device": "cpu", "seed": 1, "rounds": 2, "model": "normed"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 60, "epochs": 2},
}
OF_METHODS: dict[str, dict[str, Any]] = {
    "mixture": {"method_options": {"every": 1}},
    "fedrep": {"method_options": {"head_epochs": 2, "final_head_epochs": 2}},
    "knn-per": {"method_options": {"mixing": 0.6}},
    "finetune-offline": {"warmup_rounds": 1},
    **{name: {"model": "logistic"} for name, method in METHODS.items() if "frozen body" in method.needs},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, OF_METHODS.get(name, {})) for name in METHODS),
    *((f"{PREFIX}{name}", {}) for name in CENTRAL),
    *(
        (name, {"buffers": "adabn", **OF_METHODS.get(name, {})})
        for name in ("fedavg", "apfl", "ditto", "fedrep", "knn-per", "mixture")
    ),
    *(
        (f"{prefix}{name}", {"model": "frozen", **OF_METHODS.get(name, {})})
        for prefix, family in (("", METHODS), (PREFIX, CENTRAL))
        for name, method in family.items()
        if "frozen body" not in method.needs
    ),
    ("fedavg", {"average": "tail:2"}),
    ("ditto", {"average": "tail:2", "warmup_rounds": 1}),
    ("ditto", {"method_options": {"global_branch": "none"}}),
    ("apfl", {"method_options": {"mix": "parameters"}}),
    ("knn-per", {"method_options": {"mixing": "cv", "k": 5}}),
    ("knn-per", {"method_options": {"mixing": 0}}),
    ("feddwa", {"method_options": {"evaluate": "trained"}}),
    ("mixture", {"method_options": {"members": "tuned,prior,head,blend", "views": "full"}}),
    ("mixture", {"method_options": {"report": "none"}}),
]


def frozen(shape, classes):
    """The network `normed` on a frozen body."""
    layers = [nn.Flatten(), nn.Linear(int(np.prod(shape)), 16), nn.BatchNorm1d(16), nn.ReLU()]
    return nn.Sequential(nn.Sequential(*layers).requires_grad_(False), normed((16,), classes))


@pytest.fixture(autouse=True)
def networks_with_batch_norm(monkeypatch):
    monkeypatch.setitem(MODELS, "normed", Model("a small one with BatchNorm", normed))
    monkeypatch.setitem(MODELS, "frozen", Model("the same on a frozen body", frozen))


@pytest.mark.parametrize(("method", "more"), VARIANTS, ids=lambda value: str(value))
def test_the_model_predicts_what_the_record_says(method, more, tmp_path):
    settings = {**SETTINGS, "method": method, **more}
    result = run_config(RunConfig(**settings), Execution(output=tmp_path / "run", outcomes=True))
    model = load(tmp_path / "run")
    test = load_domain(RunConfig(**settings).data, "target").domains["target"].test
    assert (model.about.round, model.about.rounds) == (len(result.history),) * 2
    record = result.history[-1]
    if record.get("accuracy") is not None:
        predicted = model.predict(test.x)
        right = predicted == test.y
        assert right.mean() == record["accuracy"]
        outcomes = np.frombuffer(bytes.fromhex(record["outcomes"]), np.uint8)
        assert np.array_equal(np.unpackbits(outcomes, count=record["test-examples"]), right)
    outputs = model.outputs(replace(test, y=test.y * 0)).astype(np.float64)
    with torch.no_grad():
        np.testing.assert_allclose(
            model.module(torch.from_numpy(test.x)).double().numpy(), outputs, rtol=1e-4, atol=1e-5
        )
    probabilities = model.predict_proba(test.x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities.argmax(axis=1) == outputs.argmax(axis=1)).all()


class Constant(nn.Module):
    """A network that always returns the same."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = torch.from_numpy(outputs)

    def forward(self, x):
        return self.outputs


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "regression"])
@pytest.mark.parametrize("other", [2.0, torch.inf, torch.nan])
def test_the_module_of_a_mixture_leaves_out_what_the_mixture_leaves_out(other, regression):
    outputs = {"good": np.array([[0.0, 1.0], [3.0, 1.0]]), "bad": np.array([[1.0, 0.0], [2.0, other]])}
    mixture = Mixture({"good": 0.25, "bad": 0.75}, {}, regression)
    mixed = Mixed(mixture, {name: [{"outputs": array}] for name, array in outputs.items()})
    found = mixed.module(lambda layers: Constant(layers["outputs"]))(torch.zeros(2, 1))
    expected = mixture.predict({name: [array] for name, array in outputs.items()})
    assert (found if regression else found.exp()).numpy() == pytest.approx(expected, rel=1e-6)
