"""β: fixed, one for each source, estimated, and what happens where it cannot be."""

import numpy as np
import pytest
from handmade import HandMade, initial, moves, steps_extra, weights
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import FedDA, FedGP

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])


def target(**kwargs):
    settings = {"steps": 3, "rate": 0.1, "extra": steps_extra(STEPS), **kwargs}
    return ("target", "t", moves(STEPS.sum(axis=0), "target", "t", **settings))


def source(domain, delta=(0.5, 0.25), **kwargs):
    return ("source", domain, moves(delta, "source", domain, **kwargs))


def run(strategy, *nodes):
    app = HandMade(nodes)
    return strategy.start(app.grid(), initial(), 1), strategy.history[0], app


def test_fedda_by_hand():
    # Target moves by (0.5, 0.4), the source by (0.5, 0.25): half of each.
    result, record, _ = run(FedDA(beta=0.5), target(), source("a"))
    np.testing.assert_allclose(weights(result), [1.5, 2.325], rtol=1e-6)
    entry = record["sources"]["a"]
    assert entry["beta"] == 0.5
    assert entry["norm"] == pytest.approx(np.sqrt(0.3125))
    assert record["target"]["norm"] == pytest.approx(np.sqrt(0.41))
    assert result.train_metrics_clientapp[1] == {"dropped": 0, "train-loss.a": 1.0, "beta.a": 0.5}


def test_fedgp_by_hand():
    # <T, s> / |s|^2 = (0.25 + 0.1) / 0.3125 = 1.12; its projection is (0.56, 0.28).
    result, record, _ = run(FedGP(beta=0.5), target(), source("a"))
    np.testing.assert_allclose(weights(result), [1 + 0.25 + 0.28, 2 + 0.2 + 0.14], rtol=1e-6)
    assert record["sources"]["a"]["kept"] == 1.0
    assert record["sources"]["a"]["cosine"] == pytest.approx(0.35 / np.sqrt(0.41 * 0.3125))


def test_fedgp_drops_a_source_that_disagrees():
    result, record, _ = run(FedGP(beta=1.0), target(), source("a", (-1.0, -1.0)))
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])
    assert record["sources"]["a"]["kept"] == 0.0


def test_a_source_without_agreement_is_not_kept_in_the_record():
    _, record, _ = run(FedGP(beta=0.5), target(), source("a", (0.0, 0.0)), source("b", (0.4, -0.5)))
    assert [record["sources"][name]["kept"] for name in "ab"] == [0.0, 0.0]


def test_beta_for_each_source_by_order_and_by_name():
    nodes = target(), source("b", (1.0, 0.0)), source("a", (0.0, 1.0))
    by_order, record, _ = run(FedDA(beta=[0.0, 1.0]), *nodes)
    by_name, _, _ = run(FedDA(beta={"a": 0.0, "b": 1.0}), *nodes)
    np.testing.assert_array_equal(weights(by_order), weights(by_name))
    assert record["sources"]["a"]["beta"] == 0.0
    assert record["sources"]["b"]["beta"] == 1.0
    np.testing.assert_allclose(weights(by_order), [1 + 0.25 + 0.5, 2 + 0.2], rtol=1e-6)


@pytest.mark.parametrize("beta", [-0.1, 1.5, float("nan"), [0.5, 2.0], {"a": -1.0}])
def test_beta_outside_its_range(beta):
    with pytest.raises(ConfigError, check=names("beta")):
        FedGP(beta=beta)


@pytest.mark.parametrize(
    ("beta", "says"), [([0.1, 0.2], "2 values for 1 sources"), ({"b": 0.5}, "no value for the source 'a'")]
)
def test_beta_of_the_wrong_length_fails_before_training(beta, says):
    app = HandMade([target(), source("a")])
    with pytest.raises(ConfigError, match=says):
        FedDA(beta=beta).start(app.grid(), initial(), 1)
    assert app.configs == []


def test_auto_fedda_matches_the_formula_and_asks_the_target_for_norms_alone():
    _, record, app = run(FedDA(auto=True), target(), source("a"))
    gradients, g = STEPS / 0.1, np.array([0.5, 0.25]) / (2 * 0.5)
    mean = gradients.mean(axis=0)
    sigma2 = ((gradients - mean) ** 2).sum() / (3 * 2)
    entry = record["sources"]["a"]
    assert entry["sigma2"] == pytest.approx(sigma2, rel=1e-5)
    assert entry["beta"] == pytest.approx(min(1, sigma2 / ((g - mean) ** 2).sum()), rel=1e-5)
    assert entry["fallback"] is None
    asked = dict(app.configs)
    assert asked["t"]["batch-updates"] == "norms"
    assert "batch-updates" not in asked["a"]


