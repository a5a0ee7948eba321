"""FedDA, FedGP and FedDA_Joint: β fixed, one for each source, or estimated, and its fallbacks."""

from typing import Any

import numpy as np
import pytest
from handmade import HandMade, bits, initial, moves, steps_extra, weights
from naming import names

from fda_flower.aggregation import joint_weights
from fda_flower.errors import ConfigError
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import FedDA, FedDAJoint, FedGP, RunFolder
from fda_flower.strategies.adaptive import is_stuck

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])
GRADIENTS = STEPS / 0.1
MEAN = GRADIENTS.mean(axis=0)
SIGMA2 = ((GRADIENTS - MEAN) ** 2).sum() / (3 * 2)
SIZE = {"batch-size": 4}


def target(**kwargs):
    settings = {"steps": 3, "rate": 0.1, "extra": steps_extra(STEPS), **kwargs}
    return ("target", "t", moves(STEPS.sum(axis=0), "target", "t", **settings))


def source(domain, delta=(0.5, 0.25), **kwargs):
    return ("source", domain, moves(delta, "source", domain, **kwargs))


def run(strategy, *nodes, rounds=1):
    app = HandMade(nodes)
    return strategy.start(app.grid(), initial(), rounds), strategy.history[0], app


def entries(record, field):
    return [entry[field] for entry in record["sources"].values()]


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


def test_fedgp_drops_a_source_that_disagrees_or_does_not_move():
    result, record, _ = run(FedGP(beta=1.0), target(), source("a", (-1.0, -1.0)), source("b", (0.0, 0.0)))
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])
    assert entries(record, "kept") == [0.0, 0.0]


@pytest.mark.parametrize(
    ("strategy", "lacking", "more"),
    [
        (FedGP(magnitude="cosine"), {"rate": 0.0}, {}),
        (FedDA(updates="aligned"), {"rate": 0.0}, {}),
        (FedGP(magnitude="reference-code"), {"batch-size": 0}, SIZE),
    ],
)
def test_a_reply_without_what_the_rule_needs_is_dropped(strategy, lacking, more):
    _, record, _ = run(strategy, target(**more), source("a", **{**more, **lacking}), source("b", **more))
    assert [drop["domain"] for drop in record["dropped"]] == ["a"]
    assert list(record["sources"]) == ["b"]
    assert record["held"] is None


def test_beta_for_each_source_by_order_and_by_name():
    nodes = target(), source("b", (1.0, 0.0)), source("a", (0.0, 1.0))
    by_order, record, _ = run(FedDA(beta=[0.0, 1.0]), *nodes)
    by_name, _, _ = run(FedDA(beta={"a": 0.0, "b": 1.0}), *nodes)
    np.testing.assert_array_equal(weights(by_order), weights(by_name))
    assert entries(record, "beta") == [0.0, 1.0]
    np.testing.assert_allclose(weights(by_order), [1 + 0.25 + 0.5, 2 + 0.2], rtol=1e-6)


def test_beta_by_name_takes_partition_ids_and_names_no_unknown_source():
    numbered: Any = {np.int64(1): 0.5}
    assert FedDA(beta=numbered).beta == {"1": 0.5}
    app = HandMade([target(), source("a")])
    with pytest.raises(ConfigError, match="a", check=names("source of beta", "A")):
        FedDA(beta={"a": 0.5, "A": 0.2}).start(app.grid(), initial(), 1)
    assert app.configs == []


def test_a_dropped_reply_does_not_move_the_betas_of_the_others():
    nodes = target(), source("a", (np.nan, 0.0)), source("b", (0.0, 1.0))
    result, record, _ = run(FedDA(beta=[0.3, 1.0]), *nodes)
    assert entries(record, "beta") == [1.0]
    np.testing.assert_allclose(weights(result), [1.0, 3.0])


@pytest.mark.parametrize(
    ("beta", "shown"), [((0.1, 0.2), r"2 .*1 .*\(a\)"), ({"b": 0.5}, "'a'")], ids=["in order", "by name"]
)
def test_beta_of_the_wrong_length_fails_before_training(beta, shown):
    app = HandMade([target(), source("a")])
    with pytest.raises(ConfigError, match=shown, check=names("beta", beta)):
        FedDA(beta=beta).start(app.grid(), initial(), 1)
    assert app.configs == []


