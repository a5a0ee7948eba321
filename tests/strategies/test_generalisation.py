"""IRM, V-REx and GroupDRO on the server: weights, annealing, what is kept, and when they are Source Only."""

import itertools
import logging

import handmade
import numpy as np
import pytest
from handmade import HandMade, initial, moves, weights

from fda_flower.errors import ConfigError
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import IRM, GroupDRO, RunFolder, SourceOnly, VREx

NAMES = ("irm", "vrex", "groupdro")
MOVES = {"a": [0.5, 0.25], "b": [0.1, -0.7], "c": [-0.3, 0.3]}
LOSSES = {"a": 1.0, "b": 2.0, "c": 3.0}


def source(domain, losses=LOSSES, **metrics):
    """A source whose losses, at the start and in training, are given; two steps a round."""
    loss = losses[domain]
    numbers = {"loss-at-start": loss, "train-loss": loss, "penalty": loss / 10, **metrics}
    return ("source", domain, moves(MOVES[domain], domain=domain, **numbers))


def failing(domain, rounds):
    """A source without a reply in some rounds."""

    def answer(model, message):
        if message.content["config"]["server-round"] in rounds:
            raise OSError("off")
        return source(domain)[2](model, message)

    return ("source", domain, answer)


SOURCES = [source(domain) for domain in MOVES]
TARGET = ("target", "t", moves(1.0, "target", "t"))


@pytest.fixture(autouse=True)
def replies_as_they_are(monkeypatch):
    """Nothing is added to the replies of these tests' clients."""
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)


def start(strategy, nodes=SOURCES, rounds=1, federation=None):
    return strategy.start((federation or HandMade([*nodes, TARGET])).grid(), initial(), rounds)


def recorded(record, field="weight"):
    return [entry[field] for entry in record["sources"].values()]


def moved_by(shares):
    return np.array([1.0, 2.0]) + np.asarray(shares) @ np.array(list(MOVES.values()))


def test_vrex_weighs_the_updates_by_the_losses_at_the_start():
    strategy = VREx(lam=0.25, anneal_steps=0)
    found = weights(start(strategy))
    (record,) = strategy.history
    np.testing.assert_allclose(recorded(record), [1 / 6, 1 / 3, 1 / 2])
    assert recorded(record, "loss-at-start") == [1, 2, 3]
    assert record["lam"] == 0.25
    np.testing.assert_allclose(found, moved_by([1 / 6, 1 / 3, 1 / 2]), rtol=1e-6)


@pytest.mark.parametrize(("clip", "expected"), [(False, [-1 / 3, 1 / 3, 1]), (True, [0, 1 / 4, 3 / 4])])
def test_vrexs_negative_weights_stay_or_are_clipped(clip, expected):
    found = weights(start(VREx(lam=1.0, anneal_steps=0, clip=clip)))
    np.testing.assert_allclose(found, moved_by(expected), rtol=1e-6)


def test_groupdros_weights_from_the_losses_of_the_training():
    # Two local steps a round: η_q of 0.25 is 0.5 a round.
    strategy = GroupDRO(step_size=0.25)
    found = weights(start(strategy))
    (record,) = strategy.history
    np.testing.assert_allclose(recorded(record), [0.1863, 0.3072, 0.5065], atol=5e-5)
    np.testing.assert_allclose(found, moved_by(recorded(record)), rtol=1e-6)
    kept = [float(strategy.state_dict()["q"][domain]) for domain in "abc"]
    np.testing.assert_allclose(kept, 3 * np.array(recorded(record)))


def test_a_source_that_is_missing_keeps_its_q_and_the_others_sum_to_1():
    strategy = GroupDRO(step_size=0.25)
    start(strategy, [SOURCES[0], failing("b", {2}), SOURCES[2]], rounds=3)
    first, second, third = strategy.history
    after = np.array(recorded(first))
    both = after[[0, 2]] * np.exp(0.5 * np.array([1, 3]))
    np.testing.assert_allclose(recorded(second), both / both.sum())
    shares = np.array([0, after[1], 0])
    shares[[0, 2]] = (1 - after[1]) * both / both.sum()
    last = shares * np.exp(0.5 * np.array([1, 2, 3]))
    np.testing.assert_allclose(recorded(third), last / last.sum())


