"""Comparisons: their folder and tables, how they go on, and what goes wrong."""

import csv
import json
import shutil
from unittest.mock import Mock

import pytest
from naming import names
from whole_runs import untimed

from fda_flower import ConfigError, RunConfig, compare
from fda_flower.experiments import load_results
from fda_flower.files import only_writer
from fda_flower.records.folder import RunFolder
from fda_flower.reporting.experiment_tables import comparison, comparison_numbers
from fda_flower.reporting.tables import markdown
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.methods import CENTRAL, OF_FLOWER, method_names

METHODS = ["fedavg", "fedgp"]
SEEDS = [0, 1]
CELLS = ["fedavg-seed0", "fedavg-seed1", "fedgp-seed0", "fedgp-seed1"]
TABLES = ["table.csv", "table.md", "table.tex"]


@pytest.fixture(scope="module")
def config(small):
    return {**small, "rounds": 2, "beta": 0.3}


@pytest.fixture(scope="module")
def progress():
    return []


@pytest.fixture(scope="module")
def done(config, progress, tmp_path_factory):
    """A comparison in processes of its own; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("compare") / "runs"
    return compare(
        METHODS,
        SEEDS,
        folder,
        jobs=2,
        on_progress=lambda state: progress.append((state.rounds_done, state.rounds)),
        **config,
    )


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done.path, tmp_path / "copy")


@pytest.fixture
def no_cell_runs(monkeypatch, in_process):
    monkeypatch.setattr(in_process, "run_all", Mock(side_effect=AssertionError("cells are run")))


def histories(results):
    """The records of each run by place and seed."""
    return {(place, run.seed): run.history for place in results.places for run in results.at(place)}


def scores(comparison, row, key="last5"):
    return comparison.results.scores(("", row, ""), key)


def rounds_of(cell):
    return untimed(RunFolder(cell).read_rounds())


def summary_of(cell):
    return json.loads((cell / "summary.json").read_text(encoding="utf-8"))


def run_of(cell):
    return json.loads((cell / "config.json").read_text(encoding="utf-8"))["run"]


# The result of a comparison


@pytest.mark.slow
def test_a_comparison_has_a_folder_for_each_cell_and_a_row_for_each_method_with_a_value_for_each_seed(done):
    assert done.failures == {}
    assert done.results.rows == ["FedAvg", "FedGP"]
    assert histories(load_results(done.path)) == histories(done.results)
    for method, row in zip(METHODS, done.results.rows, strict=True):
        summaries = [summary_of(done.path / f"{method}-seed{seed}") for seed in SEEDS]
        for key in ("last5", "best"):
            assert scores(done, row, key) == pytest.approx([100 * summary[key] for summary in summaries])
    assert {path.name for path in done.path.iterdir()} == {".lock", *CELLS, *TABLES}
    assert (done.path / "table.md").read_text("utf-8") == markdown(comparison(done.results))
    assert (done.path / "table.csv").read_text("utf-8") == comparison_numbers(done.results).csv()


def test_a_cell_in_a_process_of_its_own_is_the_same_run_as_here(done, small, tmp_path):
    config = RunConfig(**small, method="fedgp", beta=0.3, seed=1, rounds=2)
    run_config(config, Execution(outcomes=True, output=tmp_path))
    cell = done.path / "fedgp-seed1"
    assert (cell / "checkpoint").read_bytes() == (tmp_path / "checkpoint").read_bytes()
    assert (cell / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    assert rounds_of(cell) == rounds_of(tmp_path)


def test_seeds_differ_methods_share_them_and_a_beta_goes_to_the_methods_that_take_one(done, progress):
    assert [run_of(done.path / cell)["seed"] for cell in CELLS] == [0, 1, 0, 1]
    assert rounds_of(done.path / "fedgp-seed0") != rounds_of(done.path / "fedgp-seed1")
    assert [run_of(done.path / cell)["beta"] for cell in CELLS] == [None, None, 0.3, 0.3]
    assert {total for _, total in progress} == {8}
    counts = [count for count, _ in progress]
    assert counts == sorted(counts)
    assert counts[-1] == 8


# Resuming


def test_resume_leaves_done_cells_and_a_broken_cell_does_not_stop_the_others(done, config, copy, files_of):
    """In processes of their own."""
    (copy / "fedavg-seed1" / "config.json").write_text("{", encoding="utf-8")
    shutil.rmtree(copy / "fedgp-seed1")
    before = {name: files_of(copy / name) for name in CELLS if name != "fedgp-seed1"}
    resumed = compare(METHODS, SEEDS, copy, jobs=2, resume=True, **config)
    assert list(resumed.failures) == ["fedavg-seed1"]
    assert "cannot be read" in resumed.failures["fedavg-seed1"]
    assert str(copy / "fedavg-seed1" / "config.json") in resumed.failures["fedavg-seed1"]
    assert files_of(copy / "fedavg-seed1") == before["fedavg-seed1"]
    for cell in ("fedavg-seed0", "fedgp-seed0"):
        assert files_of(copy / cell)["checkpoint"] == before[cell]["checkpoint"]
    assert rounds_of(copy / "fedgp-seed1") == rounds_of(done.path / "fedgp-seed1")
    assert [len(scores(resumed, row)) for row in done.results.rows] == [1, 2]
    assert scores(resumed, "FedGP") == scores(done, "FedGP")
    table = (copy / "table.md").read_text(encoding="utf-8")
    assert "| FedAvg |" in table
    assert "| 1 | 2 |" in table


def test_resume_of_a_finished_comparison_trains_nothing(
    done, config, copy, files_of, in_process, monkeypatch
):
    monkeypatch.setattr("fda_flower.clients.client.train", lambda *_, **__: pytest.fail("it trains"))
    before = files_of(copy)
    resumed = compare(METHODS, SEEDS, copy, resume=True, **config)
    after = files_of(copy)
    assert (histories(resumed.results), resumed.failures) == (histories(done.results), {})
    assert {name: file[0] for name, file in after.items()} == {n: file[0] for n, file in before.items()}
    assert all(after[f"{cell}/checkpoint"] == before[f"{cell}/checkpoint"] for cell in CELLS)


def test_after_an_interrupt_the_table_has_the_runs_that_their_patience_has_stopped(
    small, tmp_path, in_process
):
    def interrupt(state):
        if state.done == 1:
            raise KeyboardInterrupt

    stops = {**small, "rounds": 30, "validation": 0.25, "patience": 1, "learning_rate": 1e-7}
    stops["target_samples"] = 40
    with pytest.raises(KeyboardInterrupt):
        compare(["fedavg"], [0, 1], tmp_path / "c", on_progress=interrupt, **stops)
    with (tmp_path / "c" / "table.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["method"], row["seeds"]) == ("FedAvg", "1")
    assert int(row["rounds"]) < 30


def test_resume_may_add_methods_seeds_and_rounds(done, small, copy, in_process):
    config = {**small, "rounds": 3, "beta": 0.3}
    resumed = compare([*METHODS, "target-only"], [0, 1, 2], copy, resume=True, **config)
    assert resumed.failures == {}
    assert resumed.results.rows == ["FedAvg", "FedGP", "Target Only"]
    assert {len(scores(resumed, row)) for row in resumed.results.rows} == {3}
    assert {len(run.history) for run in resumed.results.all_runs} == {3}
    *before, last = rounds_of(done.path / "fedgp-seed0")
    del last["confusion"]  # only that of a run's last round counts
    assert rounds_of(copy / "fedgp-seed0")[:2] == [*before, last]


def test_resume_with_other_settings_fails_cell_by_cell(small, copy, files_of, in_process):
    before = files_of(copy / "fedgp-seed0")
    resumed = compare(METHODS, [0], copy, resume=True, **{**small, "rounds": 2, "beta": 0.4})
    assert list(resumed.failures) == ["fedgp-seed0"]
    assert "beta: 0.3 there, 0.4 asked for" in resumed.failures["fedgp-seed0"]
    assert files_of(copy / "fedgp-seed0") == before


# What goes wrong


def test_a_folder_is_refused_without_resume_or_while_another_process_uses_it(
    config, copy, files_of, no_cell_runs
):
    with only_writer(copy):
        before = files_of(copy)
        with pytest.raises(ConfigError, check=names("output folder", copy)):
            compare(["target-only"], [0], copy, **config)
        with pytest.raises(ConfigError, check=names("output folder", copy, "wait until it has ended")):
            compare(METHODS, SEEDS, copy, resume=True, **config)
        assert files_of(copy) == before


@pytest.mark.parametrize("failing", [{"fedavg"}, {"fedavg", "fedgp"}])
def test_a_fault_in_a_cell_is_reported_and_without_any_cell_there_is_no_table(
    config, tmp_path, in_process, monkeypatch, failing
):
    run_cell = in_process.run_config

    def fail(config, how):
        assert how.workers == 2
        if config.method in failing:
            raise ZeroDivisionError("a fault")
        return run_cell(config, how)

    monkeypatch.setattr(in_process, "run_config", fail)
    result = compare(METHODS, [0], tmp_path / "runs", workers=2, **config)
    assert result.failures == {f"{method}-seed0": "ZeroDivisionError('a fault')" for method in failing}
    assert result.results.rows == (["FedGP"] if len(failing) == 1 else [])
    assert (tmp_path / "runs" / "table.md").exists() is (len(failing) == 1)


def test_all_methods_are_those_that_can_work_and_the_others_are_named(
    small, tmp_path, in_process, monkeypatch
):
    asked = set()

    def run_all(run, cells, *more):
        asked.update(cell.config.method for cell in cells.values())
        return dict.fromkeys(cells, "it was not run")

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
    small, settings, methods, seeds, how, error, tmp_path, no_cell_runs
):
    with pytest.raises(ConfigError, check=names(*error)):
        compare(methods, seeds, tmp_path / "runs", **how, **{**small, **settings})
    assert not (tmp_path / "runs").exists()
