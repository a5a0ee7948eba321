"""Folders as pages: what is found there."""

import json
import os
import shlex
from typing import Any

import numpy as np
import pytest
from naming import names
from run_folders import make_run, records

import fda_flower
from fda_flower import ConfigError, compare
from fda_flower.experiments import read_experiment, run_experiment
from fda_flower.experiments.folders import config_of, kind_of, read_run, read_runs
from fda_flower.experiments.pages import single_page, table_page, write_card, write_html
from fda_flower.reporting.words import judge

EXPERIMENT = """
title = "Digits"
axis = "Noise"
columns = [{ label = "0.4", shift-options = { std = 0.4 } }]
rows = [{ label = "FedAvg", method = "fedavg" }, { label = "Target Only", method = "target-only" }]
[run]
dataset = "digits"
shift = "noise"
rounds = 2
"""

NOISE = {"shift": "noise", "shift_options": {"std": 0.4}}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "first", method="fedda-auto", seed=4, shift_options={"angle": 45})


@pytest.fixture
def comparison(tmp_path):
    for method in ("target-only", "fedavg"):
        for seed in (0, 1):
            make_run(tmp_path / "compare" / f"{method}-seed{seed}", method=method, seed=seed, data_dir="a b")
    (tmp_path / "compare" / "table.md").write_text("")
    return tmp_path / "compare"


@pytest.fixture
def experiment(tmp_path):
    folder = tmp_path / "noise"
    done = make_run(folder / "runs" / "FedAvg-0.4-seed0", method="fedavg", **NOISE)
    (done / "summary.json").write_text(json.dumps({"rounds": 3, "parameters": 10}))
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "experiment.json").write_text(json.dumps({"experiment": "noise", "settings": {"model": "mlp"}}))
    make_run(folder / "runs" / "Target_Only-0.4-seed0", rounds=1, done=False, method="target-only")
    return folder


def sections(page):
    return {section.title: section.parts for section in page.sections}


def test_a_folder_is_a_run_a_comparison_or_an_experiment(run, comparison, experiment, tmp_path):
    kinds = [kind_of(folder) for folder in (run, comparison, experiment)]
    assert kinds == ["run", "comparison", "experiment"]
    with pytest.raises(ConfigError, check=names(str(tmp_path / "nothing"))):
        kind_of(tmp_path / "nothing")
    (run / "config.json").write_text("[")
    with pytest.raises(ConfigError, check=names(str(run / "config.json"))):
        single_page(run)


def test_the_page_of_a_run_says_how_to_repeat_it(run):
    page = single_page(run)
    assert page.title == "first"
    first, *others = sections(page)["Repeat it"][0].lines
    assert first.startswith("fda run --shift rotate --shift-option angle=45.0 ")
    assert "--seed 4 --method fedda-auto --rounds 3" in first
    assert others[0] == f"fda run --config {run}/config.json"
    assert others[1].endswith(f"--resume --output {run}")
    assert page.state.startswith("Done: 3 of 3 rounds")


def test_the_page_of_a_run_says_what_its_method_concludes(tmp_path):
    folder = make_run(tmp_path / "run", rounds=1, method="ridge")
    [known] = records(1)
    held_out = {"held-out": 0.76, "held-out-target": 0.7}
    (folder / "rounds.jsonl").write_text(json.dumps({**known, "ridge": held_out}) + "\n")
    parts = sections(single_page(folder))
    line = (
        "The sources bring +6.0 points of accuracy here, by held-out labels: 76.0% with them, 70.0% without"
    )
    assert line in parts["Results"]
    assert line in parts["Model card"]


def test_a_finished_run_that_is_resumed_with_another_metric_has_it_everywhere(tmp_path):
    settings: Any = {"rounds": 2, "model": "mlp", "method": "fedavg", "device": "cpu", "shift": "noise"}
    fda_flower.run(**settings, output=tmp_path)
    fda_flower.run(**settings, output=tmp_path, resume=True, metric="auroc")
    summary, found = json.loads((tmp_path / "summary.json").read_text()), read_run(tmp_path)
    assert (summary["metric"], found.metric, found.settings["metric"]) == ("auroc", "auroc", "auroc")
    assert summary["last5"] == np.mean([record["auroc"] for record in found.history])
    (line, *_) = judge(summary)
    assert "AUROC" in line
    page = sections(single_page(tmp_path))
    assert line in page["Results"]
    assert line in write_card(tmp_path).read_text()
    assert page["Rounds"][0].header[1] == "AUROC (%)"
    assert all("--metric auroc" in each for each in page["Repeat it"][0].lines[:3])
    unfinished = fda_flower.run(**{**settings, "rounds": 3}, output=tmp_path, resume=True)
    assert read_run(tmp_path).metric == unfinished.summary["metric"] == "accuracy"