def test_a_source_that_comes_later_begins_with_the_mean_q():
    strategy = GroupDRO(step_size=0.25)
    start(strategy, [SOURCES[0], failing("b", {1}), SOURCES[2]], rounds=2)
    q = strategy.state_dict()["q"]
    assert sum(map(float, q.values())) == pytest.approx(3)
    before = np.array(recorded(strategy.history[0])) * 2
    expected = np.array([before[0], 1, before[1]]) * np.exp(0.5 * np.array([1, 2, 3]))
    np.testing.assert_allclose(recorded(strategy.history[1]), expected / expected.sum())


OFF = [
    (lambda: IRM(lam=0.0), {}),
    (lambda: IRM(lam=0.0, anneal_steps=0), {}),
    (lambda: IRM(lam=100.0), {}),  # the sources here train without the penalty, whatever they are asked
    (lambda: VREx(lam=0.0), {}),
    (lambda: VREx(lam=0.0, anneal_steps=0, clip=True), {}),
    (lambda: VREx(anneal_steps=0), dict.fromkeys(LOSSES, 0.1)),
    (lambda: GroupDRO(step_size=0.0), {}),
    (lambda: GroupDRO(), dict.fromkeys(LOSSES, 0.1)),
]


@pytest.mark.parametrize(("build", "losses"), OFF)
def test_turned_off_or_with_equal_losses_they_are_source_only_bit_for_bit(build, losses):
    nodes = [source(domain, {**LOSSES, **losses}) for domain in MOVES]
    plain = start(SourceOnly(source_weights="uniform"), nodes, rounds=3)
    assert weights(start(build(), nodes, rounds=3)).tobytes() == weights(plain).tobytes()


def test_irms_mean_may_be_by_examples():
    examples = {"a": 1, "b": 3}
    nodes = [("source", d, moves(MOVES[d], domain=d, examples=n, penalty=0.1)) for d, n in examples.items()]
    found = start(IRM(source_weights="examples"), nodes)
    assert weights(found).tobytes() == weights(start(SourceOnly(), nodes)).tobytes()


def test_irms_sources_alone_are_told_the_penalty_which_the_record_has():
    federation, strategy = HandMade([*SOURCES, TARGET]), IRM(lam=7.0, anneal_steps=0)
    start(strategy, federation=federation)
    assert [(domain, config["irm"]) for domain, config in federation.configs] == [
        ("a", 7.0),
        ("b", 7.0),
        ("c", 7.0),
    ]
    assert recorded(strategy.history[0], "penalty") == [0.1, 0.2, 0.3]


def test_a_penalty_of_none_is_not_asked_for():
    federation = HandMade([*SOURCES, TARGET])
    start(IRM(lam=0.0), federation=federation)
    assert all("irm" not in config for _, config in federation.configs)


@pytest.mark.parametrize("kind", [IRM, VREx])
def test_lambda_is_1_until_the_sources_have_done_their_local_steps(kind):
    # Sources take two, two and five steps: three a round, so that the third round begins after six.
    nodes = [SOURCES[0], SOURCES[1], source("c", steps=5)]
    strategy = kind(lam=10.0, anneal_steps=6, warmup_rounds=1)
    start(strategy, nodes, rounds=5)
    assert [record.get("lam") for record in strategy.history] == [None, 1, 1, 10, 10]


@pytest.mark.parametrize("kind", [IRM, VREx])
def test_a_smaller_lambda_than_1_stays_as_it_is(kind):
    strategy = kind(lam=0.5, anneal_steps=3)
    start(strategy, rounds=3)
    assert [record["lam"] for record in strategy.history] == [0.5] * 3


def test_held_rounds_do_not_count_for_the_annealing():
    strategy = VREx(lam=10.0, anneal_steps=4, min_sources=3)
    start(strategy, [*SOURCES[:2], failing("c", {1, 2})], rounds=5)
    assert [record.get("lam") for record in strategy.history] == [None, None, 1, 1, 10]


