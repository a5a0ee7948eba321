"""A threshold with a promised sensitivity, from a run to predictions, on a test set, and in Python."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cli.test_models import fda, rows_of
from naming import names
from sites import write_table

from fda_flower import ConfigError, load
from fda_flower.aggregation import Calibration
from fda_flower.aggregation.sensitivity import Promise
from fda_flower.metrics import share_interval
from fda_flower.runs.model_folder import own_test_set

WARDS = {"dataset": "table", "target": "c", "target_samples": 90, "rounds": 1, "model": "logistic"}
METHODS = [
    {"method": "ridge", "method_options": {"paths": "logistic"}},
    {"method": "ridge", "method_options": {"paths": "both"}},
    {"method": "mixture", "method_options": {"student": True}, "rounds": 2},
]


def with_patients(path, seed):
    """A table of 60 patients with four rows each."""
    write_table(path, seed, 240)
    header, *rows = path.read_text().splitlines()
    named = [f"{row},p{seed}-{i // 4}" for i, row in enumerate(rows)]
    path.write_text("\n".join([f"{header},patient", *named]))


@pytest.fixture(scope="module", params=METHODS, ids=["logistic", "squared", "student"])
def ward_run(request, run_in):
    options = {"domains": "a,b,c"}
    settings = WARDS | {"dataset_options": options} | request.param
    return run_in(lambda path, i: write_table(path.with_suffix(".csv"), i, 150), **settings)


@pytest.fixture(scope="module")
def patients_of_wards(run_in):
    options = {"domains": "a,b,c", "group": "patient"}
    settings = WARDS | {"dataset_options": options, "method": "ridge", "target_samples": "all"}
    return run_in(lambda path, i: with_patients(path.with_suffix(".csv"), i), **settings)


def as_json(*arguments):
    (line,) = (each for each in fda(*arguments, "--json").splitlines() if each.startswith("{"))
    return json.loads(line)


def test_a_run_flags_new_samples_with_the_promise_on_the_first_line(ward_run):
    csv, asked = ward_run.parent / "c.csv", ("--sensitivity", "0.9", "--positive", "1")
    first, *_ = fda("predict", ward_run, "--csv", csv, *asked).splitlines()
    model: Any = load(ward_run)
    positives = 1 - model.calibration.scores[model.calibration.classes == 1, 0]
    others = model.calibration.scores[model.calibration.classes == 0, 0]
    threshold = np.sort(positives)[Promise(0.9).rank(len(positives)) - 1]
    passed = int((others < threshold).sum())
    low, high = share_interval(passed / len(others), len(others)) or (0, 0)
    assert first == (
        f"Flagged: p(1) >= {threshold:.3g}. Sensitivity at least 90% with confidence 90%, from "
        f"{len(positives)} patients of class 1, each left out; specificity about "
        f"{100 * passed / len(others):.0f}% ({100 * low:.0f} to {100 * high:.0f}%), from {len(others)} others"
    )
    rows = rows_of()
    assert list(rows[0]) == ["line", "prediction", "flag", "p(0)", "p(1)"]
    assert [row["flag"] for row in rows] == [str(int(float(row["p(1)"]) >= threshold)) for row in rows]
    assert 0 < sum(row["flag"] == "1" for row in rows) < len(rows)
    result = as_json("predict", ward_run, *asked)
    expected = {"asked": 0.9, "confidence": 0.9, "positives": len(positives), "low": low, "high": high}
    assert {name: result[name] for name in expected} == expected
    assert (result["threshold"], result["specificity"]) == (threshold, passed / len(others))


def test_on_a_test_set_it_says_what_was_reached_and_the_net_benefit(ward_run):
    asked = ("--sensitivity", "0.8", "--confidence", "average", "--positive", "0", "--net-benefit", "0.2")
    found, model = as_json("evaluate", ward_run, *asked), load(ward_run)
    samples = own_test_set(model, ward_run).samples
    flags, ill = model.predict_flag(samples, 0.8, "0", "average"), samples.y == 0
    reached = found["flags"]["reached"]
    assert reached["sensitivity"]["value"] == flags[ill].mean()
    assert reached["specificity"]["value"] == (~flags[~ill]).mean()
    low, high = share_interval(flags[ill].mean(), int(ill.sum())) or (0, 0)
    assert (reached["sensitivity"]["low"], reached["sensitivity"]["high"]) == (low, high)
    treated = model.predict_proba(samples)[:, 0] >= 0.2
    worth = (treated & ill).mean() - (treated & ~ill).mean() / 4
    assert found["net-benefit"]["model"] == pytest.approx(worth)
    assert found["net-benefit"]["all"] == pytest.approx(ill.mean() - (~ill).mean() / 4)
    said = fda("evaluate", ward_run, *asked)
    assert "at least 80% on average" in said
    assert f"Reached: sensitivity {flags[ill].mean():.1%} (95% interval" in said
    assert f"Net benefit at 20%: {worth:.4f} for the model" in said


def test_patients_with_several_rows_count_once_and_an_earlier_version_lacks_them(patients_of_wards):
    model: Any = load(patients_of_wards)
    flags = model.flags(0.8, "1")
    assert flags.rule.positives == model.calibration.units_of(1) < (model.calibration.classes == 1).sum()
    found = as_json("evaluate", patients_of_wards, "--sensitivity", "0.8", "--positive", "1")["flags"]
    assert found["reached"]["sensitivity"]["positives"] <= 12, "of 48 test rows"
    model.calibration = replace(model.calibration, ends=np.zeros((0, 2), bool))
    with pytest.raises(ConfigError, check=names("sensitivity", 0.8, remedy="run again")):
        model.flags(0.8, "1")


@pytest.fixture
def ward(ward_run):
    return load(ward_run)


def rare(cases, others=100):
    p = np.linspace(0.01, 0.99, cases + others)
    return Calibration.of(np.stack([1 - p, p], axis=1), np.repeat([0, 1], [others, cases]))


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ((0.9,), names("sensitivity", 0.9, remedy="it needs 22; 12 can promise at most 82%")),
        (
            (0.95, "1", "average"),
            names("sensitivity", 0.95, remedy="it needs 19; 12 can promise at most 92%"),
        ),
        ((1.0,), names("sensitivity", 1.0)),
        ((0.0,), names("sensitivity", 0.0)),
        ((0.5, None, 1), names("confidence", 1, remedy="average")),
        ((0.5, None, "sure"), names("confidence", "sure", remedy="average")),
        ((0.5, "ill"), names("positive class", "ill", remedy="0, 1")),
    ],
)
def test_what_cannot_be_promised_is_refused_in_words(ward, asked, refused):
    ward.calibration = rare(12)
    assert ward.flags(0.8).name == "1", "the rarer class"
    with pytest.raises(ConfigError, check=refused):
        ward.flags(*asked)


@pytest.mark.parametrize(
    ("about", "cases", "refused"),
    [
        ({"classes": 4}, 50, names("classes", 4, remedy="use --coverage for sets")),
        ({"task": "regression"}, 50, names("task", "regression")),
        ({}, None, names("positive", remedy="--positive, 0 or 1")),
        ({}, 100, names("positive", remedy="--positive, 0 or 1")),
    ],
)
def test_models_without_a_threshold_or_a_rarer_class_say_so(ward, about, cases, refused):
    ward.about = replace(ward.about, **about)
    ward.calibration = None if cases is None else rare(cases)
    with pytest.raises(ConfigError, check=refused):
        ward.flags(0.9)


def test_a_model_without_scores_of_held_out_labels_has_no_threshold(table_run):
    said = fda("predict", table_run, "--sensitivity", "0.9", "--positive", "1")
    assert "no scores of held-out labels" in said
    assert "net-benefit is 1.0" in fda("evaluate", table_run, "--net-benefit", "1")
    assert "Net benefit at 10%" in fda("evaluate", table_run, "--net-benefit", "0.1", "--positive", "1")
    for option in (("--positive", "1"), ("--confidence", "0.8")):
        assert "nothing is flagged" in fda("predict", table_run, *option)
