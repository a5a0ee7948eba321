"""Runs on tables of patients who are followed, and what their models predict."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fda_flower import load, run
from fda_flower.aggregation import Outcomes
from fda_flower.aggregation.survival import risk_of
from fda_flower.cli.app import app
from fda_flower.errors import ConfigError, FdaError
from fda_flower.prediction.new_samples import from_csv, write_predictions
from fda_flower.reporting import sites_note, sites_table
from fda_flower.reporting.summary import summarise
from fda_flower.reporting.survival import plot_survival
from fda_flower.reporting.words import judge

OPTIONS = {"task": "survival", "label": "months", "event": "died", "horizons": "5,10,20"}
SITES = {"east": 120, "north": 200, "south": 150, "west": 150}


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Four sites, whose patients die sooner with age, each with another hazard."""
    folder = tmp_path_factory.mktemp("followed")
    for seed, (name, n) in enumerate(SITES.items()):
        rng = np.random.default_rng(seed)
        age, other = rng.normal(60, 10, n).round(), rng.normal(size=n).round(2)
        time, lost = rng.exponential(20 * np.exp((60 - age) / 15 - seed / 4)), rng.uniform(5, 60, n)
        months = np.maximum(np.minimum(time, lost), 0.1).round(1)
        rows = [*zip(age, other, months, (time <= lost).astype(int), strict=True)]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("age", "other", "months", "died"), *rows])
    return str(folder)


@pytest.fixture(scope="session")
def run_of(tables, tmp_path_factory):
    """Run on the tables; return the result and its folder."""

    def made(**settings):
        folder = tmp_path_factory.mktemp("run")
        options = {**OPTIONS, **settings.pop("dataset_options", {})}
        known = {"dataset": "table", "data_dir": tables, "target": "east", "target_samples": 40}
        if settings.get("target") == "all":
            del known["target_samples"]
        return run(**{**known, "dataset_options": options, **settings}, output=folder), folder

    return made


@pytest.fixture(scope="session")
def ridge(run_of):
    return run_of(method="ridge")


def test_ridge_averages_heads_near_the_sources(ridge):
    """Its record has the events, the horizons, and the weights of the heads."""
    record = ridge[0].history[0]
    entry = record["ridge"]
    assert 0.55 < record["c-index"] < 0.9
    assert record["intervals"]["c-index"][0] < record["c-index"] < record["intervals"]["c-index"][1]
    assert entry["horizons"] == [5.0, 10.0, 20.0]
    assert 20 < entry["events"] < 40
    assert {name.split("-")[0] for name in entry["weights"]} == {"pooled", "sources"}
    assert sum(entry["weights"].values()) == pytest.approx(1)
    assert 0.5 < entry["held-out-sources"] < 0.9


def test_masked_sums_give_the_same_model(ridge, run_of):
    """To fixed point and float32; nothing else of a source is sent."""
    masked, _ = run_of(method="ridge", method_options={"secure": True})
    for name, layer in ridge[0].model.items():
        np.testing.assert_allclose(masked.model[name], layer, atol=1e-4)


def test_each_site_is_a_target(run_of):
    """With its C alone and with the others, and the interval of the difference."""
    result, _ = run_of(method="ridge", target="all")
    sites = result.history[0]["sites"]
    assert {*sites} == {*SITES}
    for site in sites.values():
        assert site["interval"][0] <= site["gain"] <= site["interval"][1]
        assert 0.4 < site["with-others"] < 0.95
    assert sites_table(result.history).header[-1] == "95% interval", "no head has a share of the others'"
    assert sites_note(result.history) == ""


