"""What of a network travels, what a client keeps, and what is frozen: it stays to the bit."""

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, same, state_of, trained
from naming import names
from torch import nn

from fda_flower.clients import LocalTraining, SourceClient, TargetClient, batch_gradients
from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, build_model, reads_text
from fda_flower.models.exchange import Exchange
from fda_flower.prediction.batches import batches
from fda_flower.wire.asked.personal import Guide, Guided, Personalise, TrainToMix
from fda_flower.wire.asked.personal_layers import KeepPart


class OnlyEvaluates(nn.Module):
    """Fails if it is called in training mode."""

    def forward(self, x):
        assert not self.training
        return x


def network() -> nn.Sequential:
    """A frozen body, in which all could move; a layer in which one parameter is frozen; and a head."""
    body = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.BatchNorm1d(16, affine=False)),
        *(nn.Dropout(0.3), OnlyEvaluates()),
    )
    torch.manual_seed(0)
    model = nn.Sequential(
        body.requires_grad_(False), nn.BatchNorm1d(16), nn.BatchNorm1d(16, affine=False), nn.Linear(16, 10)
    )
    model[1].weight.requires_grad_(False)
    return model


NAMES = tuple(network().state_dict())
FROZEN = (*(name for name in NAMES if name.startswith("0.")), "1.weight")
SKETCH = {"gradients": "sketch", "sketch-size": 64, "sketch-seed": 5}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def test_what_is_frozen_is_told_by_what_is_trained():
    exchange = Exchange.of(network())
    assert exchange.frozen == FROZEN
    assert len(FROZEN) == 11
    assert exchange.own == ()
    assert exchange.shared == tuple(name for name in NAMES if name not in FROZEN)
    assert {f"2.{name}" for name in STATISTICS} < set(exchange.shared), "no frozen module has it"


@pytest.mark.parametrize("name", MODELS)
def test_our_own_networks_have_nothing_that_is_frozen(name):
    if reads_text(name):
        pytest.importorskip(MODELS[name].package)
    model = build_model(name, (300,) if reads_text(name) or name == "hinges" else (3, 32, 32), 10, 0)
    assert Exchange.of(model) == Exchange(tuple(model.state_dict()))


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ("", ()),
        ("head", ("3.weight", "3.bias")),
        ("batch-norm", tuple(n for n in NAMES if n[:2] in ("1.", "2.") and n != "1.weight")),
        ("3.b*", ("3.bias",)),
        ("*.bias", ("1.bias", "3.bias")),
    ],
)
def test_a_client_keeps_a_part_or_what_a_pattern_names(own, kept):
    exchange = Exchange.of(network(), own)
    assert exchange.own == kept
    assert sorted([*exchange.shared, *exchange.own, *exchange.frozen]) == sorted(NAMES)


def test_nothing_to_train_and_no_such_part_are_errors():
    with pytest.raises(ConfigError, check=names("network", "Sequential", "head")):
        Exchange.of(network().requires_grad_(False))
    with pytest.raises(ConfigError, check=names("part of the model", "0.1.weight")):
        Exchange.of(network(), "0.1.weight")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SourceClient, {**SKETCH, "question": Guide(keep=False)}),
        (SourceClient, {"proximal": 0.1}),
        (TargetClient, {"batch-updates": "full"}),
        (TargetClient, {"tune": "head"}),
        (TargetClient, {"question": KeepPart(part="head", head_epochs=2)}),
        (TargetClient, {"question": KeepPart(part="batch-norm")}),
        (TargetClient, {"question": Personalise(penalty=1.0)}),
        *(
            (
                TargetClient,
                {"question": TrainToMix(mixing=0.5, mix=mix, adaptive=True, alpha_decay=0.0)},
            )
            for mix in ("outputs", "parameters")
        ),
    ],
)
def test_what_is_frozen_keeps_its_bits_and_evaluation_mode_whatever_is_trained(kind, settings):
    client = make(kind, network(), training=LocalTraining(0.01, 10))
    before = state_of(client.model)
    moving = {name: before[name] for name in NAMES if name not in FROZEN}
    reply = trained(client, 1, moving, **settings)
    evaluated(client, 1, reply.arrays, adabn=True)
    assert same(state_of(client.model), before, FROZEN)
    assert list(reply.arrays) == list(client.layers()) == list(moving)
    assert not same(
        reply.arrays,
        before,
        ["1.bias", "3.bias"] if isinstance(settings.get("question"), KeepPart) else ["3.weight"],
    )
    numbers = sum(before[name].size for name in ("1.bias", "3.weight", "3.bias"))
    if "batch-updates" in reply.records:
        assert reply.records["batch-updates"]["full"].shape[-1] == numbers
    if isinstance(reply.answer, Guided):
        assert set(reply.answer.guidance) <= set(moving)


def test_gradients_are_those_of_what_is_trained():
    client = make(SourceClient, network())
    sent = trained(client, **SKETCH).records["gradients"]
    model = network()
    with client.drawing("gradient", {"server-round": 1}) as generator:
        drawn = batches(client.domain.train, client.training.batch_size, generator, shuffle=True)
        trainable = [p for p in model.parameters() if p.requires_grad]
        expected = batch_gradients(model, drawn, nn.functional.cross_entropy, SKETCH, trainable).arrays
    np.testing.assert_allclose(sent["sketch"], expected["sketch"], rtol=1e-6)


def test_training_with_a_frozen_body_is_training_of_the_head_on_its_features():
    client = make(SourceClient, network(), training=LocalTraining(0.05, 10, 2, "sgd"))
    by_hand = network()
    optimizer = torch.optim.SGD([p for p in by_hand.parameters() if p.requires_grad], lr=0.05)
    reply = trained(client)
    with client.drawing("train", {"server-round": 1}) as generator:
        for _ in range(2):
            for x, y in batches(client.domain.train, 10, generator, shuffle=True):
                by_hand.train()
                with torch.no_grad():
                    features = by_hand[0].eval()(x)
                optimizer.zero_grad()
                nn.functional.cross_entropy(by_hand[1:](features), y).backward()
                optimizer.step()
    expected = state_of(by_hand)
    for name, array in reply.arrays.items():
        np.testing.assert_array_equal(array, expected[name], name)
