"""Clients with a part of the model of their own: what they train, what they keep and what they send."""

from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import evaluated, make, normalised, same, state_of, trained
from flwr.app import RecordDict
from naming import names
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalPartSource, LocalPartTarget, LocalTraining, TargetClient
from fda_flower.clients.training import repeatable, train
from fda_flower.errors import ConfigError
from fda_flower.files import derive_seed
from fda_flower.models.parts import batch_norm_names, head_names

NAMES = {"head": head_names(normalised()), "batch-norm": batch_norm_names(normalised())}
HEAD = NAMES["head"]
BODY = tuple(name for name in normalised().state_dict() if name not in HEAD)
FEDBN, FEDPER = {"local-part": "batch-norm"}, {"local-part": "head"}
FEDREP: dict[str, Any] = {"local-part": "head", "head-epochs": 3, "epochs": 2, "tune": "body"}
EACH = pytest.mark.parametrize("settings", [FEDREP, FEDBN, FEDPER], ids=["fedrep", "fedbn", "fedper"])
TRAINING = LocalTraining(0.01, 11, epochs=1)


def model(seed):
    """Another model for each seed, as the server sends it."""
    noise, arrays = np.random.default_rng(seed), state_of(normalised(0.3))
    return {
        name: a + np.float32(0.05) * noise.random(a.shape, np.float32) if a.dtype == np.float32 else a
        for name, a in arrays.items()
    }


def client_of(kind=LocalPartTarget, training=TRAINING, **more):
    return make(kind, normalised(0.3), training=training, **more)


def ask(client, settings, round=1, arrays=None):
    return trained(client, round, state_of(normalised(0.3)) if arrays is None else arrays, **settings)


def assess(client, settings, round=1, **more):
    return evaluated(client, round, model(5), **settings, **more)


def own_part(client, before):
    kept = client.own_state.load_before("local-part", before)
    return None if kept is None else kept[0]


@EACH
@pytest.mark.parametrize("kind", [LocalPartSource, LocalPartTarget])
def test_the_reply_has_the_part_as_it_was_received_and_the_state_as_it_was_trained(kind, settings):
    client, names = client_of(kind), NAMES[settings["local-part"]]
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
        assert reply.metrics["local-part"] == round - 1, "the round whose part it began with"
        assert reply.records == {}


@EACH
def test_a_round_begins_with_the_own_part_whatever_part_is_received(settings):
    one, other = {}, {}
    for seed, found in ((7, one), (8, other)):
        client = client_of()
        ask(client, settings)
        received = model(1)
        received.update({name: model(seed)[name] for name in NAMES[settings["local-part"]]})
        found.update(ask(client, settings, 2, received).arrays)
    assert same(one, other, [name for name in one if name not in NAMES[settings["local-part"]]])


@EACH
@pytest.mark.parametrize("where", ["folder", "context"])
def test_a_round_that_is_run_again_has_the_same_bits(settings, where, tmp_path):
    kept: dict[str, Any] = {"own_folder": tmp_path} if where == "folder" else {"state": RecordDict()}
    first = [ask(client_of(**kept), settings, round, model(round)) for round in (1, 2, 3)]
    again = [ask(client_of(**kept), settings, 3, model(3)) for _ in range(2)]
    for reply in again:
        assert same(reply.arrays, first[2].arrays)
        assert reply.metrics == first[2].metrics
    client = client_of(**kept)
    assert ask(client, settings, 4).metrics["local-part"] == 3
    assert ask(client_of(**kept), settings, 1, model(1)).metrics["local-part"] == 0


@EACH
def test_a_training_that_fails_keeps_the_part_as_it_was(settings, monkeypatch):
    client = client_of()
    ask(client, settings)
    kept = own_part(client, 2)

    def fails(*args, **more):
        raise MemoryError

    monkeypatch.setattr("fda_flower.clients.client.train", fails)
    with pytest.raises(MemoryError):
        ask(client, settings, 2)
    assert same(own_part(client, 3), kept)


