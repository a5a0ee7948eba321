"""A whole round as one object: the same whoever runs it, in this process or after a journey as text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.aggregation import AdaptiveRule, CountSketch, FedDA, FedGP

STEPS = [[0.2, 0.0, 0.1], [0.0, 0.1, 0.1], [0.3, 0.3, 0.1]]
MODEL = {"w": np.zeros(3)}

WEIGHINGS = [
    AdaptiveRule(FedDA(), "beta_fedda"),
    AdaptiveRule(FedDA("aligned"), "beta_fedda", "uniform"),
    AdaptiveRule(FedGP("model", filter=False), "beta_fedgp"),
    AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp_thresholded"),
]


@pytest.mark.parametrize("weighing", WEIGHINGS)
def test_as_text_and_back(weighing):
    assert AdaptiveRule.from_text(weighing.to_text()) == weighing


@pytest.mark.parametrize(
    "text", ["{}", "[1", '{"rule": {"name": "Median"}, "beta-rule": "", "weighting": ""}']
)
def test_another_text_is_refused(text):
    with pytest.raises((ValueError, KeyError)):
        AdaptiveRule.from_text(text)


def test_a_round_by_hand(make_target, make_update):
    # The target moves by (0.5, 0.4, 0.3), the source by (1, 0, 0): β = 0.25 of it.
    target, _ = make_target(STEPS, 0.1)
    source = make_update([1.0, 0.0, 0.0], dtype=np.float64)
    weighed = WEIGHINGS[0](MODEL, target, [source], np.array([0.25]))
    np.testing.assert_allclose(weighed.model["w"], [0.625, 0.3, 0.225])
    assert weighed.betas.tolist() == [0.25]
    assert weighed.estimates is None
    assert weighed.fallbacks == [None]


def test_beta_is_estimated_where_it_can_be_and_fixed_where_not(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1), make_update([1.0, 0.0, 0.0])]
    weighed = WEIGHINGS[0](MODEL, target, sources, np.array([0.9, 0.9]), batches)
    # Gradients (2,0,1), (0,1,1), (3,3,1): S² = 28/3, σ² = 28/18; the mean's distance to (1,0,0) is √(29/9).
    assert weighed.betas[0] == pytest.approx((28 / 18) / (29 / 9))
    assert weighed.betas[1] == 0.9
    assert weighed.fallbacks == [None, "no num-steps or learning-rate"]


def test_a_reason_in_the_place_of_batches_is_every_sources_reason(make_target, make_update):
    target, _ = make_target(STEPS, 0.1)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1)] * 2
    weighed = WEIGHINGS[0](MODEL, target, sources, np.array([0.1, 0.2]), "none came")
    assert weighed.fallbacks == ["none came", "none came"]
    assert weighed.betas.tolist() == [0.1, 0.2]


@pytest.mark.parametrize("form", ["norms", "sketch", "full"])
@given(
    rows=st.lists(
        st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).filter(lambda row: any(row)),
        min_size=1,
        max_size=6,
    )
)
def test_steps_fit_the_update_that_they_make(make_target, form, rows):
    target, batches = make_target(rows, 0.1, CountSketch(64, 0), form)
    batches.check_sum(target.parameters)


@pytest.mark.parametrize("form", ["norms", "sketch", "full"])
def test_steps_that_are_too_short_do_not_fit(make_target, make_update, form):
    _, batches = make_target(STEPS, 0.1, CountSketch(64, 0), form)
    with pytest.raises(ValueError, match="do not fit the target's update"):
        batches.check_sum({"w": np.array([5.0, 4.0, 3.0])})


@pytest.mark.parametrize("form", ["sketch", "full"])
def test_steps_of_another_update_do_not_fit(make_target, form):
    target, batches = make_target(STEPS, 0.1, CountSketch(64, 0), form)
    with pytest.raises(ValueError, match="do not sum up to it"):
        batches.check_sum({"w": -target.parameters["w"]})


def test_the_norm_of_an_update_and_a_scaled_one(make_update):
    update = make_update({"a": [3.0], "b": [[0.0, 4.0]]}, buffers={"n": np.array(3)})
    assert update.norm == 5.0
    half = update.scaled(0.5)
    assert half.norm == 2.5
    assert half.parameters["b"].dtype == np.float32
    assert half.buffers is update.buffers
