"""Clients with a part of the model of their own: what they train, what they keep and what they send."""

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from naming import names
from torch.nn.functional import cross_entropy

from fda_flower.clients import LocalPartSource, LocalPartTarget, LocalTraining, SourceClient, TargetClient
from fda_flower.clients.training import evaluate, repeatable, train
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.errors import ConfigError
from fda_flower.files import derive_seed
from fda_flower.models.parts import batch_norm_names, head_names
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=50)
DATA = load_federation(SPEC)
FEDBN, FEDPER = {"local-part": "batch-norm"}, {"local-part": "head"}
FEDREP: dict[str, Any] = {"local-part": "head", "head-epochs": 3, "epochs": 2, "tune": "body"}
EACH = pytest.mark.parametrize("settings", [FEDREP, FEDBN, FEDPER], ids=["fedrep", "fedbn", "fedper"])
TRAINING = LocalTraining(0.01, 11, epochs=1)


def network() -> torch.nn.Sequential:
    """With all that could go wrong: dropout, and integer and float buffers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(16, 10),
        )


HEAD, NORM = head_names(network()), batch_norm_names(network())
NAMES: dict[str, tuple[str, ...]] = {"head": HEAD, "batch-norm": NORM}
BODY = tuple(name for name in network().state_dict() if name not in HEAD)


def model(seed=None):
    """A model as the server sends it; another one for each seed."""
    arrays = {name: t.numpy().copy() for name, t in network().state_dict().items()}
    if seed is not None:
        noise = np.random.default_rng(seed)
        for name in arrays:
            if arrays[name].dtype == np.float32:
                arrays[name] += np.float32(0.05) * noise.random(arrays[name].shape, np.float32)
    return arrays


def make(kind=LocalPartTarget, state=None, folder=None, training=TRAINING):
    domain = DATA.domains["target" if kind.role == "target" else "source-1"]
    return kind(domain, network(), training, state=state, own_folder=folder)


def ask(client, settings, round=1, arrays=None):
    arrays = model() if arrays is None else arrays
    return client.local_train(TrainRequest(to_record(arrays), {"server-round": round, **settings}))


def assess(client, settings, round=1, arrays=None):
    arrays = model() if arrays is None else arrays
    return client.local_evaluate(
        EvaluateRequest(to_record(arrays), {"server-round": round, **settings})
    ).metrics


def same(one, other, names=None):
    return all(one[name].tobytes() == other[name].tobytes() for name in (one if names is None else names))


def own_part(client, before):
    kept = client.own_state.load_before("local-part", before)
    return None if kept is None else kept[0]


@EACH
@pytest.mark.parametrize("kind", [LocalPartSource, LocalPartTarget])
def test_the_reply_has_the_part_as_it_was_received_and_the_state_as_it_was_trained(kind, settings):
    client, names = make(kind), NAMES[settings["local-part"]]
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
        assert reply.metrics["local-part"] == round - 1
        assert reply.records == {}


@EACH
def test_a_round_begins_with_the_own_part_whatever_part_is_received(settings):
    one, other = {}, {}
    for seed, found in ((7, one), (8, other)):
        client = make()
        ask(client, settings)
        received = model()
        received.update({name: model(seed)[name] for name in NAMES[settings["local-part"]]})
        found.update(ask(client, settings, 2, received).arrays)
    assert same(one, other, [name for name in one if name not in NAMES[settings["local-part"]]])


@EACH
def test_a_client_whose_state_is_lost_begins_with_what_it_receives_and_says_so(settings):
    client = make()
    ask(client, settings)
    assert ask(client, settings, 2).metrics["local-part"] == 1
    new = ask(make(), settings, 2)
    assert new.metrics["local-part"] == 0
    assert not same(new.arrays, ask(client, settings, 2).arrays)


@EACH
@pytest.mark.parametrize("where", ["folder", "context"])
def test_a_round_that_is_run_again_has_the_same_bits(settings, where, tmp_path):
    kept: dict[str, Any] = {"folder": tmp_path} if where == "folder" else {"state": RecordDict()}
    first = [ask(make(**kept), settings, round, model(round)) for round in (1, 2, 3)]
    again = [ask(make(**kept), settings, 3, model(3)) for _ in range(2)]
    for reply in again:
        assert same(reply.arrays, first[2].arrays)
        assert reply.metrics == first[2].metrics
    client = make(**kept)
    assert ask(client, settings, 4).metrics["local-part"] == 3
    assert ask(make(**kept), settings, 1, model(1)).metrics["local-part"] == 0


@EACH
def test_a_training_that_fails_keeps_the_part_as_it_was(settings, monkeypatch):
    client = make()
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
    client = make()
    for round in (1, 2):
        ask(client, settings, round)
    for round in (1, 2):
        whole = {**model(5), **own_part(client, round + 1)}
        expected = assess(make(TargetClient), {}, round, whole)
        assert assess(client, settings, round, model(5)) == expected
    before_all = assess(make(), settings, 1, model(5))
    assert before_all == assess(make(TargetClient), {}, 1, model(5))


@EACH
def test_without_the_setting_it_is_a_plain_client(settings):
    client = make()
    ask(client, settings)
    plain = make(TargetClient)
    assert same(ask(client, {}, 2).arrays, ask(plain, {}, 2).arrays)
    assert assess(client, {}, 2, model(3)) == assess(plain, {}, 2, model(3))
    assert ask(client, settings, 3).metrics["local-part"] == 1


def test_a_part_that_nobody_knows_is_an_error_that_names_those_that_are_known():
    with pytest.raises(ConfigError, check=names("part of the model", "tail")):
        ask(make(), {"local-part": "tail"})


# FedBN


class WithoutBatchNorm(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def test_without_batch_norm_fedbns_client_is_a_plain_one():
    data, replies = DATA.domains["source-1"], []
    for kind, settings in ((SourceClient, {}), (LocalPartSource, FEDBN)):
        torch.manual_seed(0)
        client = kind(data, WithoutBatchNorm(), TRAINING)
        start = client.layers()
        replies.append([ask(client, settings, round, start).arrays for round in (1, 2)])
    assert all(same(one, other) for one, other in zip(*replies, strict=True))


def test_counters_of_batch_norm_count_on_at_the_client():
    client = make()
    for round in (1, 2, 3):
        ask(client, FEDBN, round)
    assert own_part(client, 4)["2.num_batches_tracked"] == 3 * TRAINING.steps(50)


# FedRep


class Phases:
    """Records the model before and after each call of `train`."""

    def __init__(self, monkeypatch):
        self.seen: list[tuple[dict[str, Any], dict[str, Any], int]] = []

        def spy(network, samples, training, *args, **more):
            before = {name: t.numpy().copy() for name, t in network.state_dict().items()}
            found = train(network, samples, training, *args, **more)
            after = {name: t.numpy().copy() for name, t in network.state_dict().items()}
            self.seen.append((before, after, training.epochs))
            return found

        monkeypatch.setattr("fda_flower.clients.client.train", spy)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_head_trains_first_and_the_body_under_it(monkeypatch, optimizer):
    phases = Phases(monkeypatch)
    client = make(training=LocalTraining(0.01, 11, 7, optimizer))
    for round in (1, 2):
        reply = ask(client, FEDREP, round, model(round))
    for head, body in (phases.seen[:2], phases.seen[2:]):
        before, after, epochs = head
        assert epochs == 3
        assert same(before, after, BODY), "neither parameters nor buffers of the body"
        assert not any(same(before, after, [name]) for name in HEAD)
        before, after, epochs = body
        assert epochs == 2
        assert same(before, head[1]), "the body's phase begins where the head's ended"
        assert same(before, after, HEAD)
        assert not any(same(before, after, [name]) for name in BODY), "BatchNorm's statistics too"
    assert same(own_part(client, 3), phases.seen[-1][1], HEAD)
    assert same(reply.arrays, phases.seen[-1][1], BODY)
    assert reply.metrics["num-steps"] == LocalTraining(0.01, 11, 2).steps(50)


def test_the_phases_by_hand():
    client = make(training=LocalTraining(0.05, 11, 1, "sgd"))
    reply = ask(client, FEDREP, 4)
    by_hand = network()
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
    expected = {name: t.numpy() for name, t in by_hand.state_dict().items()}
    assert same(reply.arrays, expected, BODY)
    assert same(own_part(client, 5), expected, HEAD)


def test_gradients_are_on_again_after_each_phase():
    client = make()
    ask(client, FEDREP)
    assert all(p.requires_grad for p in client.model.parameters())


def test_the_learning_rate_factor_is_that_of_both_phases(monkeypatch):
    rates = []

    def spy(network, samples, training, *args, **more):
        rates.append(training.learning_rate)
        return train(network, samples, training, *args, **more)

    monkeypatch.setattr("fda_flower.clients.client.train", spy)
    ask(make(), {**FEDREP, "rate-factor": 0.5})
    assert rates == [0.005, 0.005]


def test_the_final_head_is_trained_on_the_final_body_and_not_kept(monkeypatch):
    client = make()
    ask(client, FEDREP)
    kept, plain = own_part(client, 2), assess(client, FEDREP, 1, model(9))
    phases = Phases(monkeypatch)
    found = assess(client, {**FEDREP, "final-head-epochs": 4}, 1, model(9))
    ((before, after, epochs),) = phases.seen
    assert epochs == 4
    assert same(before, {**model(9), **kept})
    assert same(before, after, BODY)
    assert not any(same(before, after, [name]) for name in HEAD)
    assert {name: found[name] for name in plain} == plain
    final = network()
    final.load_state_dict({name: torch.from_numpy(array) for name, array in after.items()})
    loss, accuracy = evaluate(final, client.domain.test, torch.Generator())
    assert found["accuracy-final-head"] == accuracy
    assert found["loss-final-head"] == pytest.approx(loss)
    assert same(own_part(client, 2), kept)
    assert assess(client, FEDREP, 1, model(9)) == plain


def test_only_the_model_that_is_the_headline_has_outcomes():
    client = make()
    ask(client, FEDREP)
    settings: dict[str, Any] = {"server-round": 1, **FEDREP, "final-head-epochs": 1, "outcomes": True}
    reply = client.local_evaluate(EvaluateRequest(to_record(model()), settings))
    plain = {**settings}
    del plain["final-head-epochs"]
    expected = client.local_evaluate(EvaluateRequest(to_record(model()), plain))
    assert same(reply.records["outcomes"], expected.records["outcomes"])
