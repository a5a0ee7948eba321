"""The estimators: by hand, against their definitions, on average, and at the edges."""

import math
import re
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import (
    Estimates,
    Geometry,
    beta_fedda,
    beta_fedda_reference,
    beta_fedgp,
    beta_fedgp_filter_aware,
    beta_fedgp_reference,
    estimate,
)

BETA_RULES = [beta_fedda, beta_fedgp, beta_fedgp_filter_aware, beta_fedda_reference, beta_fedgp_reference]


def estimate_one(target, source, batches):
    return estimate(target, [source], Geometry.of(target, [source]), batches)[0]


# --- The definitions of methods.md, section 3, as they stand -------------------------------------------


def square(vector):
    return float(sum(x * x for x in vector))


def without(vector, direction):
    """The part of a vector that is orthogonal to a direction."""
    unit = direction / math.sqrt(square(direction))
    return vector - sum(vector * unit) * unit


def brute_force(rows, rate, source, steps):
    """All estimates by their definitions, over all ``B`` vectors."""
    g, g_i, at_target_rate = rows / rate, source / (steps * 0.1), source / (steps * rate)
    B, mean = len(g), np.mean(g, axis=0)
    scatter = sum(square(g_j - mean) for g_j in g)
    sigma2 = scatter / (B * (B - 1))
    d2, d2_target_rate = (
        sum(square(v - g_j) for g_j in g) / B - scatter / (B - 1) for v in (g_i, at_target_rate)
    )
    p = [without(g_j, g_i) for g_j in g]
    tau2_d2 = sum(square(p_j) for p_j in p) / B - sum(square(p_j - np.mean(p, axis=0)) for p_j in p) / (B - 1)
    delta = sum(sum(g_j * g_i) > 0 for g_j in g) / B
    return Estimates(sigma2, d2, square(mean), tau2_d2, delta, d2_target_rate, B)


# --- By hand ------------------------------------------------------------------------------------------

# Two steps with η = 1/2: g_1 = [4, 2, 0], g_2 = [0, 2, 4], so ḡ = [2, 2, 2] and ‖ḡ‖² = 12.
# S² = ‖[2, 0, -2]‖² + ‖[-2, 0, 2]‖² = 8 + 8, σ̂² = 16/(2·1) = 8.
STEPS, RATE = [[2, 1, 0], [0, 1, 2]], 0.5


@pytest.mark.parametrize(
    ("gradient", "d2", "tau2_d2", "delta", "d2_target_rate", "betas"),
    [
        # ‖g_i - ḡ‖² = ‖[3, -2, -2]‖² = 17. u = [1, 0, 0], p_j = [0, 2, 0] and [0, 2, 4]: the mean of their
        # squares is (4 + 20)/2 = 12, their scatter ‖[0, 0, -2]‖² + ‖[0, 0, 2]‖² = 8. One of two agrees.
        # With the target's rate the mean step is [5/2, 0, 0]: ‖[1/2, -2, -2]‖² = 8.25.
        # β: 8 against 17; against τ̂²d̂² + σ̂² = 4 + 8; against 8 + ½·4 + ½·(12 - 8).
        # The authors' code: against 8.25; with δ = 1 - (1 - ½)/2 = ¾ against 8 + ¾·4 + ¼·12.
        ([5, 0, 0], 17 - 8, 12 - 8 / 1, 1 / 2, 8.25 - 8, [8 / 17, 8 / 12, 8 / 12, 8 / 8.25, 8 / 14]),
        # ‖g_i - ḡ‖² = ‖[-2, -4, -2]‖² = 24. u = [0, -1, 0], p_j = [4, 0, 0] and [0, 0, 4]: the mean of
        # their squares is 16, their scatter 8 + 8. None agrees.
        # With the target's rate ‖[0, -1, 0] - ḡ‖² = 4 + 9 + 4.
        # β: against 24; against 0 + 8; against 8 + 0 + 1·(12 - 8).
        # The authors' code: against 17; with δ = 1 - 1/2 against 8 + 0 + ½·12.
        ([0, -2, 0], 24 - 8, 16 - 16 / 1, 0, 17 - 8, [8 / 24, 1, 8 / 12, 8 / 17, 8 / 14]),
        # ‖g_i - ḡ‖² = ‖[0, 0, 0]‖² = 0. u = [1, 1, 1]/√3, p_j = g_j - [2, 2, 2] = [2, 0, -2], [-2, 0, 2]:
        # the mean of their squares is 8, their scatter 16. Both agree.
        # With the target's rate ‖[1, 1, 1] - ḡ‖² = 3.
        # No denominator is above 0. The authors' code: against 3, so β = 1; with δ = 1, and -8 taken as 0.
        ([2, 2, 2], 0 - 8, 8 - 16 / 1, 1, 3 - 8, [math.nan, math.nan, math.nan, 1, 1]),
    ],
)
def test_by_hand(make_target, make_update, gradient, d2, tau2_d2, delta, d2_target_rate, betas):
    target, batches = make_target(STEPS, RATE)
    source = make_update(1.5 * np.array(gradient), steps=6, rate=0.25)  # Kη = 1.5, Kη_T = 3
    e = estimate_one(target, source, batches)
    assert astuple(e) == pytest.approx((8, d2, 12, tau2_d2, delta, d2_target_rate, 2), abs=1e-12)
    assert [rule(e) for rule in BETA_RULES] == pytest.approx(betas, rel=1e-12, nan_ok=True)


