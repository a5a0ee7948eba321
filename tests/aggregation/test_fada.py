"""FADA's attention and clusters: by hand, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fda_flower.aggregation import attention
from fda_flower.aggregation.fada import cluster, cluster_again, dispersion

GAINS = arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e6, 1e6))
ROWS = arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=st.integers(-5, 5))


def test_attention_by_hand():
    np.testing.assert_allclose(attention(np.array([0.2, 0.0, -0.1])), [0.3907, 0.3199, 0.2894], atol=5e-5)
    np.testing.assert_array_equal(attention(np.array([-1000.0, -1000.0])), [0.5, 0.5])
    np.testing.assert_array_equal(attention(np.array([800.0, -800.0])), [1.0, 0.0])


@given(GAINS, st.randoms())
def test_attention_sums_to_1_grows_with_the_gain_and_knows_no_order(gains, random):
    weights = attention(gains)
    assert weights.sum() == pytest.approx(1)
    assert weights.min() >= 0
    assert weights[gains.argmax()] == weights.max()
    order = random.sample(range(len(gains)), len(gains))
    assert attention(gains[order]).tobytes() == weights[order].tobytes()


@pytest.mark.parametrize(
    ("rows", "clusters", "expected"),
    [
        ([[0.0], [2.0]], [0, 0], 1.0),
        ([[0.0], [2.0]], [0, 1], 0.0),
        # one of (0, 0), (3, 4), (0, 0): 5 + 0 + 5 over 3; one of two samples at a distance of 1
        ([[0, 0], [3, 4], [0, 0], [9, 9], [9, 10]], [4, 4, 4, 7, 7], 10 / 3 + 1 / 2),
    ],
)
def test_the_dispersion_by_hand(rows, clusters, expected):
    assert dispersion(np.array(rows), np.array(clusters)) == pytest.approx(expected)


@given(ROWS, st.randoms())
def test_the_dispersion_follows_scale_and_knows_no_order(rows, random):
    clusters = np.arange(len(rows)) % 3
    order = random.sample(range(len(rows)), len(rows))
    assert dispersion(rows[order], clusters[order]) == dispersion(rows, clusters)
    assert dispersion(3 * rows + 7, clusters) == pytest.approx(3 * dispersion(rows, clusters))


def test_clusters_far_from_each_other_are_those_of_k_means_whatever_the_seed():
    rows = np.array([[0, 0], [0, 1], [50, 0], [50, 1], [0, 50], [1, 50]])
    for seed in range(5):
        clusters = cluster(rows, 3, seed)
        assert len({tuple(np.flatnonzero(clusters == each)) for each in clusters}) == 3
        assert (clusters[::2] == clusters[1::2]).all()
        np.testing.assert_array_equal(cluster(rows, 3, seed), clusters)
    np.testing.assert_array_equal(cluster_again(rows, clusters), np.unique(clusters, return_inverse=True)[1])


@given(ROWS, st.integers(1, 15))
def test_there_are_no_more_clusters_than_different_samples(rows, number):
    clusters = cluster(rows, number, seed=0)
    assert clusters.shape == (len(rows),)
    assert len(np.unique(clusters)) <= min(number, len(np.unique(rows, axis=0)))
    assert dispersion(rows, clusters) <= dispersion(rows, np.zeros(len(rows), int)) + 1e-9
