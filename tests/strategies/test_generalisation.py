"""IRM, V-REx and GroupDRO on the server: weights, annealing, what is kept, and when they are Source Only."""

import numpy as np
import pytest
from handmade import HandMade, bits, failing, initial, moves, weights

from fda_flower.strategies import IRM, GroupDRO, SourceOnly, VREx
from fda_flower.wire.asked.generalisation import LossMeasured, Penalised

pytestmark = pytest.mark.usefixtures("bare_replies")
PENALISED = pytest.mark.parametrize("kind", [IRM, VREx])
MOVES = {"a": [0.5, 0.25], "b": [0.1, -0.7], "c": [-0.3, 0.3]}
LOSSES = {"a": 1.0, "b": 2.0, "c": 3.0}


def source(domain, loss=None, off=(), **metrics):
    """A source whose loss, at the start and in training, is given; two steps a round."""
    loss = LOSSES[domain] if loss is None else loss
    moved = moves(MOVES[domain], domain=domain, **{"train-loss": loss, **metrics})
    answers = {
        "train.measure_loss": LossMeasured(loss_at_start=loss),
        "train.penalise": Penalised(penalty=loss / 10),
    }

    def answer(model, message):
        content = moved(model, message)
        if message.metadata.message_type in answers:
            content.update(answers[message.metadata.message_type].records())
        return content

    return ("source", domain, failing(answer, *off) if off else answer)


SOURCES = [source(domain) for domain in MOVES]


def start(strategy, nodes=SOURCES, rounds=1):
    federation = HandMade([*nodes, ("target", "t", moves(1.0, "target", "t"))])
    return strategy.start(federation.grid(), initial(), rounds), federation


def recorded(record, field="weight"):
    return [entry[field] for entry in record["sources"].values()]


def moved_by(shares):
    return np.array([1.0, 2.0]) + np.asarray(shares) @ np.array(list(MOVES.values()))


@pytest.mark.parametrize(
    ("lam", "clip", "expected"),
    [
        (0.25, False, [1 / 6, 1 / 3, 1 / 2]),
        (1.0, False, [-1 / 3, 1 / 3, 1]),
        (1.0, True, [0, 1 / 4, 3 / 4]),
    ],
)
def test_vrex_weighs_the_updates_by_the_losses_at_the_start(lam, clip, expected):
    strategy = VREx(lam=lam, anneal_steps=0, clip=clip)
    found, _ = start(strategy)
    (record,) = strategy.history
    np.testing.assert_allclose(recorded(record), expected)
    assert (recorded(record, "loss-at-start"), record["lam"]) == ([1, 2, 3], lam)
    np.testing.assert_allclose(weights(found), moved_by(expected), rtol=1e-6)


def test_groupdros_weights_from_the_losses_of_the_training():
    # Two local steps a round: η_q of 0.25 is 0.5 a round.
    strategy = GroupDRO(step_size=0.25)
    found, _ = start(strategy)
    (record,) = strategy.history
    np.testing.assert_allclose(recorded(record), [0.1863, 0.3072, 0.5065], atol=5e-5)
    np.testing.assert_allclose(weights(found), moved_by(recorded(record)), rtol=1e-6)
    kept = [float(strategy.state_dict()["q"][domain]) for domain in "abc"]
    np.testing.assert_allclose(kept, 3 * np.array(recorded(record)))


def test_a_source_that_is_missing_keeps_its_q_and_the_others_sum_to_1():
    strategy = GroupDRO(step_size=0.25)
    start(strategy, [SOURCES[0], source("b", off=(2,)), SOURCES[2]], rounds=3)
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
    start(strategy, [SOURCES[0], source("b", off=(1,)), SOURCES[2]], rounds=2)
    q = strategy.state_dict()["q"]
    assert sum(map(float, q.values())) == pytest.approx(3)
    before = np.array(recorded(strategy.history[0])) * 2
    expected = np.array([before[0], 1, before[1]]) * np.exp(0.5 * np.array([1, 2, 3]))
    np.testing.assert_allclose(recorded(strategy.history[1]), expected / expected.sum())


@pytest.mark.parametrize(
    ("strategy", "loss"),
    [
        (IRM(lam=0.0), None),
        (IRM(lam=0.0, anneal_steps=0), None),
        (IRM(lam=100.0), None),  # the sources here train without the penalty, whatever they are asked
        (VREx(lam=0.0), None),
        (VREx(lam=0.0, anneal_steps=0, clip=True), None),
        (VREx(anneal_steps=0), 0.1),
        (GroupDRO(step_size=0.0), None),
        (GroupDRO(), 0.1),
    ],
)
def test_turned_off_or_with_equal_losses_they_are_source_only_bit_for_bit(strategy, loss):
    nodes = [source(domain, loss) for domain in MOVES]
    plain, _ = start(SourceOnly(source_weights="uniform"), nodes, rounds=3)
    assert bits(start(strategy, nodes, rounds=3)[0].arrays) == bits(plain.arrays)


def test_irms_mean_may_be_by_examples():
    nodes = [source("a", examples=1), source("b", examples=3)]
    found, _ = start(IRM(source_weights="examples"), nodes)
    assert bits(found.arrays) == bits(start(SourceOnly(), nodes)[0].arrays)


@PENALISED
@pytest.mark.parametrize(
    ("options", "off", "expected"),
    [
        # Sources take two, two and five steps: three a round, so that the third round begins after six.
        ({"lam": 10.0, "anneal_steps": 6, "warmup_rounds": 1}, (), [None, 1, 1, 10, 10]),
        ({"lam": 0.5, "anneal_steps": 3}, (), [0.5] * 5),
        ({"lam": 10.0, "anneal_steps": 6, "min_sources": 3}, (1, 2), [None, None, 1, 1, 10]),
    ],
)
def test_lambda_is_at_most_1_until_the_sources_have_done_their_local_steps(kind, options, off, expected):
    strategy = kind(**options)
    start(strategy, [SOURCES[0], SOURCES[1], source("c", off=off, steps=5)], rounds=5)
    assert [record.get("lam") for record in strategy.history] == expected
    if kind is IRM:
        assert recorded(strategy.history[-1], "penalty") == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("steps", "warns"), [(4, True), (3, True), (2, False), (0, False)])
def test_an_annealing_that_has_not_ended_is_a_warning_at_the_end(steps, warns, flower_log):
    start(VREx(lam=10.0, anneal_steps=steps), rounds=2)
    assert ("in the whole run λ was 1, not 10" in flower_log.text) is warns


def test_without_annealing_nobody_has_to_count_steps():
    strategy = VREx(anneal_steps=0)
    start(strategy, [source(domain, steps=0) for domain in "ab"])
    assert strategy.history[0]["dropped"] == []
    assert strategy.state_dict() == {}
