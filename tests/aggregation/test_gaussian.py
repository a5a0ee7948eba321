"""Gaussians of classes: by hand, against Bayes' rule by densities, and the choice of the share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from fda_flower.aggregation import ClassGaussians, choose_share, class_priors, stratified_folds
from fda_flower.aggregation.features import SMALL

examples = settings(max_examples=50)


@st.composite
def samples(draw):
    """Features and labels of up to four classes, each with two samples or more, and a generator."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    classes, size = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    labels = np.repeat(np.arange(classes), draw(st.integers(2, 9)))
    centres = rng.standard_normal((classes, size)) * 2
    return centres[labels] + rng.standard_normal((len(labels), size)), labels, rng


def test_means_and_covariance_by_hand():
    x, y = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), np.array([0, 0, 2])
    known = ClassGaussians(np.full((3, 2), 7.0), np.eye(2))
    found = ClassGaussians.of(x, y, known, 0.25)
    assert found.means.tolist() == [[2, 0], [7, 7], [0, 5]]
    # The scatter is 2 along the first axis, of three samples.
    np.testing.assert_allclose(found.covariance, [[1.25, 0], [0, 0.25]])
    half = found.mixed(known, 0.25)
    assert half.means[0].tolist() == [0.25 * 2 + 0.75 * 7, 0.75 * 7]
    np.testing.assert_allclose(half.covariance.diagonal(), [0.25 * 1.25 + 0.75, 0.25 * 0.25 + 0.75])


@given(samples())
@examples
def test_the_linear_layer_is_bayes_rule(given):
    x, y, rng = given
    classes = len(np.unique(y))
    gaussians = ClassGaussians.of(x, y, ClassGaussians.initial(classes, x.shape[1]), 1.0)
    priors = rng.dirichlet(np.ones(classes))
    weight, bias = gaussians.discriminant(priors)
    size = x.shape[1]
    inner = (1 - SMALL) * gaussians.covariance
    inner += SMALL * gaussians.covariance.trace() / size * np.eye(size)
    densities = [multivariate_normal(mean, inner).logpdf(x).reshape(-1) for mean in gaussians.means]
    posterior = np.stack(densities, axis=1) + np.log(priors)
    own = x @ weight.T + bias
    np.testing.assert_allclose(own - own[:, :1], posterior - posterior[:, :1], rtol=1e-6, atol=1e-6)


@given(samples())
@examples
def test_the_sent_arrays_come_back_and_the_mixture_ends_where_it_should(given):
    x, y, _ = given
    known = ClassGaussians.initial(4, x.shape[1])
    own = ClassGaussians.of(x, y, known, 0.25)
    back = ClassGaussians.from_layers(own.layers())
    np.testing.assert_allclose(back.means, own.means, rtol=1e-6)
    np.testing.assert_array_equal(back.covariance, back.covariance.T)
    for share, end in ((1.0, own), (0.0, known)):
        np.testing.assert_array_equal(own.mixed(known, share).means, end.means)
        np.testing.assert_array_equal(own.mixed(known, share).covariance, end.covariance)


def test_priors_of_classes_without_labels_are_small_but_above_zero():
    priors = class_priors(np.array([0, 0, 2]), 3)
    assert priors.sum() == pytest.approx(1)
    np.testing.assert_allclose(priors, [2 / 3, 0, 1 / 3], atol=2 * SMALL)
    assert (priors > 0).all()


def brute_force(x, y, known, folds):
    """The loss of each share, by its definition."""
    dealt = stratified_folds(y, folds, seed=0)
    losses = []
    for share in range(11):
        loss = 0.0
        for fold in range(folds):
            own = ClassGaussians.of(x[dealt != fold], y[dealt != fold], known, 0.5)
            weight, bias = own.mixed(known, share / 10).discriminant(class_priors(y, len(known.means)))
            for row, label in zip(x[dealt == fold], y[dealt == fold], strict=True):
                scores = weight @ row + bias
                loss += logsumexp(scores) - scores[label]
        losses.append(loss)
    return losses


@given(samples(), st.sampled_from([2, 3]))
@examples
def test_the_share_is_the_one_that_predicts_best_on_the_folds(given, folds):
    x, y, rng = given
    known = ClassGaussians(rng.standard_normal((4, x.shape[1])) / 2, np.eye(x.shape[1]))
    losses = brute_force(x, y, known, folds)
    chosen = losses[round(10 * choose_share(x, y, known, folds, 0.5))]
    assert chosen == pytest.approx(min(losses), rel=1e-9, abs=1e-9)


def test_what_is_known_is_trusted_where_it_is_right_and_not_where_it_is_wrong():
    rng = np.random.default_rng(0)
    centres = np.array([[2.0, 0.0], [-2.0, 0.0]])
    y = np.repeat([0, 1], 20)
    x = centres[y] + rng.standard_normal((40, 2))
    assert choose_share(x, y, ClassGaussians(centres, np.eye(2)), 2, 0.1) <= 0.5
    assert choose_share(x, y, ClassGaussians(-centres, np.eye(2)), 2, 0.1) >= 0.7
    assert choose_share(x[:1], y[:1], ClassGaussians(-centres, np.eye(2)), 2, 0.1) == 0
    one_patient = np.zeros(40, int)
    assert choose_share(x, y, ClassGaussians(-centres, np.eye(2)), 2, 0.1, groups=one_patient) == 0
