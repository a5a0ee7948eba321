"""Comparisons: their experiment, and what they have besides it; `test_experiment` runs it."""

import shutil
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from naming import names
from whole_runs import untimed

from fda_flower import ConfigError, RunConfig, compare
from fda_flower.experiments import load_results, read_experiment
from fda_flower.experiments.comparison import _experiment
from fda_flower.records.folder import RunFolder
from fda_flower.reporting.experiment_tables import numbers
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.methods import CENTRAL, OF_FLOWER, find_method, method_names
from fda_flower.runs.methods import METHODS as TABLE

METHODS = ["fedavg", "fedgp"]
SEEDS = [0, 1]
CELLS = ["FedAvg-seed0", "FedAvg-seed1", "FedGP-seed0", "FedGP-seed1"]


@pytest.fixture(scope="module")
def config(small):
    return {**small, "rounds": 2, "beta": 0.3}


@pytest.fixture(scope="module")
def done(config, tmp_path_factory):
    """A comparison in processes of its own; tests that change it take a copy."""
    return compare(METHODS, SEEDS, tmp_path_factory.mktemp("compare") / "runs", jobs=2, **config)


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done.path, tmp_path / "copy")


@pytest.fixture
def no_run(monkeypatch, in_process):
    monkeypatch.setattr(in_process, "run_all", Mock(side_effect=AssertionError("cells are run")))


def rounds_of(run):
    return untimed(RunFolder(run).read_rounds())


def histories(results):
    """The records of each run by place and seed."""
    return {(place, run.seed): run.history for place in results.places for run in results.at(place)}


def counts(results):
    return {row: [len(run.history) for run in results.at(("", row, ""))] for row in results.rows}


def test_a_comparison_is_an_experiment_with_a_row_for_each_method(done):
    assert done.failures == done.left_out == {}
    assert (done.results.rows, done.results.columns, done.results.cuts) == (["FedAvg", "FedGP"], [""], [])
    assert histories(load_results(done.path)) == histories(done.results)
    files = {".lock", "experiment.json", "experiment.toml", "report", "report.md", "runs"}
    assert {path.name for path in done.path.iterdir()} == files
    assert {path.name for path in (done.path / "runs").iterdir()} == {*CELLS}
    text = (done.path / "report" / "comparison.csv").read_text("utf-8")
    assert text == numbers(done.results).csv()
    assert "| Method | last5 (%) | best (%) | seeds | rounds |" in (done.path / "report.md").read_text(
        "utf-8"
    )
    betas = {
        row.label: row.settings.get("beta") for row in read_experiment(done.path / "experiment.toml").rows
    }
    assert betas == {"FedAvg": None, "FedGP": 0.3}