# --- Against the definitions ----------------------------------------------------------------------------

eighths = st.integers(-80, 80).map(lambda n: n / 8)  # so that float32 sums are exact


@st.composite
def rounds(draw):
    """The target's steps, its learning rate, a source's update and its ``Kη``."""
    m, B = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    rows = draw(st.lists(st.lists(eighths, min_size=m, max_size=m), min_size=B, max_size=B))
    source = draw(st.lists(eighths, min_size=m, max_size=m))
    assume(any(source))
    return (
        np.array(rows),
        draw(st.sampled_from([0.01, 0.1, 0.5, 2.0])),
        np.array(source),
        draw(st.integers(1, 9)),
    )


def estimates_of(make_target, make_update, round_, form="full"):
    rows, rate, source, steps = round_
    target, batches = make_target(rows, rate, form=form)
    return estimate_one(target, make_update(source, steps=steps, rate=0.1), batches)


def close_to(value, scale):
    return pytest.approx(value, rel=1e-9, abs=1e-12 * scale)


def size_of(round_):
    """The largest squared gradient of a round: what rounding is measured against."""
    rows, rate, source, steps = round_
    own = (square(source / (steps * by)) for by in (0.1, rate))
    return max(*(square(g) for g in rows / rate), *own, 1)


@given(round_=rounds())
def test_full_estimates_are_those_of_the_definitions(make_target, make_update, round_):
    rows, rate, source, steps = round_
    e = estimates_of(make_target, make_update, round_)
    expected = brute_force(rows, rate, source, steps)
    for name in ("sigma2", "d2", "target2", "tau2_d2", "d2_target_rate"):
        assert getattr(e, name) == close_to(getattr(expected, name), size_of(round_)), name
    assert (e.delta, e.steps) == (expected.delta, expected.steps)
    assert e.sigma2 >= 0
    denominator = expected.tau2_d2 + expected.sigma2
    if denominator > 1e-6 * size_of(round_):
        assert beta_fedgp(e) == pytest.approx(min(expected.sigma2 / denominator, 1), rel=1e-5)


@given(round_=rounds())
def test_norms_are_enough_for_sigma2_and_d2(make_target, make_update, round_):
    e = estimates_of(make_target, make_update, round_, form="norms")
    full = estimates_of(make_target, make_update, round_)
    assert (e.sigma2, e.d2, e.target2) == (full.sigma2, full.d2, full.target2)
    assert math.isnan(e.tau2_d2)
    assert math.isnan(e.delta)


# --- On average -----------------------------------------------------------------------------------------


def test_sigma2_d2_and_tau2_d2_are_unbiased(make_target, make_update):
    rng = np.random.default_rng(1)
    m, B, repetitions = 6, 4, 4000
    gradient = np.array([2.0, -1.0, 0.5, 0.0, 1.0, -2.0])
    deviation = np.array([0.5, 1.0, 2.0, 1.5, 0.1, 1.0])
    source = np.array([1.0, -1.0, 1.0, 0.5, 0.0, -1.0])
    g = gradient + deviation * rng.standard_normal((repetitions, B, m))
    true = [
        (deviation**2).sum() / B,
        square(source - gradient),
        square(without(gradient, source)),
    ]
    client, estimates = make_update(source, steps=1, rate=1, dtype=np.float64), []
    for samples in g:
        target, batches = make_target(samples * 0.5, rate=0.5)
        e = estimate_one(target, client, batches)
        estimates.append((e.sigma2, e.d2, e.tau2_d2))
    error = (np.mean(estimates, axis=0) - true) / (np.std(estimates, axis=0) / math.sqrt(repetitions))
    assert (np.abs(error) < 4).all(), error


# --- Edges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "told", "says"),
    [
        ([[1, 2, 3]], {}, "at least 2 local steps of the target, got 1"),
        (np.zeros((0, 3)), {}, "at least 2 local steps of the target, got 0"),
        (STEPS, {"steps": 3}, "2 batch updates do not fit the target's 3 steps"),
        (STEPS, {"steps": 0}, "num-steps and learning-rate"),
        (STEPS, {"learning_rate": 0.0}, "num-steps and learning-rate"),
        # Two steps of squared norm 5 cannot add up to an update of squared norm 24: 2·(5 + 5) < 24.
        (STEPS, {"parameters": {"w": np.array([2.0, 2.0, 4.0])}}, "B Σ‖δ_j‖² < ‖Δ_T‖²"),
    ],
)
@pytest.mark.parametrize("form", ["norms", "full"])
def test_steps_that_cannot_be_used_are_an_error(make_target, make_update, rows, told, says, form):
    target, batches = make_target(rows, RATE, form=form)
    target, source = replace(target, **told), make_update([1, 2, 3], steps=1, rate=1)
    with pytest.raises(ValueError, match=re.escape(says)):
        estimate(target, [source], Geometry.of(target, [source]), batches)


