"""Clients with a part of the model of their own: what they train, what they keep and what they send."""

from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, normalised, same, state_of, trained
from naming import names
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalTraining, SourceClient, TargetClient
from fda_flower.clients.training import repeatable
from fda_flower.errors import ConfigError
from fda_flower.files import derive_seed
from fda_flower.models.parts import batch_norm_names, head_names
from fda_flower.prediction.batches import batches
from fda_flower.wire.asked.personal_layers import EvaluateWithPart, KeepPart

NAMES = {"head": head_names(normalised()), "batch-norm": batch_norm_names(normalised())}
HEAD = NAMES["head"]
BODY = tuple(name for name in normalised().state_dict() if name not in HEAD)
FEDBN, FEDPER = ({"question": KeepPart(part=part)} for part in ("batch-norm", "head"))
FEDREP: dict[str, Any] = {"question": KeepPart(part="head", head_epochs=3), "epochs": 2, "tune": "body"}
EACH = pytest.mark.parametrize("settings", [FEDREP, FEDBN, FEDPER], ids=["fedrep", "fedbn", "fedper"])
TRAINING = LocalTraining(0.01, 11, epochs=1)


def model(seed):
    """Another model for each seed, as the server sends it."""
    noise, arrays = np.random.default_rng(seed), state_of(normalised(0.3))
    return {
        name: a + np.float32(0.05) * noise.random(a.shape, np.float32) if a.dtype == np.float32 else a
        for name, a in arrays.items()
    }


def client_of(kind=TargetClient, training=TRAINING, **more):
    return make(kind, normalised(0.3), training=training, **more)


def ask(client, settings, round=1, arrays=None):
    return trained(client, round, state_of(normalised(0.3)) if arrays is None else arrays, **settings)


def assess(client, settings, round=1, final_head_epochs=0, **more):
    question = EvaluateWithPart(part=settings["question"].part, final_head_epochs=final_head_epochs)
    return evaluated(client, round, model(5), question, **more)


def own_part(client, before):
    kept = client.private_state.load_before("local-part", before)
    return None if kept is None else kept[0]


@EACH
@pytest.mark.parametrize("kind", [SourceClient, TargetClient])
def test_the_reply_has_the_part_as_it_was_received_and_the_state_as_it_was_trained(kind, settings):
    client, names = client_of(kind), NAMES[settings["question"].part]
    for round in (1, 2, 3):
        received = model(round)
        reply = ask(client, settings, round, received)
        own = own_part(client, round + 1)
        assert same(reply.arrays, received, names)
        assert list(reply.arrays) == list(received)
        assert own.keys() == set(names)
        assert not any(own[name].tobytes() == received[name].tobytes() for name in names)
        others = [name for name in received if name not in names]
        assert not any(same(reply.arrays, received, [name]) for name in others)
        assert reply.answer.began_in == round - 1, "the round whose part it began with"
        assert reply.records == {}


@EACH
def test_a_round_begins_with_the_own_part_whatever_part_is_received(settings):
    one, other = {}, {}
    for seed, found in ((7, one), (8, other)):
        client = client_of()
        ask(client, settings)
        received = model(1)
        received.update({name: model(seed)[name] for name in NAMES[settings["question"].part]})
        found.update(ask(client, settings, 2, received).arrays)
    assert same(one, other, [name for name in one if name not in NAMES[settings["question"].part]])


@EACH
def test_the_evaluation_is_of_the_model_received_with_the_own_part_of_the_round(settings):
    client = client_of()
    for round in (1, 2):
        ask(client, settings, round)
    for round in (1, 2):
        whole = {**model(5), **own_part(client, round + 1)}
        assert assess(client, settings, round) == evaluated(client_of(), round, whole)
    assert assess(client_of(), settings) == evaluated(client_of(), 1, model(5))


def test_a_part_that_nobody_knows_is_an_error_that_names_those_that_are_known():
    with pytest.raises(ConfigError, check=names("part of the model", "tail")):
        ask(client_of(), {"question": KeepPart(part="tail")})


def by_hand(client, model, phases, now, rate=0.05):
    """The arrays after plain SGD on one part after the other, for some epochs each."""
    parts = {"head": [model[5]], "final-head": [model[5]], "train": [model[1], model[2]]}
    for phase, epochs in phases:
        parameters = [p for module in parts[phase] for p in module.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=rate)
        model.train(phase == "train")
        seed = derive_seed(0, phase, now, "target")
        with repeatable(seed, threads=1):
            generator = torch.Generator().manual_seed(seed)
            for _ in range(epochs):
                for x, y in batches(client.domain.train, 11, generator, shuffle=True):
                    model.zero_grad()
                    torch.autograd.backward(cross_entropy(model(x), y))
                    optimizer.step()
    return state_of(model)


def test_the_head_trains_first_and_the_body_under_it_by_hand():
    client = client_of(training=LocalTraining(0.1, 11, 7, "sgd"))
    reply = ask(client, {**FEDREP, "rate-factor": 0.5}, 4)
    expected = by_hand(client, normalised(0.3), [("head", 3), ("train", 2)], 4)
    assert same(reply.arrays, expected, BODY), "BatchNorm's statistics too"
    assert same(own_part(client, 5), expected, HEAD)
    assert reply.metrics["num-steps"] == LocalTraining(0.1, 11, 2).steps(50)
    assert all(p.requires_grad for p in client.model.parameters())


def test_the_final_head_is_trained_on_the_final_body_and_not_kept():
    client = client_of(training=LocalTraining(0.05, 11, 1, "sgd"))
    ask(client, FEDREP)
    kept, plain = own_part(client, 2), assess(client, FEDREP)
    found = assess(client, FEDREP, final_head_epochs=4)
    network = normalised(0.3)
    network.load_state_dict({name: torch.tensor(a) for name, a in {**model(5), **kept}.items()})
    after = by_hand(client, network, [("final-head", 4)], 1)
    final = evaluated(client_of(), 1, after).metrics
    assert found.metrics["accuracy"] == final["accuracy"]
    assert found.metrics["loss"] == pytest.approx(final["loss"])
    assert same(own_part(client, 2), kept)
    assert assess(client, FEDREP).metrics == plain.metrics