@EACH
def test_the_evaluation_is_of_the_model_received_with_the_own_part_of_the_round(settings):
    client = client_of()
    for round in (1, 2):
        ask(client, settings, round)
    for round in (1, 2):
        whole = {**model(5), **own_part(client, round + 1)}
        assert assess(client, settings, round) == evaluated(client_of(TargetClient), round, whole)
    assert assess(client_of(), settings) == assess(client_of(TargetClient), {})


def test_a_part_that_nobody_knows_is_an_error_that_names_those_that_are_known():
    with pytest.raises(ConfigError, check=names("part of the model", "tail")):
        ask(client_of(), {"local-part": "tail"})


@pytest.fixture
def phases(monkeypatch):
    """The model before and after each call of `train`, and its settings."""
    seen = []

    def spy(network, samples, training, *args, **more):
        before = state_of(network)
        result = train(network, samples, training, *args, **more)
        seen.append((before, state_of(network), training))
        return result

    monkeypatch.setattr("fda_flower.clients.client.train", spy)
    return seen


def moved(before, after):
    return {name for name, array in before.items() if array.tobytes() != after[name].tobytes()}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_head_trains_first_and_the_body_under_it(phases, optimizer):
    client = client_of(training=LocalTraining(0.01, 11, 7, optimizer))
    for round in (1, 2):
        reply = ask(client, {**FEDREP, "rate-factor": 0.5}, round, model(round))
        (before, between, head), (begin, after, body) = phases[-2:]
        assert (head.epochs, body.epochs) == (3, 2)
        assert head.learning_rate == body.learning_rate == 0.005
        assert moved(before, between) == set(HEAD), "neither parameters nor buffers of the body"
        assert same(begin, between), "the body's phase begins where the head's ended"
        assert moved(begin, after) == set(BODY), "BatchNorm's statistics too"
    assert same(own_part(client, 3), after, HEAD)
    assert same(reply.arrays, after, BODY)
    assert reply.metrics["num-steps"] == LocalTraining(0.01, 11, 2).steps(50)
    assert all(p.requires_grad for p in client.model.parameters())


def test_the_final_head_is_trained_on_the_final_body_and_not_kept(phases):
    client = client_of()
    ask(client, FEDREP)
    kept, plain = own_part(client, 2), assess(client, FEDREP, outcomes=True)
    phases.clear()
    found = assess(client, {**FEDREP, "final-head-epochs": 4}, outcomes=True)
    ((before, after, training),) = phases
    assert training.epochs == 4
    assert same(before, {**model(5), **kept})
    assert moved(before, after) == set(HEAD)
    assert plain.metrics.items() <= found.metrics.items()
    assert same(found.records["outcomes"], plain.records["outcomes"]), "those of the headline"
    final = evaluated(client_of(TargetClient), 1, after).metrics
    assert found.metrics["accuracy-final-head"] == final["accuracy"]
    assert found.metrics["loss-final-head"] == pytest.approx(final["loss"])
    assert same(own_part(client, 2), kept)
    assert assess(client, FEDREP, outcomes=True).metrics == plain.metrics


def test_the_phases_by_hand():
    client = client_of(training=LocalTraining(0.05, 11, 1, "sgd"))
    reply = ask(client, FEDREP, 4)
    by_hand = normalised(0.3)
    parts = {"head": [by_hand[5]], "train": [by_hand[1], by_hand[2]]}
    for phase, epochs in (("head", 3), ("train", 2)):
        parameters = [p for module in parts[phase] for p in module.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.05)
        by_hand.train(phase == "train")
        seed = derive_seed(0, phase, 4, "target")
        with repeatable(seed, threads=1):
            generator = torch.Generator().manual_seed(seed)
            for _ in range(epochs):
                for x, y in client.domain.train.batches(11, generator, shuffle=True):
                    by_hand.zero_grad()
                    torch.autograd.backward(cross_entropy(by_hand(x), y))
                    optimizer.step()
    expected = state_of(by_hand)
    assert same(reply.arrays, expected, BODY)
    assert same(own_part(client, 5), expected, HEAD)
