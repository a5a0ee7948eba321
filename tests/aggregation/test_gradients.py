"""Gradients at the global model: how they are read, and estimates against definitions and on average."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from fda_flower.aggregation import (
    AdaptiveRule,
    CountSketch,
    FedDA,
    FedGP,
    JointRule,
    joint_weights,
    read_gradients,
)
from fda_flower.aggregation.gradients import MeanGradient, StartGradients

SKETCH = CountSketch(512, seed=7)


def mean_of(rows):
    """A client's mean gradient and its variance by the definitions, from rows of shape ``(B, m)``."""
    rows = np.asarray(rows, np.float64)
    B, mean = len(rows), rows.mean(axis=0)
    return MeanGradient(mean, mean @ mean, ((rows - mean) ** 2).sum() / (B * (B - 1)))


def sent(rows, sketch=SKETCH):
    """What a client sends of its batch gradients."""
    own = mean_of(rows)
    numbers = {"norm": own.squared_norm, "variance": own.variance, "batches": len(rows)}
    sizes = {"sketch-size": sketch.size, "sketch-seed": sketch.seed}
    return {k: np.array(v) for k, v in {**numbers, **sizes, "sketch": sketch({"w": own.values})}.items()}


def exact(target, *sources):
    return StartGradients(mean_of(target), [*map(mean_of, sources)], 0.0)


# ḡ_T = (2, 1) with v_T = (2² + 2²)/2 = 4; ḡ_1 = (2, 3) with v_1 = (1 + 1)/2 = 1; ḡ_2 = (-2, 1), v_2 = 0.
TARGET, ONE, TWO = [[0, 1], [4, 1]], [[1, 3], [3, 3]], [[-2, 1], [-2, 1]]


def test_estimates_by_hand():
    one, two = exact(TARGET, ONE, TWO).estimates()
    assert (one.sigma2, one.target2) == (two.sigma2, two.target2) == (4, 5)
    assert one.d2 == 4 - 4 - 1
    assert two.d2 == 16 - 4 - 0
    # t = 5 - 4; c = 4 + 3 and -4 + 1; s = 13 - 1 and 5 - 0.
    assert one.tau2_d2 == pytest.approx(1 - 49 / 12)
    assert two.tau2_d2 == pytest.approx(1 - 9 / 5)
    assert (one.delta, two.delta) == (1, 0)
    # c² without what sketches of 4 numbers add to it on average: (49 − ¼·13·5) / (1 + ¼).
    (sketched,) = replace(exact(TARGET, ONE), noise=0.25).estimates()
    assert sketched.tau2_d2 == pytest.approx(1 - (49 - 65 / 4) / 1.25 / 12)
    # ḡ_1 - ḡ_T = (0, 2), ḡ_2 - ḡ_T = (-4, 0).
    D = exact(TARGET, ONE, TWO).differences()
    assert D.tolist() == [[4 - 4 - 1, 0 - 4], [0 - 4, 16 - 4 - 0]]


def test_a_source_that_is_nothing_but_noise_explains_nothing():
    # ḡ = (0.5, 0), ‖ḡ‖² = 0.25 < v = 1.
    (e,) = exact(TARGET, [[-0.5, 0], [1.5, 0]]).estimates()
    assert e.tau2_d2 == 5 - 4


@pytest.mark.parametrize(("d2", "beta"), [(-3.0, 1.0), (-6.0, 1.0), (0.0, 1.0), (4.0, 0.5), (12.0, 0.25)])
def test_beta_takes_a_negative_distance_as_zero(d2, beta, make_update):
    target = MeanGradient(np.zeros(1), 0.0, 4.0)
    source = MeanGradient(np.full(1, math.sqrt(d2 + 4 + 6)), d2 + 4 + 6, 6.0)
    update = make_update([1.0])
    result = AdaptiveRule(FedDA(), "beta_fedda")(
        {"w": np.zeros(1, np.float32)},
        update,
        [update],
        np.array([0.3]),
        StartGradients(target, [source], 0.0),
    )
    assert result.betas == pytest.approx([beta])
    assert result.estimates is not None
    assert result.estimates[0].d2 == pytest.approx(d2, abs=1e-12)
    assert result.fallbacks == [None]


@pytest.mark.parametrize("kind", [AdaptiveRule, JointRule])
def test_a_source_without_gradients_keeps_the_fixed_beta(kind, make_update):
    rule, update, model = kind(FedDA(), "beta_fedda", "uniform"), make_update([1.0, 1.0]), {"w": np.zeros(2)}
    evidence = read_gradients(sent(TARGET), [sent(ONE), "it has none", sent(TWO)], SKETCH)
    result = rule(model, update, [update] * 3, np.array([0.4, 0.4, 0.4]), evidence)
    assert result.fallbacks == [None, "it has none", None]
    weights = [1.0, 0.4, 4 / 16]
    if kind is JointRule:  # Its α β = 0.4/3 is set apart; the two others share the rest.
        a, b = (1 - 0.4 / 3) * joint_weights(np.array([[-1.0, -4.0], [-4.0, 12.0]]), 4.0)
        weights = [a, 0.4 / 3, b]
    assert result.betas == pytest.approx(weights, rel=1e-9)
    evidence = read_gradients("it has none", [sent(ONE)] * 3, SKETCH)
    assert evidence == "the target: it has none"
    result = rule(model, update, [update] * 3, np.array([0.2, 0.4, 0.6]), evidence)
    plain = AdaptiveRule(FedDA(), "beta_fedda")(model, update, [update] * 3, np.array([0.2, 0.4, 0.6]))
    assert result.fallbacks == [evidence] * 3
    assert result.model["w"].tobytes() == plain.model["w"].tobytes()