def test_uniform_source_weights():
    nodes = target(), source("a", (1.0, 0.0), examples=99), source("b", (0.0, 1.0), examples=1)
    by_examples, _, _ = run(FedDA(beta=1.0), *nodes)
    uniform, _, _ = run(FedDA(beta=1.0, source_weights="uniform"), *nodes)
    np.testing.assert_allclose(weights(by_examples), [1.99, 2.01], rtol=1e-6)
    np.testing.assert_allclose(weights(uniform), [1.5, 2.5], rtol=1e-6)


def test_the_registry_knows_what_takes_a_beta_and_what_estimates_it():
    estimating = {"fedda-auto", "fedda-joint", "fedgp-auto"}
    assert {name for name, m in METHODS.items() if m.takes("beta")} == {"fedda", "fedgp"} | estimating
    assert {name for name, m in METHODS.items() if getattr(m.build(), "auto", False)} == estimating


# Estimates from batch updates

MOVE = np.array([0.5, -0.25])
ALONG = GRADIENTS @ MOVE / np.linalg.norm(MOVE)
LEFT = GRADIENTS - np.outer(ALONG, MOVE / np.linalg.norm(MOVE))
TAU2_D2 = (LEFT**2).sum() / 3 - ((LEFT - LEFT.mean(axis=0)) ** 2).sum() / 2
DELTA = (ALONG > 0).mean()
CODES_DELTA = 1 - (1 - DELTA) / 3
FULL: dict[str, Any] = {"auto": True, "batch_update_encoding": "full"}


@pytest.mark.parametrize(
    ("strategy", "denominator"),
    [
        (FedDA(auto=True), ((MOVE / (2 * 0.5) - MEAN) ** 2).sum()),
        (FedDA(auto=True, beta_formula="reference-code"), ((MOVE / (2 * 0.1) - MEAN) ** 2).sum()),
        (FedGP(**FULL), SIGMA2 + TAU2_D2),
        (
            FedGP(beta_formula="filter-aware", **FULL),
            SIGMA2 + DELTA * TAU2_D2 + (1 - DELTA) * ((MEAN**2).sum() - SIGMA2),
        ),
        (
            FedGP(beta_formula="reference-code", **FULL),
            SIGMA2 + CODES_DELTA * max(TAU2_D2, 0) + (1 - CODES_DELTA) * (MEAN**2).sum(),
        ),
    ],
)
def test_beta_by_the_formula(strategy, denominator):
    _, record, _ = run(strategy, target(**SIZE), source("a", MOVE, **SIZE))
    entry = record["sources"]["a"]
    assert (entry["sigma2"], entry["fallback"]) == (pytest.approx(SIGMA2, rel=1e-5), None)
    assert entry["beta"] == pytest.approx(np.clip(SIGMA2 / denominator, 0, 1), rel=1e-4)
    if isinstance(strategy, FedGP):
        assert (entry["tau2-d2"], entry["delta"]) == pytest.approx((TAU2_D2, DELTA), rel=1e-4)


def test_the_record_has_the_delta_errors_and_how_many_labels_a_source_is_worth():
    _, record, _ = run(FedDA(auto=True), target(), source("a", MOVE))
    d2 = ((MOVE / (2 * 0.5) - MEAN) ** 2).sum() - SIGMA2
    gradient2, error = (MEAN**2).sum() - SIGMA2, SIGMA2 * d2 / (SIGMA2 + d2)
    errors = record["delta-errors"]
    known = {name: errors[name] for name in ("source-only", "target-only", "fedda", "gradient")}
    expected = {"source-only": d2, "target-only": SIGMA2, "fedda": error, "gradient": gradient2}
    assert known == pytest.approx(expected, rel=1e-4)
    assert errors["helps"] == (error < gradient2)
    # They need more than norms.
    assert errors["fedgp"] is record["sources"]["a"]["tau2-d2"] is None
    worth = record["target"]["examples"] * SIGMA2 / d2
    assert record["sources"]["a"]["labels-worth"] == pytest.approx(worth, rel=1e-4)


