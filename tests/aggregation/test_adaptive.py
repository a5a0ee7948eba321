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
    AdaptiveRule(FedGP(magnitude="cosine"), "beta_fedgp_filter_aware"),
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


@pytest.mark.parametrize(
    ("rule", "steps", "rate", "fixed", "evidence", "beta", "reason"),
    [
        (RULES[0], 0, 0, 0.25, None, 0.25, None),
        (RULES[0], 1, 1, 0.1, "none came", 0.1, "none came"),
        (RULES[0], 0, 0, 0.9, "steps", 0.9, "no num-steps or learning-rate"),
        # Gradients (2,0,1), (0,1,1), (3,3,1): S² = 28/3, σ² = 28/18; the mean is √(29/9) from (1,0,0).
        (RULES[0], 1, 1, 0.9, "steps", (28 / 18) / (29 / 9), None),
        # The authors' code takes the target's rate: the mean (5/3, 4/3, 1)'s distance to (1/0.4, 0, 0).
        (RULES[4], 4, 1, 0.9, "steps", (28 / 18) / (25 / 36 + 16 / 9 + 1), None),
    ],
)
def test_a_round_by_hand(make_target, make_update, rule, steps, rate, fixed, evidence, beta, reason):
    target, batches = make_target(STEPS, 0.1)
    source = make_update([1.0, 0.0, 0.0], steps=steps, rate=rate, dtype=np.float64)
    betas = np.array([fixed, fixed])
    weighed = rule(MODEL, target, [source] * 2, betas, batches if evidence == "steps" else evidence)
    assert weighed.betas == pytest.approx([beta] * 2, rel=1e-12)
    assert weighed.fallbacks == [reason] * 2
    assert (weighed.estimates is not None) is (evidence == "steps")
    # The target moves by (0.5, 0.4, 0.3), the sources by (1, 0, 0).
    np.testing.assert_allclose(weighed.model["w"], [0.5 + 0.5 * beta, 0.4 - 0.4 * beta, 0.3 - 0.3 * beta])
    assert betas.tolist() == [fixed] * 2


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


def test_steps_that_do_not_fit_are_every_sources_reason(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    # The estimators take these norms; they are not those of the steps.
    batches = replace(batches, squared_norms=batches.squared_norms * 100)
    sources = [make_update([1.0, 0.0, 0.0], steps=1, rate=1)] * 2
    result = RULES[0](MODEL, target, sources, np.array([0.1, 0.2]), batches)
    assert result.fallbacks == ["batch-updates do not have the norms that were sent with them"] * 2
    assert result.estimates is None
    assert result.betas.tolist() == [0.1, 0.2]


def test_a_source_without_a_direction_has_no_estimate_though_it_reported_everything(make_target, make_update):
    target, batches = make_target(STEPS, 0.1)
    still = make_update([0.0, 0.0, 0.0], steps=1, rate=0.1)
    result = RULES[2](MODEL, target, [still], np.array([0.3]), batches)
    assert result.fallbacks == ["the estimate is not defined"]
    assert result.betas.tolist() == [0.3]