# What clients may send


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"norm": None}, "lack 'norm'"),
        ({"sketch": None}, "lack 'sketch'"),
        ({"norm": np.array(-1.0)}, "norm -1 and variance 1, neither may be negative"),
        ({"variance": np.array(-1.0)}, "variance -1, neither may be negative"),
        ({"variance": np.array(np.nan)}, "'variance' hold NaN"),
        ({"sketch": np.full(512, np.inf)}, "'sketch' hold NaN, infinity"),
        ({"sketch": np.full(512, "a")}, "no numbers"),
        ({"batches": np.array(1)}, "at least 2 batches, got 1"),
        ({"batches": np.array([2, 2])}, "'batches' hold 2 numbers, expected one"),
        ({"norm": np.array(99.0)}, "do not have the norm"),
        ({"sketch": SKETCH({"w": np.array([9.0, 9.0])})}, "do not have the norm"),
        ({"sketch": np.zeros(4)}, r"have shape \[4\], expected \[512\]"),
        ({"sketch-seed": np.array(8)}, "size 512 with seed 8, but .* size 512 with seed 7"),
        ({"sketch-size": np.array(64)}, "sketch of size 64 with seed 7"),
        ({"sketch-size": None}, "lack 'sketch-size'"),
    ],
)
def test_gradients_that_cannot_be_used_are_named(change, says):
    arrays = {k: v for k, v in {**sent(ONE), **change}.items() if v is not None}
    evidence = read_gradients(sent(TARGET), [arrays, sent(TWO)], SKETCH)
    assert isinstance(evidence, StartGradients)
    fault, fine = evidence.faults
    assert re.search(says, str(fault))
    assert fine is None
    assert np.isfinite(evidence.differences()).tolist() == [[False, False], [False, True]]


# Sketches, and averages


def test_a_sketch_is_unbiased_over_seeds():
    rng = np.random.default_rng(1)
    clients = [rng.standard_normal((3, 50)) + 1 for _ in range(3)]
    found = []
    for seed in range(600):
        target, *sources = (sent(rows, CountSketch(128, seed)) for rows in clients)
        evidence = read_gradients(target, sources, CountSketch(128, seed))
        assert isinstance(evidence, StartGradients)
        assert evidence.noise == 1 / 128
        found.append(evidence.differences())
    error = np.std(found, axis=0) / math.sqrt(600)
    assert (np.abs(np.mean(found, axis=0) - exact(*clients).differences()) < 4 * error).all()


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_distances_are_unbiased_and_of_equal_domains_zero_on_average(shift):
    """Batches of different numbers and variances; every product is within 4 standard errors."""
    rng = np.random.default_rng(2)
    m, repetitions = 20, 4000
    g = rng.standard_normal(m)
    truths = [g, g + shift * rng.standard_normal(m), g - shift * rng.standard_normal(m)]
    D, whole = np.zeros((repetitions, 2, 2)), np.zeros(repetitions)
    for i in range(repetitions):
        clients = [
            truth + deviation * rng.standard_normal((B, m))
            for truth, deviation, B in zip(truths, (2.0, 1.0, 3.0), (5, 12, 3), strict=True)
        ]
        evidence = exact(*clients)
        D[i] = evidence.differences()
        estimates = evidence.estimates()
        assert [e.d2 for e in estimates] == pytest.approx(D[i].diagonal(), rel=1e-9, abs=1e-9)
        whole[i] = estimates[0].target2 - estimates[0].sigma2
    errors = np.array(truths[1:]) - g
    standard_error = D.std(axis=0) / math.sqrt(repetitions)
    assert (np.abs(D.mean(axis=0) - errors @ errors.T) < 4 * standard_error).all()
    assert whole.mean() == pytest.approx(g @ g, abs=4 * whole.std() / math.sqrt(repetitions))


@pytest.mark.parametrize("filter_aware", [False, True])
def test_fedgp_projects_on_what_explains_the_target(filter_aware, make_update):
    update = make_update([1.0, 1.0])
    rule = AdaptiveRule(FedGP(), "beta_fedgp_filter_aware" if filter_aware else "beta_fedgp")
    # ḡ_T = (3, 0), v_T = 1; the sources are exact: along it, across it.
    target, along, across = [[3, 1], [3, -1]], [[1, 0], [1, 0]], [[0, 1], [0, 1]]
    result = rule({"w": np.zeros(2)}, update, [update] * 2, np.zeros(2), exact(target, along, across))
    # Along: 9 - 1 - 9 < 0, as 0. Across: 8; with the filter, which drops it, ‖ḡ‖² - σ² = 8 too.
    assert result.betas == pytest.approx([1, 1 / 9])