@pytest.mark.parametrize("patients", [2, 10])
def test_labels_of_few_patients_have_no_delta_errors(patients):
    app = HandMade([target(), source("a", MOVE)], info={"t": {"examples": 10, "groups": patients}})
    strategy = FedDA(auto=True)
    strategy.start(app.grid(), initial(), 1)
    record = strategy.history[0]
    alone = patients == 10
    assert record["sources"]["a"]["sigma2"] == pytest.approx(SIGMA2, rel=1e-5), "for the weight"
    assert ("delta-errors" in record) == ("labels-worth" in record["sources"]["a"]) == alone


@pytest.mark.parametrize("make", [FedDA, FedGP])
def test_the_authors_formula_needs_the_steps_of_the_training(make):
    with pytest.raises(
        ConfigError, check=names("beta_formula", "reference-code", remedy="estimate_at=training")
    ):
        make(auto=True, beta_formula="reference-code", estimate_at="start")
    assert make(beta_formula="reference-code", estimate_at="start").auto is False


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"extra": None}, "no ArrayRecord 'batch-updates'"),
        ({"steps": 4}, "expected floats of shape [4]"),
        ({"steps": 1, "extra": steps_extra(STEPS[:1])}, "at least 2 local steps"),
        ({"rate": 0.0}, "need num-steps and learning-rate"),
        ({"extra": {"norms": np.array([1e-9] * 3)}}, "do not fit the target's update"),
    ],
)
def test_where_there_is_no_estimate_the_fixed_beta_serves_and_the_round_says_so(broken, says, flower_log):
    result, record, _ = run(FedDA(beta=0.25, auto=True), target(**broken), source("a"))
    entry = record["sources"]["a"]
    assert entry["beta"] == 0.25
    assert says in entry["fallback"]
    assert says in flower_log.text
    assert record["dropped"] == []
    np.testing.assert_allclose(weights(result), [1.5, 2 + 0.75 * 0.4 + 0.25 * 0.25], rtol=1e-6)


def test_sources_with_one_reason_share_a_warning_that_is_not_repeated(flower_log):
    slow = {"rate": 0.0}
    run(FedDA(auto=True), target(), source("a", **slow), source("b"), source("c", **slow), rounds=3)
    said = "β is fixed for each of 2 nodes (a, c): no num-steps or learning-rate"
    assert [line for line in flower_log.messages if "β" in line] == [f"Round 1: {said}"]


# Joint weights

MOVES = {"a": (0.5, 0.25), "b": (0.1, -0.7)}


def pair(**changed):
    return [source(name, MOVES[name], **changed.get(name, {})) for name in "ab"]


def test_a_joint_round_by_the_definition():
    errors = np.array([np.array(MOVES[name]) / (2 * 0.5) - MEAN for name in "ab"])
    expected = joint_weights(errors @ errors.T - SIGMA2, SIGMA2)
    result, record, _ = run(FedDAJoint(), target(), *pair())
    assert entries(record, "weight") == pytest.approx(expected.tolist(), rel=1e-5)
    assert 0 < sum(expected) < 1
    assert entries(record, "sigma2") == pytest.approx([SIGMA2] * 2, rel=1e-5)
    assert entries(record, "fallback") == [None, None]
    assert not any("beta" in entry for entry in record["sources"].values())
    step = (1 - expected.sum()) * STEPS.sum(axis=0) + expected @ np.array([MOVES["a"], MOVES["b"]])
    np.testing.assert_allclose(weights(result), np.array([1, 2]) + step, rtol=1e-6)


@pytest.mark.parametrize(
    "broken", [{"extra": None}, {"rate": 0.0}, {"steps": 1, "extra": steps_extra(STEPS[:1])}]
)
def test_without_an_estimate_joint_is_fedda_with_the_fixed_beta_and_says_so(broken):
    nodes, beta = [target(**broken), *pair(a={"examples": 30})], {"a": 0.4, "b": 0.8}
    found, record, _ = run(FedDAJoint(beta=beta), *nodes)
    expected, plain, _ = run(FedDA(beta=beta), *nodes)
    assert bits(found.arrays) == bits(expected.arrays)
    assert entries(record, "weight") == pytest.approx([0.75 * 0.4, 0.25 * 0.8])
    assert all(entries(record, "fallback"))
    assert "fallback" not in plain["sources"]["a"]