def test_a_cell_in_a_process_of_its_own_is_the_same_run_as_here(done, small, tmp_path):
    config = RunConfig(**small, method="fedgp", beta=0.3, seed=1, rounds=2)
    run_config(config, Execution(outcomes=True, output=tmp_path))
    cell = done.path / "runs" / "FedGP-seed1"
    assert (cell / "checkpoint").read_bytes() == (tmp_path / "checkpoint").read_bytes()
    assert (cell / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    assert rounds_of(cell) == rounds_of(tmp_path)


def test_the_file_of_a_comparison_has_the_runs_of_its_methods(tmp_path):
    """A method with a network and rounds of its own, options of several methods, and values of each kind."""
    own: dict[str, dict[str, Any]] = {
        "fedprox": {"method_options": {"mu": 0.25}},
        "fedda": {"beta": 0.25},
        "ridge": {},
    }
    settings: dict[str, Any] = {
        "epochs": "2",
        "target_samples": None,
        "only_sources": ("source-2", "source-1"),
        "threads": 2,
    }
    settings |= {"shift": "noise", "shift_options": "std=0.25", "rounds": 7, "evaluate_every": None}
    asked = {**settings, "beta": 0.25, "method_options": {"mu": 0.25}, "device": "cpu"}
    (tmp_path / "made.toml").write_text(_experiment(tmp_path / "c", [*own], [0, 3], asked).text)
    experiment = read_experiment(tmp_path / "made.toml")
    assert (experiment.title, experiment.seeds) == ("c", (0, 3))
    for method, more in own.items():
        config = experiment.config(("", find_method(method).title, ""), 3, {"device": "cpu"})
        assert config == RunConfig(**settings, **more, method=method, seed=3, device="cpu")


def test_resume_may_add_methods_seeds_and_rounds(done, small, copy, in_process):
    config = {**small, "rounds": 3, "beta": 0.3}
    resumed = compare(["target-only", "fedgp"], [0, 1, 2], copy, resume=True, **config)
    assert counts(resumed.results) == {"FedAvg": [2, 2], "FedGP": [3] * 3, "Target Only": [3] * 3}
    assert resumed.results.cuts == ["2 rounds instead of 3", "8 of 9 runs over 3 seeds"]
    *before, last = rounds_of(done.path / "runs" / "FedGP-seed0")
    del last["confusion"]  # only that of a run's last round counts
    assert rounds_of(copy / "runs" / "FedGP-seed0")[:2] == [*before, last]


def test_a_comparison_of_an_earlier_version_is_read_and_goes_on(
    done, config, tmp_path, in_process, monkeypatch
):
    old = tmp_path / "old"
    for method, label in zip(METHODS, done.results.rows, strict=True):
        for seed in SEEDS:
            shutil.copytree(done.path / "runs" / f"{label}-seed{seed}", old / f"{method}-seed{seed}")
    (old / "table.md").write_text("| Method |")
    assert histories(load_results(old)) == histories(done.results)
    monkeypatch.setattr("fda_flower.clients.training.train", lambda *_, **__: pytest.fail("it trains"))
    resumed = compare(["fedgp"], SEEDS, old, resume=True, **config)
    assert (resumed.failures, histories(resumed.results)) == ({}, histories(done.results))
    assert not list(old.glob("*-seed*"))
    assert not (old / "table.md").exists()


def test_after_an_interrupt_the_report_has_the_finished_runs(small, tmp_path, in_process):
    def interrupt(state):
        if state.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(["fedavg"], [0, 1], tmp_path / "c", on_progress=interrupt, **small, rounds=1)
    assert counts(load_results(tmp_path / "c")) == {"FedAvg": [1]}
    assert "1 of 2 runs over 2 seeds" in (tmp_path / "c" / "report.md").read_text("utf-8")


def test_a_fault_in_a_cell_is_reported_and_its_row_is_empty(config, tmp_path, in_process, monkeypatch):
    run = in_process.run_config

    def fail(config, how):
        assert how.workers == 2
        if config.method == "fedavg":
            raise ZeroDivisionError("a fault")
        return run(config, how)

    monkeypatch.setattr(in_process, "run_config", fail)
    result = compare(METHODS, [0], tmp_path / "runs", workers=2, **config)
    assert result.failures == {"FedAvg-seed0": "ZeroDivisionError('a fault')"}
    assert counts(result.results) == {"FedAvg": [], "FedGP": [2]}
    text = (tmp_path / "runs" / "report.md").read_text("utf-8")
    assert "| FedAvg | - | - | 0 | - |" in text
    assert "1 of 2 cells" in text


def test_all_methods_are_those_that_can_work_and_the_others_are_named(
    small, tmp_path, in_process, monkeypatch
):
    asked = set()

    def run_all(run, tasks, *more):
        asked.update(task.config.method for task in tasks.values())
        return dict.fromkeys(tasks, "it was not run")

    monkeypatch.setattr(in_process, "run_all", run_all)
    result = compare("all", [3], tmp_path / "runs", **{**small, "target_samples": 7})
    assert (
        result.left_out.keys() == {name for name in method_names() if not name.startswith(OF_FLOWER)} - asked
    )
    assert {"fedavg", "fedda", "ditto", "central:erm"} <= asked
    assert "a mixture with 4 folds needs 8" in result.left_out["mixture"]
    usual = compare("usual", [3], tmp_path / "usual", **{**small, "model": "cnn"})
    assert usual.left_out.keys() == {"ridge"}, "it reads no random body"
    on_ray = compare("all", [3], tmp_path / "ray", engine="ray", **small)
    assert "needs all data in one place" in on_ray.left_out["central:erm"]
    assert {name for name in on_ray.left_out if name.startswith("central:")} == {
        f"central:{reference}" for reference in CENTRAL
    }


@pytest.mark.parametrize(
    ("settings", "methods", "seeds", "how", "error"),
    [
        ({}, METHODS, [], {}, ("seed", None)),
        ({}, [], [0], {}, ("method", None)),
        ({}, METHODS, [0], {"jobs": 0}, ("jobs", 0)),
        ({}, METHODS, [0], {"workers": 0}, ("workers", 0)),
        ({}, METHODS, [0], {"engine": "deploy"}, ("engine", "deploy")),
        ({}, ["fedavg", "nope"], [0], {}, ("method", "nope")),
        ({}, ["fedavg", "fedavg"], [0], {}, ("method", "fedavg", "once")),
        ({}, ["fedavg"], [3, 3], {}, ("seed", 3, "once")),
        ({"target_samples": 5}, ["fedavg", "fedgp-auto"], [0], {}, ("the target", 5)),
        ({"method_options": {"magnitude": "cosine"}}, ["fedda", "fedavg"], [0], {}, ("option", "magnitude")),
        ({"target_samples": 100_000}, ["fedavg"], [0], {}, ("target-samples", 100_000)),
        ({"batch_size": 0}, "all", [0], {}, ("methods", "all")),
        ({}, "fedavg", [0], {}, ("methods", "fedavg")),
        ({}, ["fedavg"], 2, {}, ("seeds", 2)),
        ({}, ["fedavg"], "12", {}, ("seeds", "12")),
        ({"learning_rates": 0.1}, ["fedavg"], [0], {}, ("setting", "learning_rates")),
        ({}, ["fedavg"], [0], {"jobs": "2 and more"}, ("jobs", "2 and more")),
        ({}, ["fedavg"], [0], {"track": "mlflow"}, ("track", "mlflow")),
        ({"seed": 3}, ["fedavg"], [0], {}, ("seed", 3)),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_before_any_cell_runs(
    small, settings, methods, seeds, how, error, tmp_path, no_run
):
    with pytest.raises(ConfigError, check=names(*error)):
        compare(methods, seeds, tmp_path / "runs", **how, **{**small, **settings})
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_refused_without_resume(config, copy, files_of, no_run):
    before = files_of(copy)
    with pytest.raises(ConfigError, check=names("output folder", copy)):
        compare(["target-only"], [0], copy, **config)
    assert files_of(copy) == before


@pytest.mark.parametrize(("label", "there"), [("FedAvg", False), ("FedAvg", True), ("Target_Only", False)])
def test_a_method_with_the_title_of_another_is_refused(label, there, small, copy, no_run, monkeypatch):
    monkeypatch.setitem(TABLE, "others", replace(TABLE["fedprox"], label=label))
    named = ["others"] if there else ["fedavg", "target-only", "others"]
    with pytest.raises(ConfigError, check=names("method", "others", "another label")):
        compare(named, [0], copy if there else copy / "new", resume=True, **small)