def test_a_run_of_another_version_is_shown_by_what_it_says(run):
    (run / "config.json").write_text(json.dumps({"run": {"method": "later", "new": 1}, "rounds": 7}))
    (run / "summary.json").unlink()
    page = single_page(run)
    assert page.about.startswith("later")
    assert page.state.startswith("Not done: 3 of 7 rounds")
    again = f"fda run --config {run}/config.json"
    assert sections(page)["Repeat it"][0].lines[:2] == [
        f"{again} --output {run}-again",
        f"{again} --resume --output {run}",
    ]


def test_the_page_of_a_comparison_has_a_row_for_each_method_in_the_usual_order(comparison):
    page = table_page(comparison)
    assert page.state == "4 of 4 runs are done."
    _, table, _, numbers = sections(page)["Results"]
    assert [row[0] for row in table.rows] == ["FedAvg", "Target Only"]
    assert numbers.header[:2] == ["method", "last5"]
    first, *_, report = sections(page)["Repeat it"][0].lines
    assert first.endswith(f"--output {comparison}-again/fedavg-seed0")
    assert "/a b' " in first
    assert report == f"fda report --html {comparison}"


def test_the_page_of_a_comparison_shows_the_headline_of_its_runs(tmp_path):
    for method in ("fedavg", "target-only"):
        folder = make_run(tmp_path / "c" / f"{method}-seed0", method=method, metric="auroc")
        lines = [json.dumps({**record, "auroc": 0.75}) for record in records(3)]
        (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    found = sections(table_page(tmp_path / "c"))
    assert [str(cell) for cell in found["Results"][1].rows[0][:2]] == ["FedAvg", "**75.0**"]
    for title in ("Mean over seeds", "By round"):
        ((axis,),) = (figure.axes for figure in found[title][0].figures.values())
        assert "AUROC" in axis.get_xlabel() + axis.get_ylabel()
        assert 75.0 in {number for line in axis.lines for number in line.get_xydata().flat}


def test_a_folder_of_runs_of_several_data_sets_has_a_row_for_each(comparison):
    make_run(comparison / "other", method="fedavg", seed=0, shift="noise", rounds=1)
    page = table_page(comparison)
    labels = [row[0] for row in sections(page)["Results"][1].rows]
    assert {"other", "fedavg-seed1"} < {*labels}
    assert len(sections(page)["Repeat it"][0].lines) == 6


def test_a_comparison_interrupted_on_its_way_to_more_rounds_has_a_row_for_each_method(tmp_path):
    for method, seed, rounds in (("fedavg", 0, 3), ("fedavg", 1, 5), ("target-only", 0, 3), ("ridge", 0, 1)):
        make_run(tmp_path / "c" / f"{method}-seed{seed}", rounds=rounds, method=method, seed=seed)
    found = sections(table_page(tmp_path / "c"))
    rows = {row[0]: (str(row[3]), str(row[4])) for row in found["Results"][1].rows}
    assert rows == {"FedAvg": ("2", "3-5"), "Target Only": ("1", "3"), "Ridge": ("1", "1")}


def test_the_page_of_a_comparison_that_has_just_begun(tmp_path):
    make_run(tmp_path / "c" / "fedavg-seed4", rounds=0, done=False, method="fedavg", seed=4)
    page = table_page(tmp_path / "c")
    assert sections(page)["Results"] == ["Nothing measured yet, 0 rounds."]
    assert page.state == "0 of 1 runs are done."


def test_the_page_of_an_experiment_shows_runs_that_are_not_done(experiment):
    page = table_page(experiment)
    assert (page.title, page.state) == ("Digits", "1 of 2 runs are done.")
    (runs,) = sections(page)["Runs"]
    assert [row[:4] for row in runs.rows] == [
        ["FedAvg-0.4-seed0", 0, "done", 3],
        ["Target_Only-0.4-seed0", 0, "not done", 1],
    ]
    first, *_ = sections(page)["Repeat it"][0].lines
    assert first == f"fda experiment {experiment}/experiment.toml --set model=mlp --output {experiment}"


def test_the_page_of_an_experiment_repeats_each_call_with_what_was_chosen(tmp_path, in_process):
    (tmp_path / "noise.toml").write_text(EXPERIMENT)
    definition = read_experiment(tmp_path / "noise.toml")
    folder, settings = tmp_path / "out", {"model": "mlp", "target_samples": 20}
    for seeds in ([0], [0], [0, 1]):
        run_experiment(definition, folder, only=["Target Only"], seeds=seeds, rounds=1, settings=settings)
    changes = "--set model=mlp --set target-samples=20"
    whole = f"fda experiment {folder}/experiment.toml --only 'Target Only' --seeds {{}} --rounds 1 {changes}"
    assert sections(table_page(folder))["Repeat it"][0].lines[:2] == [
        f"{whole.format('0-0')} --output {folder}",
        f"{whole.format('0,1')} --output {folder}",
    ]


# The printed commands


@pytest.fixture
def asked(caught, monkeypatch):
    """What a printed command calls, which then does not run."""
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)  # a command would take it
    return lambda command: caught(*shlex.split(command)[1:])