def test_a_joint_source_without_steps_keeps_its_share_and_the_others_have_the_rest():
    _, record, _ = run(FedDAJoint(beta=0.4), target(), *pair(b={"steps": 0}))
    _, alone, _ = run(FedDAJoint(), target(), source("a"))
    rest = (1 - 0.2) * alone["sources"]["a"]["weight"]
    assert entries(record, "weight") == pytest.approx([rest, 0.5 * 0.4])
    assert entries(record, "fallback") == [None, "no num-steps or learning-rate"]


# The warning where FedGP cannot move

FAST, SLOW = 1.0, 0.019


def warnings(log):
    return [each for each in log.records if "never longer than the target's" in each.getMessage()]


def rounds_of(own, *norms):
    """The rounds in which it warns, by the norms of the target in each, and those of the sources."""
    found, records = [], []
    sources = {str(i): {} if norm is None else {"norm": norm} for i, norm in enumerate(norms)}
    for number, norm in enumerate(own, 1):
        records.append({"target": None if norm is None else {"norm": norm}, "sources": sources})
        found += [number] * is_stuck([{"warmup": True}, *records])
    return found


@pytest.mark.parametrize(
    ("own", "sources", "expected"),
    [
        ([SLOW] * 6, [1.0, 1.0], [3]),
        ([SLOW, SLOW, FAST, SLOW, SLOW], [1.0, 1.0], []),
        ([FAST, SLOW, SLOW, SLOW, FAST, SLOW, SLOW, SLOW], [1.0, 1.0], [4]),
        ([SLOW, SLOW, None, SLOW, SLOW], [1.0, 1.0], []),
        ([0.051] * 5, [1.0, 1.0], []),
        ([0.049] * 3, [1.0, 1.0], [3]),
        ([0.1] * 4, [1.0, 1.0, 50.0], []),
        ([0.1] * 4, [1.0, 3.0, 50.0], [3]),
        ([SLOW] * 4, [], []),
        ([SLOW] * 4, [None], []),
    ],
)
def test_it_warns_once_in_the_third_slow_round_in_a_row(own, sources, expected):
    assert rounds_of(own, *sources) == expected


def test_a_run_warns_once_also_if_it_is_resumed_and_only_where_the_step_cannot_be_longer(
    flower_log, tmp_path
):
    slow = ("target", "t", moves([0.01, 0.01], "target", "t"))
    nodes = source("a", (1.0, 0.5)), source("b", (1.0, 0.0)), slow
    for rounds, expected in ((2, 0), (4, 1), (6, 0)):
        flower_log.clear()
        run(FedGP(output=RunFolder(tmp_path, resume=rounds > 2)), *nodes, rounds=rounds)
        assert len(warnings(flower_log)) == expected
    for strategy in (FedGP(magnitude="cosine"), FedDA()):
        run(strategy, *nodes, rounds=4)
    assert warnings(flower_log) == []


# Claims that nobody has asked for, in a project whose schedules the server does not know


@pytest.mark.parametrize("lie", [{"rate": 1e4}, {"steps": 10_000}], ids=str)
@pytest.mark.parametrize("make", [lambda: FedDA(auto=True), FedDAJoint, lambda: FedDA(updates="aligned")])
def test_a_source_whose_rate_or_steps_are_out_of_line_is_dropped(make, lie):
    honest = [source("a"), source("b", steps=5)]
    _, record, _ = run(make(), target(**{"batch-size": 8}), *honest, source("c", (-5.0, -2.5), **lie))
    assert [(each["domain"], "median" in each["reason"]) for each in record["dropped"]] == [("c", True)]
    assert list(record["sources"]) == ["a", "b"]


def test_sites_of_other_sizes_are_in_line_and_with_a_fixed_beta_any_rate_is():
    many, few = source("a", examples=1000, steps=100), source("b", examples=4, steps=1)
    _, record, _ = run(FedDA(auto=True), target(), many, few, source("c", examples=20, steps=2))
    assert record["dropped"] == []
    _, record, _ = run(FedDA(beta=0.5), target(), source("a"), source("b"), source("c", rate=1e4))
    assert record["dropped"] == []


def test_with_too_few_sources_in_line_the_round_is_held():
    _, record, _ = run(FedDA(auto=True, min_sources=2), target(), source("a"), source("b", rate=1e4))
    assert "1 usable replies of sources" in record["held"]
