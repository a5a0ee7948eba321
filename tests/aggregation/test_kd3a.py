"""KD3A's vote, contributions and weights: by hand, by brute force, and what always holds."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import Votes, domain_weights, kd3a, smoothed_weights

BY_HAND = Votes(np.array([[0.90, 0.95, 0.85]], np.float32), np.array([[0, 1, 0]], np.int32))
CLASSES = 3
SHARE = st.floats(0, 1)


@st.composite
def votes(draw, most_sources=4):
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, most_sources)))
    p = draw(arrays(np.float32, shape, elements=st.floats(0, 1, width=32)))
    return Votes(p, draw(arrays(np.int32, shape, elements=st.integers(0, CLASSES - 1))))


def many(number, samples, seed=0):
    generator = np.random.default_rng(seed)
    p = generator.uniform(0.5, 1, (samples, number)).astype(np.float32)
    return Votes(p, generator.integers(0, 5, (samples, number), np.int32))


def subsets(number):
    return [s for size in range(number + 1) for s in combinations(range(number), size)]


@pytest.mark.parametrize(
    ("gate", "label", "confidence", "mask"),
    [
        (0.92, 1, 0.95, True),  # 0.90 and 0.85 are below the gate
        *((gate, 0, 1.75, False) for gate in (0.95, 1.0, 3.0)),  # nobody passes: all vote
    ],
)
def test_the_vote_by_hand(gate, label, confidence, mask):
    found = BY_HAND.consensus(gate, 2)
    assert (found[0].tolist(), found[2].tolist()) == ([label], [mask])
    np.testing.assert_allclose(found[1], [confidence], rtol=1e-6)
    assert mask or BY_HAND.contributions(gate).tolist() == [0, 0, 0]


def test_of_equal_classes_the_first_one_wins():
    tie = Votes(np.array([[0.875, 0.875]], np.float32), np.array([[2, 1]], np.int32))
    assert tie.consensus(0.5, 3)[0].tolist() == [1]


@given(votes(), SHARE)
def test_the_quality_is_the_confidence_of_the_vote_and_never_falls_if_a_source_joins(given_votes, gate):
    number = given_votes.classes.shape[1]
    quality = dict(zip(subsets(number), given_votes.qualities(gate, subsets(number)).tolist(), strict=True))
    for subset in quality:
        if subset:
            part = Votes(given_votes.confidences[:, subset], given_votes.classes[:, subset])
            _, confidence, mask = part.consensus(gate, CLASSES)
            assert quality[subset] == pytest.approx((mask * confidence).sum(), rel=1e-12)
        for k in set(range(number)) - set(subset):
            assert quality[tuple(sorted((*subset, k)))] >= quality[subset] - 1e-12


@given(votes(), SHARE)
def test_contributions_are_the_mean_gain_over_all_orders(given_votes, gate):
    number, expected = given_votes.classes.shape[1], []
    for order in permutations(range(number)):
        gains = np.zeros(number)
        prefixes = [tuple(sorted(order[:size])) for size in range(number + 1)]
        gains[list(order)] = np.diff(given_votes.qualities(gate, prefixes))
        expected.append(gains)
    found = given_votes.contributions(gate)
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=1e-12)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(given_votes.qualities(gate, [tuple(range(number))])[0], abs=1e-12)


def test_samples_are_counted_across_blocks(monkeypatch):
    whole = many(4, 300)
    expected = whole.contributions(0.8)
    monkeypatch.setattr(kd3a, "SAMPLES_IN_A_BLOCK", 7)
    np.testing.assert_allclose(whole.contributions(0.8), expected, rtol=1e-12)


def test_of_many_sources_orders_are_sampled_by_the_seed():
    whole = many(kd3a.EXACT_UP_TO + 1, 40)
    found = whole.contributions(0.8, seed=1)
    assert found.tobytes() == whole.contributions(0.8, seed=1).tobytes()
    assert found.tobytes() != whole.contributions(0.8, seed=2).tobytes()
    np.testing.assert_allclose(found.sum(), whole.qualities(0.8, [tuple(range(13))])[0], rtol=1e-12)
    assert found.min() >= 0


def test_sampled_contributions_are_near_the_exact_ones(monkeypatch):
    whole = many(6, 50)
    exact = whole.contributions(0.8)
    assert whole.contributions(0.8, seed=3).tobytes() == exact.tobytes()
    monkeypatch.setattr(kd3a, "EXACT_UP_TO", 5)
    monkeypatch.setattr(kd3a, "ORDERS", 6 * 4000)
    np.testing.assert_allclose(whole.contributions(0.8, seed=3), exact, rtol=0.02)


@given(SHARE, arrays(np.float64, st.integers(1, 6), elements=st.floats(0, 1e300)))
def test_weights_sum_to_1_and_follow_the_contributions(share, contributions):
    target, *sources = domain_weights(share, contributions).tolist()
    assert target + sum(sources) == pytest.approx(1, rel=1e-12)
    assert target == share / (len(contributions) + 1)
    assert np.argmax(sources) == np.argmax(contributions) or contributions.max() == 0


def test_without_a_contribution_the_sources_weigh_the_same():
    np.testing.assert_allclose(domain_weights(0.0, np.zeros(4)), [0, 0.25, 0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("before", "new", "momentum", "used", "kept"),
    [
        ({"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 0.0}, 0.9, {"a": 0.55, "b": 0.45}, {"a": 0.55, "b": 0.45}),
        # In the first round there are none before.
        ({}, {"a": 0.75, "b": 0.25}, 0.9, {"a": 0.75, "b": 0.25}, {"a": 0.75, "b": 0.25}),
        # b is missing, and keeps its share.
        (
            {"a": 0.2, "b": 0.6, "t": 0.2},
            {"t": 0.0, "a": 1.0},
            0.5,
            {"t": 0.25, "a": 0.75},
            {"b": 0.6, "t": 0.1, "a": 0.3},
        ),
        # Those that take part had no weight.
        ({"a": 0.0, "b": 1.0}, {"a": 1.0}, 0.9, {"a": 1.0}, {"b": 1.0, "a": 0.0}),
    ],
)
def test_smoothed_weights_by_hand(before, new, momentum, used, kept):
    for found, expected in zip(smoothed_weights(before, new, momentum), (used, kept), strict=True):
        assert found == pytest.approx(expected)