@pytest.mark.parametrize("formula", ["definition", "filter-aware"])
def test_auto_fedgp_matches_the_definition(formula):
    strategy = FedGP(auto=True, batch_update_encoding="full", beta_formula=formula)
    _, record, _ = run(strategy, target(), source("a", (0.5, -0.25)))
    gradients, B = STEPS / 0.1, 3
    u = np.array([0.5, -0.25]) / np.linalg.norm([0.5, -0.25])
    mean = gradients.mean(axis=0)
    sigma2 = ((gradients - mean) ** 2).sum() / (B * (B - 1))
    p = gradients - (gradients @ u)[:, None] * u
    tau2_d2 = (p**2).sum() / B - ((p - p.mean(axis=0)) ** 2).sum() / (B - 1)
    delta = (gradients @ u > 0).mean()
    entry = record["sources"]["a"]
    assert entry["tau2-d2"] == pytest.approx(tau2_d2, rel=1e-4)
    assert entry["delta"] == pytest.approx(delta)
    denominator = sigma2 + tau2_d2
    if formula == "filter-aware":
        denominator = sigma2 + delta * tau2_d2 + (1 - delta) * ((mean**2).sum() - sigma2)
    assert entry["beta"] == pytest.approx(np.clip(sigma2 / denominator, 0, 1), rel=1e-4)


def test_auto_fedgp_asks_for_a_sketch_with_the_rounds_seed():
    app = HandMade([target(), source("a")])
    FedGP(auto=True, sketch_size=64).start(app.grid(), initial(), 2)
    asked = [config for domain, config in app.configs if domain == "t"]
    assert [config["batch-updates"] for config in asked] == ["sketch", "sketch"]
    assert [config["sketch-size"] for config in asked] == [64, 64]
    assert asked[0]["sketch-seed"] != asked[1]["sketch-seed"]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"extra": None}, "no ArrayRecord 'batch-updates'"),
        ({"steps": 4}, r"expected floats \[4\]"),
        ({"steps": 1, "extra": steps_extra(STEPS[:1])}, "at least 2 local steps"),
        ({"rate": 0.0}, "need num-steps and learning-rate"),
        ({"extra": {"norms": np.array([1e-9] * 3)}}, "do not fit the target's update"),
        ({"extra": {"norms": np.array([1.0, np.nan, 1.0])}}, "NaN"),
        ({"extra": {"norms": np.array([1.0, -1.0, 1.0])}}, "negative"),
    ],
)
def test_where_there_is_no_estimate_the_fixed_beta_serves_and_the_round_says_so(broken, says):
    result, record, _ = run(FedDA(beta=0.25, auto=True), target(**broken), source("a"))
    entry = record["sources"]["a"]
    assert entry["beta"] == 0.25
    assert says.replace("\\", "") in entry["fallback"]
    assert record["dropped"] == []
    np.testing.assert_allclose(weights(result), [1.5, 2 + 0.75 * 0.4 + 0.25 * 0.25], rtol=1e-6)


def test_a_source_that_did_not_move_gets_no_estimate_from_fedgp():
    _, record, _ = run(FedGP(auto=True, batch_update_encoding="full"), target(), source("a", (0.0, 0.0)))
    assert record["sources"]["a"]["fallback"] == "the estimate is not defined"
    assert record["sources"]["a"]["beta"] == 0.5


@pytest.mark.parametrize("strategy", [FedGP(magnitude="cosine"), FedDA(updates="aligned")])
def test_a_reply_without_steps_and_rate_is_dropped_where_the_rule_needs_them(strategy):
    _, record, _ = run(strategy, target(), source("a", rate=0.0), source("b"))
    (dropped,) = record["dropped"]
    assert dropped["domain"] == "a"
    assert "needs num-steps and learning-rate of every client" in dropped["reason"]
    assert list(record["sources"]) == ["b"]
    assert record["held"] is None


def test_a_reply_without_batch_size_is_dropped_where_the_authors_count_steps():
    size = {"batch-size": 4}
    nodes = target(**size), source("a"), source("b", **size)
    _, record, _ = run(FedGP(magnitude="reference-code"), *nodes)
    (dropped,) = record["dropped"]
    assert dropped["domain"] == "a"
    assert "needs the batch-size of every client: report it, or choose another magnitude" in dropped["reason"]
    assert list(record["sources"]) == ["b"]