def test_the_commands_of_a_run_run_it(run, asked):
    config = config_of(read_run(run).settings)
    again, from_file, resumed, _ = sections(single_page(run))["Repeat it"][0].lines
    for command, folder, resume in ((again, f"{run}-again", False), (resumed, str(run), True)):
        (found, how), _ = asked(command)
        assert (found, str(how.output), how.resume) == (config, folder, resume)
    assert asked(from_file)[0][0] == config


def test_a_deployed_run_is_repeated_over_its_connection_and_an_attacked_one_by_its_experiment(run, asked):
    (run / "submitted.json").write_text(json.dumps({"connection": "the hospitals"}))
    for command in sections(single_page(run))["Repeat it"][0].lines[:3]:
        (_, how), _ = asked(command)
        assert (how.engine, how.connection) == ("deploy", "the hospitals")
    found = json.loads((run / "config.json").read_text())
    found["run"] |= {"attack": "random", "attackers": ["source-1"]}
    (run / "config.json").write_text(json.dumps(found))
    assert sections(single_page(run)).get("Repeat it", []) == []


def test_the_command_of_a_comparison_runs_each_of_its_cells(tmp_path, asked, in_process, small):
    folder, settings = tmp_path / "a comparison", {**small, "rounds": 1, "threads": 2}
    settings |= {"data_dir": str(tmp_path)}
    done = compare(["fedavg", "fedda"], [3], folder, beta=0.25, **settings)
    again, report = sections(table_page(folder))["Repeat it"][0].lines[:2]
    (found, output), how = asked(again)
    assert (output, list(how["seeds"])) == (folder, [3])
    configs = [found.config(place, 3, how["machine"]) for place in done.results.places]
    expected = [config_of(run.settings) for run in read_runs(folder).values()]
    assert [config.fingerprint() for config in configs] == [each.fingerprint() for each in expected]
    assert report == shlex.join(["fda", "report", str(folder)])


def test_runs_that_no_comparison_repeats_are_repeated_one_by_one(tmp_path, asked):
    for seed, rate in ((0, 0.1), (1, 0.2)):
        make_run(tmp_path / "c" / f"run-{seed}", seed=seed, learning_rate=rate)
    for seed, command in enumerate(sections(table_page(tmp_path / "c"))["Repeat it"][0].lines[:2]):
        (config, how), _ = asked(command)
        assert (config.seed, how.output) == (seed, tmp_path / "c-again" / f"run-{seed}")


def test_the_command_of_an_experiment_changes_the_same_settings(tmp_path, asked, in_process):
    (tmp_path / "noise.toml").write_text(EXPERIMENT)
    definition = read_experiment(tmp_path / "noise.toml")
    settings = {"method_options": {"granularity": "model", "filter": False}, "shift_options": {"std": 0.25}}
    settings |= {"method": "fedgp", "beta": [0.25, 0.5, 0.5], "target_samples": None}
    settings |= {"model": "mlp", "learning_rate": 0.001}
    only = ["FedAvg"]
    run_experiment(definition, tmp_path / "out", only=only, seeds=[3], rounds=1, settings=settings)
    again, report = sections(table_page(tmp_path / "out"))["Repeat it"][0].lines[:2]
    (found, folder), how = asked(again)
    assert (found.name, folder, how["only"], list(how["seeds"]), how["rounds"]) == (
        *("experiment", tmp_path / "out", only, [3], 1),
    )
    place = ("", "FedAvg", "0.4")
    assert found.config(place, 3, how["settings"]) == definition.config(place, 3, settings)
    assert report == f"fda report {tmp_path / 'out'}"


def test_several_folders_make_one_file_written_whole(run, comparison, experiment, tmp_path):
    output = tmp_path / "new" / "page.html"
    write_html([run, comparison, experiment], output)
    text = output.read_text(encoding="utf-8")
    assert [text.count(f"<h1>{title}</h1>") for title in ("first", "compare", "Digits")] == [1, 1, 1]
    assert os.listdir(output.parent) == ["page.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, check=names("report")):
        write_html([run], tmp_path / "file" / "page.html")
