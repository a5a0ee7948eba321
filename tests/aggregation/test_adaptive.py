"""A whole round as one object: the same in this process and in another, to which it goes as text."""

from dataclasses import replace

import numpy as np
import pytest

from fda_flower.aggregation import AdaptiveRule, FedDA, FedGP, Geometry, beta_fedgp, combine, estimate

STEPS = [[0.2, 0.0, 0.1], [0.0, 0.1, 0.1], [0.3, 0.3, 0.1]]
MODEL = {"w": np.zeros(3)}

RULES = [
    AdaptiveRule(FedDA(), "beta_fedda"),
    AdaptiveRule(FedDA("aligned"), "beta_fedda", "uniform"),
    AdaptiveRule(FedGP("model", filter=False), "beta_fedgp"),
    AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp_thresholded"),
    AdaptiveRule(FedDA(), "beta_fedda_reference"),
    AdaptiveRule(FedGP(magnitude="reference-code"), "beta_fedgp_reference"),
]


@pytest.mark.parametrize("rule", RULES)
def test_to_text_and_back(rule):
    assert AdaptiveRule.from_text(rule.to_text()) == rule


@pytest.mark.parametrize(
    "text", ["{}", "[1", '{"rule": {"name": "Median"}, "beta-rule": "", "weighting": ""}']
)
def test_text_from_elsewhere_is_refused(text):
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


def test_beta_of_the_authors_code_takes_the_targets_rate(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    source = make_update([1.0, 0.0, 0.0], steps=4, rate=1, dtype=np.float64)
    result = RULES[4](MODEL, target, [source], np.array([0.9]), batches)
    # σ² = 28/18; the mean (5/3, 4/3, 1)'s distance to (1/0.4, 0, 0) is √(25/36 + 16/9 + 1).
    assert result.betas[0] == pytest.approx((28 / 18) / (25 / 36 + 16 / 9 + 1))


def test_a_reason_in_the_place_of_batches_is_every_sources_reason(make_target, make_update):
    target, _ = make_target(STEPS, 0.1)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1)] * 2
    weighed = RULES[0](MODEL, target, sources, np.array([0.1, 0.2]), "none came")
    assert weighed.fallbacks == ["none came", "none came"]
    assert weighed.betas.tolist() == [0.1, 0.2]


def test_a_round_follows_the_weighting_and_returns_its_geometry_and_estimates(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    sources = [
        make_update([1.0, 0.0, 0.0], steps=1, rate=1, examples=3),
        make_update([0.0, 2.0, 0.0], steps=1, rate=1, examples=1),
    ]
    geometry = Geometry.of(target, sources)
    for rule, alphas in (
        (AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp"), [0.75, 0.25]),
        (AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp", "uniform"), [0.5, 0.5]),
    ):
        result = rule(MODEL, target, sources, np.zeros(2), batches)
        assert result.estimates == estimate(target, sources, geometry, batches)
        assert result.betas.tolist() == [beta_fedgp(e) for e in result.estimates]
        assert result.geometry.products.tolist() == geometry.products.tolist()
        coefficients = rule.rule.coefficients(target, sources, geometry, np.array(alphas), result.betas)
        expected = combine(MODEL, target, sources, coefficients)["w"]
        assert result.model["w"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda norms: norms / 100, "do not fit the target's update: B Σ‖δ_j‖² < ‖Δ_T‖²"),
        # The estimators take these norms; they are not those of the steps.
        (lambda norms: norms * 100, "do not have the norms that were sent with them"),
    ],
    ids=["too small", "too large"],
)
def test_steps_that_do_not_fit_are_every_sources_reason(make_target, make_update, spoil, reason):
    target, batches = make_target(STEPS, 0.1)
    batches = replace(batches, squared_norms=spoil(batches.squared_norms))
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1)] * 2
    result = RULES[0](MODEL, target, sources, np.array([0.1, 0.2]), batches)
    assert result.fallbacks == [f"batch-updates {reason}"] * 2
    assert result.estimates is None
    assert result.betas.tolist() == [0.1, 0.2]


def test_a_source_without_a_direction_has_no_estimate_though_it_reported_everything(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    still = make_update([0.0, 0.0, 0.0], steps=1, rate=0.1)
    result = RULES[2](MODEL, target, [still], np.array([0.3]), batches)
    assert result.fallbacks == ["the estimate is not defined"]
    assert result.betas.tolist() == [0.3]


def test_the_fixed_betas_are_left_as_they_are(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    fixed = np.array([0.9])
    RULES[0](MODEL, target, [make_update([1.0, 0.0, 0.0], steps=1, rate=1)], fixed, batches)
    assert fixed.tolist() == [0.9]