@pytest.mark.parametrize("told", [{"steps": 0}, {"learning_rate": 0.0}], ids=["no steps", "no rate"])
def test_estimates_of_a_source_do_not_depend_on_the_others_nor_on_what_they_report(
    make_target, make_update, told
):
    target, batches = make_target(STEPS, RATE)
    sources = [make_update(v, steps=1, rate=1) for v in ([5, 0, 0], [0, -2, 0], [1, 2, 3])]
    alone = [estimate_one(target, source, batches) for source in sources]
    sources[1] = replace(sources[1], **told)
    first, silent, last = estimate(target, sources, Geometry.of(target, sources), batches)
    assert (first, last) == (alone[0], alone[2])
    assert np.isnan([silent.d2, silent.tau2_d2, silent.delta]).all()
    assert (silent.sigma2, silent.target2) == (first.sigma2, first.target2)


@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_a_learning_rate_out_of_range_makes_no_error(make_target, make_update, value):
    target, batches = make_target(STEPS, RATE, form="full")
    sources = [make_update([1, 2, 3], steps=1, rate=value), make_update([1, 2, 3], steps=1, rate=1)]
    _, second = estimate(target, sources, Geometry.of(target, sources), batches)
    assert second == estimate(target, sources[1:], Geometry.of(target, sources[1:]), batches)[0]
    target = replace(target, learning_rate=value)
    for each in estimate(target, sources, Geometry.of(target, sources), batches):
        assert np.isnan(beta_fedgp(each)) or 0 <= beta_fedgp(each) <= 1


@pytest.mark.parametrize("factor", [1 - 1.1e-3, 1 - 9e-4, 1 - 1e-7, 1 + 1e-7])
def test_norms_may_be_off_by_rounding(make_target, make_update, factor):
    target, batches = make_target([[1, 2, 2]] * 4, 0.1)
    batches = replace(batches, squared_norms=batches.squared_norms * factor)
    source = make_update([3, 0, 0], steps=1, rate=1)
    if factor > 1 - 1e-3:
        assert 0 <= estimate_one(target, source, batches).sigma2 < 1e-4
    else:
        with pytest.raises(ValueError, match="do not fit the target's update"):
            estimate_one(target, source, batches)


def test_a_zero_source_has_a_distance_but_no_direction(make_target, make_update):
    target, batches = make_target(STEPS, RATE)
    e = estimate_one(target, make_update([0, 0, 0], steps=1, rate=1), batches)
    assert (e.sigma2, e.d2) == pytest.approx((8, 12 - 8))
    assert beta_fedda(e) == pytest.approx(8 / 12)
    assert all(math.isnan(rule(e)) for rule in (beta_fedgp, beta_fedgp_filter_aware, beta_fedgp_reference))


@pytest.mark.parametrize(
    ("rule", "estimates"),
    [
        (beta_fedda, Estimates(1, -2, 1, 0, 0)),
        (beta_fedda, Estimates(0, 0, 0, 0, 0)),
        (beta_fedda, Estimates(1, math.inf, 1, 1, 1)),
        (beta_fedgp, Estimates(1, 1, 1, -2, 1)),
        (beta_fedgp, Estimates(1, 1, 1)),
        (beta_fedgp_filter_aware, Estimates(1, 1, 0, 0, 0)),
        (beta_fedgp_filter_aware, Estimates(1, 1, 1)),
        (beta_fedda_reference, Estimates(1, 1, 1, 1, 1, -1)),
        (beta_fedgp_reference, Estimates(1, 1, 1, math.nan, 1, 1, 2)),
        (beta_fedgp_reference, Estimates(0, 1, 0, -1, 1, 1, 2)),
    ],
)
def test_beta_is_nan_where_the_denominator_is_not_positive_or_a_value_not_finite(rule, estimates):
    assert math.isnan(rule(estimates))


def test_beta_of_a_target_without_variance_is_zero():
    e = Estimates(sigma2=0, d2=4, target2=4, tau2_d2=4, delta=0.5, d2_target_rate=4, steps=3)
    assert [rule(e) for rule in BETA_RULES] == [0] * 5


any_number = st.floats(allow_nan=True, allow_infinity=True)


@given(e=st.builds(Estimates, *[any_number] * 6, st.integers(2, 9)))
@settings(max_examples=500)
def test_betas_of_any_estimates_are_in_0_1_or_nan(e):
    for rule in BETA_RULES:
        beta = rule(e)
        assert math.isnan(beta) or 0 <= beta <= 1