@pytest.mark.parametrize("method", ["fedavg", "fedgp", "mixture"])
def test_other_methods_train_on_pseudo_values(run_of, method):
    """With an output for each horizon; no share of labels is promised."""
    result, folder = run_of(method=method, rounds=2)
    assert 0.3 < result.history[-1]["c-index"] < 0.95
    assert "sets" not in result.history[-1]
    assert load(folder).calibration is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method_options": {"paths": "shrunk"}}, "all heads stay near the sources"),
        ({"method_options": {"paths": "logistic"}}, "all heads stay near the sources"),
        ({"model": "hinges+fourier"}, "heads are on the features of one network"),
        ({"metric": "accuracy"}, "unknown metric 'accuracy' for survival: choose one of c-index"),
        ({"class_weights": "balanced", "method": "fedavg"}, "survival, which has no classes"),
        ({"method": "kd3a"}, "needs classes"),
        (
            {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0, "dp_open_target": True},
            "each label of a survival follows from all patients",
        ),
        ({"method_options": {"unlabelled": True}}, "unlabelled is 'true', but the task is survival"),
        (
            {"target_samples": 2, "dataset_options": {"horizons": "0.1"}},
            "too few to leave one out: .*--method-option paths=sources",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(run_of, settings, words):
    with pytest.raises(FdaError, match=words):
        run_of(**{"method": "ridge", **settings})


def test_a_target_without_events_can_use_the_sources(run_of, tables, tmp_path):
    """Nobody dies there."""
    for name in SITES:
        rows = [*csv.reader(Path(f"{tables}/{name}.csv").read_text().splitlines())]
        changed = [[*row[:3], "0"] if name == "east" and row[3] == "1" else row for row in rows]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(changed)
    settings = {"method": "ridge", "data_dir": str(tmp_path)}
    with pytest.raises(FdaError, match="'east' has fewer than 2 events to train on, too few"):
        run_of(**settings)
    result, _ = run_of(**settings, method_options={"paths": "sources"})
    assert result.history[0]["ridge"]["events"] == 0
    summary = summarise(result.history, "c-index")
    assert summary["last5"] is None
    why = "no two of the test samples can be compared, 0 with the event"
    assert judge(summary)[0] == f"C-index is unknown, as {why}"


@pytest.mark.usefixtures("by_the_rule")
def test_check_counts_events_and_names_the_horizons(tables, tmp_path):
    """A target with a single event for training is refused as a run does."""
    for name in SITES:
        rows = [*csv.reader(Path(f"{tables}/{name}.csv").read_text().splitlines())]
        changed = [[*row[:3], str(int(i == 1))] if name == "east" else row for i, row in enumerate(rows)]
        lines = [rows[0], *changed[1:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(map(",".join, lines)))
    given = [f"--dataset-option={name}={value}" for name, value in OPTIONS.items()]
    command = ["data", "check", str(tmp_path), *given]
    called = CliRunner().invoke(app, [*command, "--target", "north", "--json"])
    assert called.exit_code == 0, called.output
    result = json.loads(called.stdout)
    events = {name: each["train-events"] + each["test-events"] for name, each in result["domains"].items()}
    assert (events["east"], result["horizons"]) == (1, [5.0, 10.0, 20.0])
    called = CliRunner().invoke(app, [*command, "--target", "east"])
    assert called.exit_code == 1, called.output
    said = " ".join(called.output.split())
    assert "--method-option paths=sources" in said
    assert "Survival is predicted at 5, 10, 20 (horizons)" in said
    assert "table of domain 'east': no event among the t" in said


def test_predictions_are_curves_that_never_rise(ridge, tables, tmp_path):
    """In the file a column for each horizon, and the risk."""
    path, model = tmp_path / "predictions.csv", load(ridge[1])
    write_predictions(model, from_csv(model, Path(f"{tables}/west.csv")), path)
    rows = [*csv.DictReader(path.read_text().splitlines())]
    assert [*rows[0]] == ["line", "survival(5)", "survival(10)", "survival(20)", "risk"]
    shares = np.array([[float(row[name]) for name in [*rows[0]][1:]] for row in rows])
    assert (np.diff(shares[:, :3], axis=1) <= 0).all()
    np.testing.assert_allclose(shares[:, 3], 1 - shares[:, :3].mean(axis=1), atol=1e-5)
    ages = np.array([[60.0, 0.0], [80.0, 0.0]])
    assert model.horizons == (5.0, 10.0, 20.0)
    assert risk_of(model.predict(ages))[0] < risk_of(model.predict(ages))[1]
    for call in (model.predict_set, model.predict_interval):
        with pytest.raises(ConfigError, match="so no share of labels can be promised"):
            call(ages)
    with pytest.raises(ConfigError, match="call predict"):
        model.predict_proba(ages)


def test_an_evaluation_takes_times_and_events_from_a_table(ridge, tables, tmp_path):
    """It compares with chance and with the curve of all, and draws groups of risk."""
    path, table = tmp_path / "curves.png", f"{tables}/west.csv"
    called = CliRunner().invoke(
        app, ["evaluate", str(ridge[1]), "--csv", table, "--json", "--curves", str(path)]
    )
    assert called.exit_code == 0, called.output
    result = json.loads(called.stdout)
    assert (result["metric"], result["samples"], result["baseline"]["c-index"]) == ("c-index", 150, 0.5)
    assert 0 < result["figures"]["brier"] < 0.25
    assert result["intervals"].keys() == {"c-index", "harrell"}
    assert path.exists()


def test_a_run_has_the_events_and_the_curve_of_its_test_set_as_an_evaluation_has(ridge):
    summary = summarise(ridge[0].history, "c-index")
    result = json.loads(CliRunner().invoke(app, ["evaluate", str(ridge[1]), "--json"]).stdout)
    assert 0 < summary["events"] == result["events"] < summary["test-samples"]
    assert summary["baseline"] == pytest.approx(result["baseline"])
    said = CliRunner().invoke(app, ["evaluate", str(ridge[1])]).stdout
    assert f"{summary['events']} of {summary['test-samples']} with the event" in said
    assert f"the same shares for all: {summary['baseline']['brier']:.3f}" in said


def test_the_picture_has_numbers_at_risk_and_leaves_small_groups_out():
    """Of 12 patients each group has 4."""
    rng = np.random.default_rng(0)
    outcomes = Outcomes(rng.exponential(10, 60), rng.random(60) < 0.7, (5.0, 10.0))
    outputs = rng.normal(size=(60, 2))
    left = plot_survival(outputs, outcomes).axes[0]
    first = left.get_xticklabels()[0].get_text()
    assert first.split("\n") == ["0", "20", "20", "20"]
    assert len(left.lines) == 3
    few = plot_survival(outputs[:12], outcomes.take(np.arange(12)))
    assert not few.axes[0].lines
