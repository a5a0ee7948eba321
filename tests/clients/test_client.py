"""What every client of the package keeps to, and what any message may ask of it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import (
    NOISY,
    PARABOLA,
    Scalar,
    evaluated,
    kept,
    make,
    mixture_of,
    same,
    shifted,
    state_of,
    trained,
)
from flwr.app import RecordDict
from naming import names
from tensors import samples_of
from torch import nn

from fda_flower import clients
from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients import (
    LocalTraining,
    SourceClient,
    TargetClient,
)
from fda_flower.clients.mixture import Mixing
from fda_flower.clients.training import plain_objective, train
from fda_flower.datasets import Domain
from fda_flower.errors import ConfigError
from fda_flower.metrics import LIMITS, intervals_in, metric_names
from fda_flower.wire.asked.personal import Blend, FineTune, Guide, Personalise, TrainToMix
from fda_flower.wire.asked.personal_layers import KeepPart
from fda_flower.wire.protocol import split_held_out

KINDS = {
    name: kind
    for name in clients.__all__
    if isinstance(kind := getattr(clients, name), type) and issubclass(kind, SourceClient | TargetClient)
}
ADAM = LocalTraining(0.01, 11)
FORMS: dict[str, dict[str, Any]] = {
    "norms": {"batch-updates": "norms"},
    "sketch": {"batch-updates": "sketch", "sketch-size": 16, "sketch-seed": 3},
    "full": {"batch-updates": "full"},
}
every_client = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
every_network = pytest.mark.parametrize("model", ["mlp", "batchnorm"])
BOTH = pytest.mark.parametrize("kind", [SourceClient, TargetClient])


def client(kind=TargetClient, model="mlp", training=ADAM, **more):
    return make(kind, model, NOISY, training, **more)


def initial(model="mlp"):
    return list(client(model=model).layers().values())


def copies(arrays):
    return [array.copy() for array in arrays]


def fit(of, round=1, model="mlp", **config):
    """The arrays after one round from the initial model, copied."""
    return copies(of.fit(initial(model), {"server-round": round, **config})[0])


def equal(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


# Every client


def test_all_clients_are_here():
    assert {SourceClient, TargetClient} <= set(KINDS.values())


@every_client
@pytest.mark.parametrize(("model", "batch_size", "epochs"), [("mlp", 7, 2), ("batchnorm", 1000, 1)])
def test_fit_returns_arrays_like_those_of_get_parameters_and_tells_of_its_steps(
    kind, model, batch_size, epochs
):
    one = client(kind, model, LocalTraining(0.02, batch_size, epochs))
    arrays, examples, metrics = one.fit(initial(model), {"server-round": 1})
    for array, given, own in zip(arrays, initial(model), one.get_parameters({}), strict=True):
        assert isinstance(array, np.ndarray)
        assert (array.shape, array.dtype) == (given.shape, given.dtype)
        assert np.array_equal(array, own)
        assert np.isfinite(array).all()
        assert not np.array_equal(array, given), "training moves every layer and buffer"
    assert examples == len(one.domain.train)
    assert 0 < metrics.pop("train-loss") < math.inf
    steps = math.ceil(examples / batch_size) * epochs
    assert metrics == {"num-steps": steps, "learning-rate": 0.02, "batch-size": batch_size}


@every_client
@every_network
def test_without_its_methods_settings_it_is_a_plain_client_and_keeps_nothing(kind, model):
    plain, one = client(SourceClient if kind.role == "source" else TargetClient, model), client(kind, model)
    expected, found = trained(plain), trained(one)
    assert same(found.arrays, expected.arrays)
    assert (found.metrics, found.records) == (expected.metrics, {})
    assert evaluated(one, outcomes=True, confusion=True).metrics == evaluated(plain).metrics
    assert not one.private_state.records


@every_client
@every_network
def test_seed_round_and_domain_decide_the_bits_and_nothing_else(kind, model):
    one = client(kind, model)
    first = fit(one, 1, model)
    fit(one, 2, model)
    assert equal(fit(one, 1, model), first), "a client keeps nothing between rounds"
    evaluations = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            new = client(kind, model)
            assert equal(fit(new, 1, model), first), "nor does anything else"
            evaluations.append(new.evaluate(initial(model), {"server-round": 1}))
    assert evaluations[0] == evaluations[1]
    assert not equal(fit(client(kind, model), 2, model), first)
    assert not equal(fit(client(kind, model, seed=1), 1, model), first)
    one.domain = type(one.domain)("elsewhere", one.domain.train, one.domain.test)
    assert not equal(fit(one, 1, model), first)


@every_client
def test_the_global_random_state_and_threads_are_left_as_they_were(kind):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    one, used = client(kind, "batchnorm", threads=threads + 1), set()
    one.model.register_forward_hook(lambda *_: used.add(torch.get_num_threads()))
    for ask in (one.fit, one.evaluate):
        ask(initial("batchnorm"), {"server-round": 1})
        assert used == {threads + 1}
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)


@every_client
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_arrays_that_went_in_or_came_out_do_not_change(kind):
    one, given = client(kind, "batchnorm"), initial("batchnorm")
    for array in given:
        array.setflags(write=False)
    known = [one.get_parameters({}), given, one.fit(given, {"server-round": 1})[0]]
    before = [copies(arrays) for arrays in known]
    one.evaluate(given, {"server-round": 1})
    one.fit(initial("batchnorm"), {"server-round": 2})
    assert all(map(equal, known, before))


@every_client
@every_network
def test_evaluate_tells_the_figures_and_follows_the_model(kind, model):
    one = client(kind, model)
    first = one.evaluate(initial(model), {"server-round": 3})
    loss, examples, metrics = first
    assert 0 < loss < math.inf
    assert examples == len(one.domain.test)
    assert set(metrics) - LIMITS.keys() == set(metric_names("classes")) - {"loss"}
    assert all(low <= metrics[name] <= high for name, (low, high) in intervals_in(metrics).items())
    assert 0 <= metrics["accuracy"] <= 1
    assert equal(one.get_parameters({}), initial(model)), "evaluation changes no model"
    better = fit(one, 1, model, epochs=5)
    assert one.evaluate(initial(model), {"server-round": 3}) == first
    assert one.evaluate(better, {"server-round": 3})[0] < loss


def test_a_client_whose_test_samples_have_no_features_does_not_evaluate():
    one = client(SourceClient)
    test = replace(one.domain.test, x=np.zeros((len(one.domain.test), 0), np.float32))
    one.domain = replace(one.domain, test=test)
    with pytest.raises(ConfigError, check=names("evaluation", one.domain.name)):
        one.evaluate(initial(), {"server-round": 1})


@pytest.mark.parametrize("form", list(FORMS))
def test_recording_does_not_change_the_targets_training_and_a_source_records_nothing(form):
    for kind in (SourceClient, TargetClient):
        plain, recorded = trained(client(kind)), trained(client(kind), **FORMS[form])
        assert same(recorded.arrays, plain.arrays)
        assert recorded.metrics == plain.metrics
        assert set(recorded.records) == ({"batch-updates"} if kind is TargetClient else set())
    assert set(recorded.records["batch-updates"]) == {"norms", form}


# What a message may ask for


@BOTH
def test_the_guidance_is_the_model_after_as_much_training_again_with_the_rounds_rate(kind):
    plain, asked = trained(client(kind)), trained(client(kind), question=Guide(keep=False))
    assert same(plain.arrays, asked.arrays), "w is restored"

    def further(reply):
        pairs = reply.answer.guidance.items()
        return [float(np.abs(array - reply.arrays[name]).max()) for name, array in pairs]

    assert asked.answer.guidance.keys() == dict(client().model.named_parameters()).keys()
    assert 0 < min(further(asked)) < max(further(asked)) < 1
    slow = trained(client(kind), question=Guide(keep=False), **{"rate-factor": 1e-3})
    assert max(further(slow)) < 0.01 * max(further(asked))
    near = trained(client(kind), question=Guide(keep=False), proximal=100.0)
    assert max(further(near)) < 0.5 * max(further(asked))


@BOTH
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
def test_a_factor_of_the_learning_rate_is_for_its_round_alone(kind, optimizer, factor):
    def at(rate):
        return make(kind, spec=NOISY, training=LocalTraining(rate, 16, optimizer=optimizer))

    one, start = at(0.04), client().layers()
    asked = {"batch-updates": "full"} if kind is TargetClient else {}
    found, expected = (
        trained(one, 3, start, **asked, **{"rate-factor": factor}),
        trained(at(0.04 * factor), 3, start, **asked),
    )
    assert same(found.arrays, expected.arrays)
    assert found.metrics == expected.metrics
    assert found.metrics["learning-rate"] == 0.04 * factor
    assert all(same(found.records[name], record) for name, record in expected.records.items())
    plain = trained(at(0.04), 3, start)
    assert same(found.arrays, plain.arrays) == (factor == 1)
    assert same(trained(one, 3, start).arrays, plain.arrays)


# The penalty


def moved_to(mu, epochs, begin=0.0, objective=None):
    """``v`` after steps of 0.1 on ``(v − 2)²/2``, drawn to where it begins."""
    model, training = Scalar(begin), LocalTraining(0.1, 1, epochs, "sgd", proximal=mu)
    train(model, PARABOLA, training, torch.Generator(), objective)
    return float(model.v.detach())


def test_steps_with_a_penalty_by_hand_and_the_fixed_point():
    assert moved_to(3.0, 1) == pytest.approx(0.2, rel=1e-6)  # at the anchor the penalty has no gradient
    assert moved_to(3.0, 2) == pytest.approx(0.2 + 0.1 * (1.8 - 3 * 0.2), rel=1e-6)
    assert moved_to(3.0, 200) == pytest.approx(2 / 4, rel=1e-6)  # (2 + μ·0)/(1 + μ)
    assert moved_to(3.0, 200, begin=1.0) == pytest.approx((2 + 3) / 4, rel=1e-6)
    own = plain_objective(PARABOLA, LocalTraining(0.1, 4))
    assert moved_to(3.0, 5, objective=own) == moved_to(3.0, 5) != moved_to(0.0, 5)


def drawn(mu, **training):
    own = {"learning_rate": 0.05, "batch_size": 11, "optimizer": "sgd", "proximal": mu}
    return make(TargetClient, training=LocalTraining(**{**own, **training}))


@pytest.mark.parametrize(("own", "asked"), [(0.0, 1.0), (7.0, 1.0), (7.0, 0.0)])
def test_the_servers_penalty_replaces_the_clients(own, asked):
    assert same(trained(drawn(own), proximal=asked).arrays, trained(drawn(asked)).arrays)


def test_dittos_personal_model_has_its_own_penalty_alone():
    both = [drawn(mu) for mu in (0.0, 5.0)]
    one, other = (trained(each, question=Personalise(penalty=0.5)) for each in both)
    assert same(*(each.private_state.load("personal")[0] for each in both))
    assert not same(one.arrays, other.arrays)


def test_a_rate_that_will_diverge_is_warned_of(flower_log):
    moved_to(9.9, 1)
    trained(drawn(20.0, optimizer="adam"))
    trained(drawn(0.0), question=Personalise(penalty=10.0))
    assert "diverges" not in flower_log.text
    moved_to(10.0, 1)
    trained(drawn(0.0), question=Personalise(penalty=20.0))
    for symbol in "μλ":
        assert f"The learning rate times {symbol} is 1" in flower_log.text


# What a client keeps for itself


APFL = TrainToMix(mixing=0.5, mix="outputs", adaptive=True, alpha_decay=0.0)
FEDREP = {"question": KeepPart(part="head", head_epochs=3), "epochs": 2, "tune": "body"}
KEEPERS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "fedavg-ft": (TargetClient, {"question": FineTune()}, "personal"),
    "feddwa": (TargetClient, {"question": Guide(keep=True)}, "personal"),
    "ditto": (TargetClient, {"question": Personalise(penalty=1.0)}, "personal"),
    "apfl": (TargetClient, {"question": APFL}, "apfl"),
    "feddaf": (
        TargetClient,
        {"question": Blend(mu=5.0, gradients="alike", statistics="blended", penalty=0.0)},
        "feddaf",
    ),
    "fedrep": (TargetClient, FEDREP, "local-part"),
    "fedper": (TargetClient, {"question": KeepPart(part="head")}, "local-part"),
    "fedbn": (SourceClient, {"question": KeepPart(part="batch-norm")}, "local-part"),
}
every_keeper = pytest.mark.parametrize(("kind", "asked", "name"), KEEPERS.values(), ids=list(KEEPERS))


@every_keeper
@pytest.mark.parametrize("where", ["folder", "context"])
def test_a_round_that_is_run_again_begins_from_what_was_kept_before_it(kind, asked, name, where, tmp_path):
    kept_in: dict[str, Any] = {"own_folder": tmp_path} if where == "folder" else {"state": RecordDict()}

    def ask(round):
        one = client(kind, "batchnorm", **kept_in)
        reply = trained(one, round, shifted(one.layers(), 0.01 * round), **asked)
        return reply, kept(one, name)

    (_, first), _, (expected, last) = (ask(round) for round in (1, 2, 3))
    assert not same(first, last)
    for _ in range(2):
        reply, own = ask(3)
        assert same(reply.arrays, expected.arrays)
        assert reply.metrics == expected.metrics
        assert same(own, last)


@every_keeper
def test_a_training_that_fails_at_last_changes_nothing_that_is_kept(kind, asked, name, monkeypatch):
    one, trainings = client(kind, "batchnorm"), []

    def counted(*given):
        trainings.append(given)
        if len(trainings) == fails_at:
            raise MemoryError
        return train(*given)

    monkeypatch.setattr("fda_flower.clients.training.train", counted)
    fails_at = 0
    trained(one, **asked)
    before, fails_at = kept(one, name), 2 * len(trainings)
    with pytest.raises(MemoryError):
        trained(one, 2, shifted(one.layers(), 0.01), **asked)
    assert same(kept(one, name), before)


# Samples held out from training


def points(count, seed):
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return samples_of(x, (x.sum(dim=1) > 0).long())


def judging(kind=TargetClient, test=points(20, 1), validation=points(10, 2)):  # noqa: B008
    torch.manual_seed(0)
    return kind(Domain("t", points(24, 0), test, validation=validation), nn.Linear(2, 2), ADAM)


@pytest.mark.parametrize("kind", [SourceClient, TargetClient])
def test_the_samples_held_out_are_evaluated_as_the_test_set_is(kind):
    own, held_out = split_held_out(evaluated(judging(kind)).metrics)
    assert own == evaluated(judging(kind, validation=None)).metrics
    tested = evaluated(judging(kind, points(10, 2), None)).metrics
    assert held_out == {name: value for name, value in tested.items() if name not in LIMITS}


def test_a_mixture_is_trained_once_for_both(monkeypatch):
    one, trainings = judging(), []
    original = Mixing.train
    monkeypatch.setattr(Mixing, "train", lambda *given: trainings.append(1) or original(*given))  # type: ignore[func-returns-value]
    reply = evaluated(one, question=mixture_of(MixturePlan(2), state_of(one.model)))
    assert len(trainings) == 1
    assert "validation-accuracy" in reply.metrics
