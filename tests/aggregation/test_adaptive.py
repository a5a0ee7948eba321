"""A whole round as one object: the same whoever runs it, in this process or after a journey as text."""

import numpy as np
import pytest

from fda_flower.aggregation import AdaptiveRule, FedDA, FedGP

STEPS = [[0.2, 0.0, 0.1], [0.0, 0.1, 0.1], [0.3, 0.3, 0.1]]
MODEL = {"w": np.zeros(3)}

RULES = [
    AdaptiveRule(FedDA(), "beta_fedda"),
    AdaptiveRule(FedDA("aligned"), "beta_fedda", "uniform"),
    AdaptiveRule(FedGP("model", filter=False), "beta_fedgp"),
    AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp_thresholded"),
]


@pytest.mark.parametrize("rule", RULES)
def test_as_text_and_back(rule):
    assert AdaptiveRule.from_text(rule.to_text()) == rule


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
    weighed = RULES[0](MODEL, target, [source], np.array([0.25]))
    np.testing.assert_allclose(weighed.model["w"], [0.625, 0.3, 0.225])
    assert weighed.betas.tolist() == [0.25]
    assert weighed.estimates is None
    assert weighed.fallbacks == [None]


def test_beta_is_estimated_where_it_can_be_and_fixed_where_not(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1), make_update([1.0, 0.0, 0.0])]
    weighed = RULES[0](MODEL, target, sources, np.array([0.9, 0.9]), batches)
    # Gradients (2,0,1), (0,1,1), (3,3,1): S² = 28/3, σ² = 28/18; the mean's distance to (1,0,0) is √(29/9).
    assert weighed.betas[0] == pytest.approx((28 / 18) / (29 / 9))
    assert weighed.betas[1] == 0.9
    assert weighed.fallbacks == [None, "no num-steps or learning-rate"]


def test_a_reason_in_the_place_of_batches_is_every_sources_reason(make_target, make_update):
    target, _ = make_target(STEPS, 0.1)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1)] * 2
    weighed = RULES[0](MODEL, target, sources, np.array([0.1, 0.2]), "none came")
    assert weighed.fallbacks == ["none came", "none came"]
    assert weighed.betas.tolist() == [0.1, 0.2]