@pytest.mark.parametrize(("steps", "warns"), [(4, True), (3, True), (2, False), (0, False)])
def test_an_annealing_that_has_not_ended_is_a_warning_at_the_end(steps, warns, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        start(VREx(lam=10.0, anneal_steps=steps), rounds=2)
    assert ("In the whole run λ was 1, not 10" in caplog.text) is warns


@pytest.mark.parametrize("build", [lambda: VREx(lam=3.0, anneal_steps=4), lambda: GroupDRO(step_size=0.1)])
def test_the_order_of_replies_changes_no_bit(build):
    nodes = [source(domain, {"a": 0.1, "b": 0.7, "c": 1.3}) for domain in MOVES]
    found = {
        weights(start(build(), list(order), rounds=3)).tobytes() for order in itertools.permutations(nodes)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda **common: IRM(lam=3.0, anneal_steps=5, **common),
        lambda **common: VREx(lam=3.0, anneal_steps=5, **common),
        lambda **common: GroupDRO(step_size=0.1, **common),
    ],
)
def test_a_resumed_run_has_the_same_bits_and_records(build, tmp_path):
    whole, strategy = None, build()
    whole = start(strategy, rounds=5)
    start(build(output=RunFolder(tmp_path)), rounds=2)
    again = build(output=RunFolder(tmp_path, resume=True))
    assert weights(start(again, rounds=5)).tobytes() == weights(whole).tobytes()
    for record, other in zip(strategy.history, again.history, strict=True):
        assert record["sources"] == other["sources"]
        assert record.get("lam") == other.get("lam")


@pytest.mark.parametrize("name", NAMES)
def test_the_target_is_never_trained(name):
    federation = HandMade([*SOURCES, TARGET])
    start(METHODS[name].build(), rounds=2, federation=federation)
    assert {domain for domain, _ in federation.configs} == set("abc")


REMEDIES = [
    (IRM(lam=2.0), "penalty", "IRMSource"),
    (IRM(lam=2.0), "num-steps", "set anneal_steps to 0"),
    (VREx(), "loss-at-start", "loss of the received model"),
    (VREx(), "num-steps", "set anneal_steps to 0"),
    (GroupDRO(), "train-loss", "mean loss of their training"),
    (GroupDRO(), "num-steps", "have to report num-steps"),
]


@pytest.mark.parametrize(("strategy", "metric", "remedy"), REMEDIES)
def test_a_reply_that_lacks_what_the_method_needs_is_dropped_with_the_remedy(strategy, metric, remedy):
    def lacking(model, message):
        content = source("b")[2](model, message)
        del content["metrics"][metric]
        return content

    start(strategy, [SOURCES[0], ("source", "b", lacking), SOURCES[2]])
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped["domain"] == "b"
    assert f"no '{metric}'" in dropped["reason"]
    assert remedy in dropped["reason"]


def test_without_annealing_nobody_has_to_count_steps():
    nodes = [("source", d, moves(MOVES[d], domain=d, steps=0, **{"loss-at-start": 1.0})) for d in "ab"]
    strategy = VREx(anneal_steps=0)
    start(strategy, nodes)
    assert strategy.history[0]["dropped"] == []
    assert strategy.state_dict() == {}


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *((kind, {"lam": -0.1}, "lam is -0.1") for kind in (IRM, VREx)),
        *((kind, {"lam": np.inf}, "lam is inf") for kind in (IRM, VREx)),
        *((kind, {"lam": np.nan}, "lam is nan") for kind in (IRM, VREx)),
        *((kind, {"anneal_steps": -1}, "anneal_steps is -1") for kind in (IRM, VREx)),
        (IRM, {"source_weights": "size"}, "choose examples or uniform"),
        (GroupDRO, {"step_size": -0.1}, "step_size is -0.1"),
        (GroupDRO, {"step_size": np.inf}, "step_size is inf"),
    ],
)
def test_options_that_cannot_work_are_refused(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        kind(**options)