def test_fedgp_of_the_authors_code_by_hand():
    # 10 samples in batches of 4 at rate 0.1 against ⌊10/4⌋ at rate 0.5, and <T, s>/(|T| |s|) of the source.
    size = {"batch-size": 4}
    result, _, _ = run(FedGP(beta=0.5, magnitude="reference-code"), target(**size), source("a", **size))
    factor = 0.5 * 0.35 / np.sqrt(0.41 * 0.3125) * (2.5 * 0.1) / (2 * 0.5)
    np.testing.assert_allclose(weights(result), [1.25 + factor * 0.5, 2.2 + factor * 0.25], rtol=1e-6)


def test_auto_betas_of_the_authors_code():
    gradients, B = STEPS / 0.1, 3
    mean, step = gradients.mean(axis=0), np.array([0.5, -0.25]) / (2 * 0.1)
    sigma2 = ((gradients - mean) ** 2).sum() / (B * (B - 1))
    u = step / np.linalg.norm(step)
    p = gradients - (gradients @ u)[:, None] * u
    tau2_d2 = max((p**2).sum() / B - ((p - p.mean(axis=0)) ** 2).sum() / (B - 1), 0)
    delta = 1 - (1 - (gradients @ u > 0).mean()) / B
    nodes = target(**{"batch-size": 4}), source("a", (0.5, -0.25), **{"batch-size": 4})
    fedda = FedDA(auto=True, beta_formula="reference-code")
    fedgp = FedGP(auto=True, beta_formula="reference-code", batch_update_encoding="full")
    of_fedgp = sigma2 + delta * tau2_d2 + (1 - delta) * (mean**2).sum()
    for strategy, denominator in ((fedda, ((step - mean) ** 2).sum()), (fedgp, of_fedgp)):
        _, record, _ = run(strategy, *nodes)
        assert record["sources"]["a"]["beta"] == pytest.approx(sigma2 / denominator, rel=1e-4)
        assert sigma2 < denominator


@pytest.mark.parametrize("make", [FedDA, FedGP])
def test_another_formula_of_beta_is_refused(make):
    with pytest.raises(ConfigError, check=names("beta_formula", "mine")):
        make(beta_formula="mine")


@pytest.mark.parametrize("make", [FedDA, FedGP])
def test_the_authors_formula_needs_the_steps_of_the_training(make):
    with pytest.raises(ConfigError, match="choose definition, or estimate_at=training"):
        make(auto=True, beta_formula="reference-code", estimate_at="start")
    assert make(beta_formula="reference-code", estimate_at="start").auto is False


def test_a_source_without_steps_and_rate_keeps_the_fixed_beta_and_the_others_are_estimated():
    _, record, _ = run(FedDA(beta=0.25, auto=True), target(), source("a", rate=0.0), source("b"))
    assert record["sources"]["a"]["beta"] == 0.25
    assert record["sources"]["a"]["fallback"] == "no num-steps or learning-rate"
    assert record["sources"]["b"]["fallback"] is None


def test_a_dropped_reply_does_not_move_the_betas_of_the_others():
    nodes = target(), source("a", (np.nan, 0.0)), source("b", (0.0, 1.0))
    result, record, _ = run(FedDA(beta=[0.3, 1.0]), *nodes)
    assert record["sources"]["b"]["beta"] == 1.0
    np.testing.assert_allclose(weights(result), [1.0, 3.0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FedGP(batch_update_encoding="norms"), "choose sketch or full"),  # type: ignore[arg-type]
        (lambda: FedGP(sketch_size=0), "sketch_size is 0"),
        (lambda: FedDA(source_weights="size"), "choose examples or uniform"),  # type: ignore[arg-type]
        (lambda: FedDA(min_sources=0), "min_sources is 0"),
        (lambda: FedDA(max_held_rounds=0), "max_held_rounds is 0"),
        (lambda: FedDA().start(None, initial(), 0), "num_rounds is 0"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


def test_uniform_source_weights():
    nodes = target(), source("a", (1.0, 0.0), examples=99), source("b", (0.0, 1.0), examples=1)
    by_examples, _, _ = run(FedDA(beta=1.0), *nodes)
    uniform, _, _ = run(FedDA(beta=1.0, source_weights="uniform"), *nodes)
    np.testing.assert_allclose(weights(by_examples), [1.99, 2.01], rtol=1e-6)
    np.testing.assert_allclose(weights(uniform), [1.5, 2.5], rtol=1e-6)


def test_the_registry_knows_what_takes_a_beta_and_what_estimates_it():
    assert {name for name, m in METHODS.items() if m.weighted} == {
        "fedda",
        "fedgp",
        "fedda-auto",
        "fedda-joint",
        "fedgp-auto",
    }
    assert {name for name, m in METHODS.items() if getattr(m.build(), "auto", False)} == {
        "fedda-auto",
        "fedda-joint",
        "fedgp-auto",
    }
