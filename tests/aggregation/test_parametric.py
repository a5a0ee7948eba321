"""Mixtures of features by class: by hand, against scikit-learn's, and rows drawn of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from fda_flower.aggregation import ClassMixtures, fit_mixture_of, k_means

deterministic = settings(derandomize=True, deadline=None, max_examples=50)


@st.composite
def rows(draw):
    """Rows of two or three groups, and a seed."""
    seed = draw(st.integers(0, 2**32))
    rng, groups = np.random.default_rng(seed), draw(st.integers(2, 3))
    centres = rng.standard_normal((groups, 2)) * draw(st.sampled_from([1, 10]))
    return centres[np.arange(draw(st.integers(3, 30))) % groups] + rng.standard_normal(2), seed


def test_one_component_is_mean_and_variance():
    x = np.array([[1.0, 4.0], [3.0, 4.0]])
    weights, means, variances = fit_mixture_of(x, 1, seed=0)
    assert (weights.tolist(), means.tolist(), variances.tolist()) == ([1], [[2, 4]], [[1, 0]])


def test_classes_keep_to_their_places_and_have_no_more_components_than_rows():
    x, y = np.array([[0.0], [1.0], [10.0], [11.0], [5.0]]), np.array([2, 2, 2, 2, 0])
    found = ClassMixtures.of(x, y, classes=3, components=2, seed=0)
    assert found.counts.tolist() == [1, 0, 4]
    assert found.weights.tolist() == [[1, 0], [0, 0], [0.5, 0.5]]
    assert found.means[0, 0] == 5
    assert sorted(found.means[2].ravel()) == [0.5, 10.5]
    assert not found.variances[:2].any()


@given(rows(), st.integers(1, 4))
@deterministic
def test_clusters_are_those_of_the_nearest_centre_and_centres_their_means(given, clusters):
    x, seed = given
    centres, of = k_means(x, clusters, seed)
    assert len(centres) == min(clusters, len(np.unique(x, axis=0)))
    distances = ((x[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances[np.arange(len(x)), of], distances.min(axis=1), atol=1e-9)
    for cluster, centre in enumerate(centres):
        np.testing.assert_allclose(x[of == cluster].mean(axis=0), centre)


def test_separate_clusters_are_found_as_scikit_learn_finds_them():
    rng = np.random.default_rng(0)
    x = np.repeat(np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]]), 20, axis=0)
    x += rng.standard_normal(x.shape)
    reference = KMeans(3, n_init=5, random_state=0).fit(x).cluster_centers_
    found, _ = k_means(x, 3, seed=1)
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(reference, axis=0))
    mixture = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)
    weights, means, variances = fit_mixture_of(x, 3, seed=1)
    order, expected = np.lexsort(means.T), np.lexsort(mixture.means_.T)
    np.testing.assert_allclose(weights[order], mixture.weights_[expected], atol=1e-3)
    np.testing.assert_allclose(means[order], mixture.means_[expected], atol=1e-2)
    np.testing.assert_allclose(variances[order], mixture.covariances_[expected], rtol=1e-2)


def test_overlapping_components_are_fitted_as_likely_as_scikit_learns():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.standard_normal((60, 2)), [2.0, 0.0] + 0.5 * rng.standard_normal((40, 2))])
    weights, means, variances = fit_mixture_of(x, 2, seed=0)

    def likelihood(w, m, v):
        logs = np.log(w) - (((x[:, None] - m) ** 2) / v + np.log(2 * np.pi * v)).sum(axis=2) / 2
        return np.logaddexp.reduce(logs, axis=1).mean()

    start = KMeans(2, n_init=1, random_state=0).fit(x).cluster_centers_
    best = GaussianMixture(2, covariance_type="diag", means_init=start).fit(x)
    assert likelihood(weights, means, variances) >= best.score(x) - 0.02


@given(rows(), st.integers(1, 3))
@deterministic
def test_sent_arrays_come_back_and_rows_are_drawn_as_many_as_there_were(given, components):
    x, seed = given
    y = np.arange(len(x)) % 3
    found = ClassMixtures.of(x, y, 4, components, seed)
    back = ClassMixtures.from_layers(found.layers(), len(x))
    np.testing.assert_allclose(back.means, found.means, rtol=1e-5, atol=1e-5)
    drawn, labels = back.drawn(seed)
    assert np.bincount(labels, minlength=4).tolist() == np.bincount(y, minlength=4).tolist()
    assert drawn.shape == x.shape
    np.testing.assert_array_equal(drawn, back.drawn(seed)[0])
    assert not np.array_equal(drawn, back.drawn(seed + 1)[0]) or not back.variances.any()


def test_drawn_rows_have_the_moments_of_the_mixture():
    mixtures = ClassMixtures(
        np.array([20_000, 0]),
        np.array([[0.25, 0.75], [0.0, 0.0]]),
        np.array([[[0.0, 1.0], [4.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]),
        np.array([[[1.0, 0.0], [1.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]),
    )
    drawn, _ = mixtures.drawn(0)
    np.testing.assert_allclose(drawn.mean(axis=0), [3, 1], atol=0.1)
    np.testing.assert_allclose(drawn.var(axis=0), [1 + 16 * 3 / 16, 3], rtol=0.05)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("counts", [3, -1], "by class"),
        ("counts", [1_000_000_000_000, 0], "by class"),
        ("weights", [[0.5], [0.5]], "sum to 1"),
        ("weights", [[-1.0], [1.0]], "sum to 1"),
        ("variances", [[[-1.0]], [[1.0]]], "variances"),
    ],
)
def test_what_is_no_mixture_of_so_many_samples_is_refused(name, value, says):
    good = ClassMixtures.of(np.array([[1.0], [2.0]]), np.array([0, 1]), 2, 1, seed=0).layers()
    ClassMixtures.from_layers(good, 2)
    bad = {**good, name: np.asarray(value).astype(good[name].dtype)}
    with pytest.raises(ValueError, match=says):
        ClassMixtures.from_layers(bad, 2)
