"""Experiments are run cell by cell and continued, and their results are loaded and reported."""

import csv
import importlib
import json
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import unquote

import numpy as np
import pytest
from naming import names
from sites import write_sites, write_table
from small_runs import EXPERIMENT as TEXT
from whole_runs import untimed

from fda_flower import ConfigError, RunConfig, files, run
from fda_flower.datasets.federation import forget
from fda_flower.errors import RunError
from fda_flower.experiments import load_results, read_experiment, run_experiment, write_report
from fda_flower.records.folder import RunFolder
from fda_flower.reporting import summarise
from fda_flower.reporting.plots import betas
from fda_flower.reporting.results import file_name
from fda_flower.runs.methods import METHODS

NAMES = [
    f"{row}-{column}-seed{seed}"
    for seed in (0, 1)
    for row in ("FedAvg", "Target_Only")
    for column in ("little", "much")
]
ONE: dict[str, Any] = {"only": ["FedAvg", "little"], "seeds": [0]}
"""The first of all cells."""
FIRST = NAMES[0]
PNG = b"\x89PNG\r\n\x1a\n"
NO_ROOM = OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def module(in_process):
    """The module of cells, which run here, one after the other."""
    return in_process


@pytest.fixture(autouse=True)
def trained(monkeypatch):
    """The samples of each client's training; FedAvg has four trainings a round, Target Only one."""
    training = importlib.import_module("fda_flower.clients.training")
    train, samples_of = training.train, []

    def count(model, samples, *args):
        samples_of.append(len(samples))
        return train(model, samples, *args)

    monkeypatch.setattr(training, "train", count)
    return samples_of


@pytest.fixture
def define(tmp_path):
    def read(text=TEXT, name="noise"):
        path = tmp_path / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return read_experiment(path)

    return read


@pytest.fixture
def experiment(define):
    return define()


@pytest.fixture
def records(tmp_path, monkeypatch):
    """The script that packs the records of experiments, into a folder of this test."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "experiments" / "tools")
    script = importlib.import_module("records")
    monkeypatch.setattr(script, "RECORDS", tmp_path)
    return script


@pytest.fixture
def crash(module, monkeypatch):
    """Stop each run after so many rounds, until called without a number."""
    run_config = module.run_config

    def after(rounds=None):
        def stop(record):
            if record["round"] == rounds:
                raise KeyboardInterrupt

        def run_and_crash(config, how):
            return run_config(config, replace(how, on_round=stop))

        monkeypatch.setattr(module, "run_config", run_config if rounds is None else run_and_crash)

    return after


def with_row(row):
    """The file with another row."""
    return TEXT.replace('"target-only" },', f'"target-only" }},\n{row},')


def cell(folder, name=FIRST):
    """The records of a cell's run, its summary, and what defines it."""
    path = folder / "runs" / name
    summary, config = (json.loads((path / f"{file}.json").read_text()) for file in ("summary", "config"))
    return {"history": RunFolder(path).read_rounds(), "summary": summary, "config": config["run"]}


def cells(folder):
    return sorted(path.parent.name for path in (folder / "runs").glob("*/summary.json"))


def checkpoint(folder, name=FIRST):
    return (folder / "runs" / name / "checkpoint").read_bytes()


# What is run


def test_every_row_column_and_seed_is_a_cell_and_a_done_one_is_not_run_again(
    experiment, tmp_path, trained, files_of
):
    out = tmp_path / "out"
    assert run_experiment(experiment, out, rounds=1, seeds=[0]) == {}
    assert len(trained) == 2 * 4 + 2 * 1, "two cells of FedAvg and two of the target alone, a round each"
    before = files_of(out / "runs")
    assert run_experiment(experiment, out, rounds=1, seeds=[0]) == {}
    assert files_of(out / "runs") == before
    assert run_experiment(experiment, out, rounds=1) == {}
    assert len(trained) == 4 * 4 + 4 * 1
    assert before.items() <= files_of(out / "runs").items()
    assert cells(out) == sorted(NAMES)
    assert {path.name for path in out.iterdir()} == {".lock", "experiment.json", "experiment.toml", "runs"}
    assert (out / "experiment.toml").read_text(encoding="utf-8") == TEXT


def test_a_cells_result_is_that_of_the_run_alone_and_results_know_what_the_experiment_says(
    experiment, tmp_path
):
    settings: dict[str, Any] = {"model": "mlp", "shift": "noise", "shift_options": {"std": 0.1}}
    settings |= {"batch_size": 64, "target_samples": 16, "method": "fedavg", "seed": 0}
    expected = run(**settings, rounds=4)
    assert run_experiment(experiment, tmp_path / "out", **ONE) == {}
    found = cell(tmp_path / "out")
    assert untimed(found["history"], "outcomes") == untimed(expected.history)
    assert all("outcomes" in record for record in found["history"])
    own = {"epochs": {"source": 4, "target": 4}, "parameters": 64 * 64 + 64 + 64 * 10 + 10}
    same = {key: expected.summary[key] for key in ("last5", "best", "rounds")}
    assert (summarise(found["history"]) | own | same).items() <= found["summary"].items()
    assert json.loads(json.dumps(RunConfig(**settings).fingerprint())).items() <= found["config"].items()
    results = load_results(tmp_path / "out")
    assert (results.design.name, results.design.title) == ("noise", "Digits with noise")
    assert results.design.source == "Nobody, 2024, Table 1"
    assert (results.rows, results.columns) == (["FedAvg"], ["little"]), "only what was asked for"
    assert (results.values, results.groups) == ({"little": 0.1, "much": 0.5}, [""])
    assert results.paper == {("", "FedAvg", "little"): 60.5, ("", "FedAvg", "much"): 30.0}
    ((place, (one,)),) = results.runs.items()
    assert (place, one.seed, one.summary["parameters"]) == (("", "FedAvg", "little"), 0, 4810)
    assert one.history == found["history"]


def test_groups_are_in_the_names_of_cells_and_one_without_runs_has_no_table(define, tmp_path):
    groups = "".join(
        f'[[groups]]\nlabel = "{label}"\ntarget-samples = {n}\n' for label, n in (("many", 20), ("few 1", 8))
    )
    paper = 'paper."few 1" = { little = 60.5 }'
    grouped = define(TEXT.replace("paper = { little = 60.5, much = 30 }", paper) + groups)
    only = [*ONE["only"], "few 1"]
    assert run_experiment(grouped, tmp_path / "out", rounds=1, seeds=[0], only=only) == {}
    assert cell(tmp_path / "out", f"few_1-{FIRST}")["config"]["target_samples"] == 8
    results = load_results(tmp_path / "out")
    assert results.groups == ["few 1"]
    assert results.paper == {("few 1", "FedAvg", "little"): 60.5}
    assert "no runs of 'many'" in results.cuts
    write_report([results], tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (text.count("## few 1"), text.count("## many")) == (1, 0)


def test_machine_settings_go_to_the_run_and_leave_no_mark(experiment, tmp_path, module, monkeypatch):
    seen = []
    run_config = module.run_config

    def spy(config, how):
        seen.append(config)
        return run_config(config, how)

    monkeypatch.setattr(module, "run_config", spy)
    run_experiment(experiment, tmp_path / "out", rounds=1, machine={"device": "cpu", "data_dir": "/x"}, **ONE)
    assert [(config.device, config.data_dir) for config in seen] == [("cpu", "/x")]
    assert run_experiment(experiment, tmp_path / "out", rounds=1, machine={"device": "auto"}, **ONE) == {}
    assert len(seen) == 1, "it is done, wherever it ran"
    assert not any("device" in cut or "data" in cut for cut in load_results(tmp_path / "out").cuts)


def test_progress_counts_cells_and_rounds(experiment, tmp_path):
    seen = []
    run_experiment(experiment, tmp_path / "out", rounds=2, seeds=[0], on_progress=seen.append)
    assert [(p.cells, p.done, len(p.failures), p.rounds, p.rounds_done) for p in seen] == [
        (4, 1, 0, 8, 2),
        (4, 2, 0, 8, 4),
        (4, 3, 0, 8, 6),
        (4, 4, 0, 8, 8),
    ]
    seen.clear()
    run_experiment(experiment, tmp_path / "out", rounds=2, seeds=[0, 1], on_progress=seen.append)
    assert (seen[0].cells, seen[0].done, seen[0].rounds) == (8, 5, 8), (
        "of what is done only the number counts"
    )


# Continuing


def test_an_interrupted_cell_is_a_result_when_it_has_ended_and_goes_on_to_the_same_bits(
    experiment, tmp_path, trained, crash
):
    run_experiment(experiment, tmp_path / "whole", **ONE)
    crash(3)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, tmp_path / "out", **ONE)
    assert cell(tmp_path / "out")["summary"]["rounds"] == 3
    assert load_results(tmp_path / "out").runs == {}
    crash(None)
    trained.clear()
    assert run_experiment(experiment, tmp_path / "out", rounds=3, **ONE) == {}
    assert trained == []
    results = load_results(tmp_path / "out")
    assert [len(one.history) for one in results.all_runs] == [3]
    assert "3 rounds instead of 4" in results.cuts
    assert run_experiment(experiment, tmp_path / "out", **ONE) == {}
    assert len(trained) == 4, "the last of four rounds"
    assert untimed(cell(tmp_path / "out")["history"]) == untimed(cell(tmp_path / "whole")["history"])
    assert checkpoint(tmp_path / "out") == checkpoint(tmp_path / "whole")
    assert not any("rounds instead of" in cut for cut in load_results(tmp_path / "out").cuts)


def test_a_done_cell_whose_data_have_changed_is_an_error(define, tmp_path):
    write_sites(write_table, tmp_path, "abc")
    one = define("""
        title = "Own data"
        source = "none"
        axis = "Data"
        seeds = [0]
        columns = [{ label = "mine", dataset-options = { domains = "a,b,c" } }]
        rows = [{ label = "FedAvg", method = "fedavg", dataset = "table", model = "logistic", rounds = 1 }]
        """)
    settings: dict[str, Any] = {"machine": {"data_dir": str(tmp_path), "device": "cpu"}}
    assert [run_experiment(one, tmp_path / "out", **settings) for _ in "ab"] == [{}, {}]
    write_table(tmp_path / "c.csv", 7)
    forget()  # as in a new process
    with pytest.raises(ConfigError, check=names("data", "c")):
        run_experiment(one, tmp_path / "out", **settings)


# Cut-down runs, and what they leave in the results


@pytest.mark.parametrize(
    ("how", "ran", "cuts"),
    [
        ({}, NAMES, []),
        ({"only": ["much", "little", "FedAvg", "Target Only"]}, NAMES, []),
        ({"only": ["much"]}, [name for name in NAMES if "much" in name], ["2 of 4 cells"]),
        ({"only": ["FedAvg", "much"]}, ["FedAvg-much-seed0", "FedAvg-much-seed1"], ["1 of 4 cells"]),
        ({"seeds": [1]}, NAMES[4:], ["4 of 8 runs over 2 seeds"]),
        (
            {"rounds": 2, "seeds": [0], "only": ["little"]},
            ["FedAvg-little-seed0", "Target_Only-little-seed0"],
            ["2 rounds instead of 4", "2 of 4 cells", "2 of 4 runs over 2 seeds"],
        ),
    ],
    ids=str,
)
def test_what_was_left_out_is_reported(experiment, tmp_path, how, ran, cuts):
    assert run_experiment(experiment, tmp_path / "out", **how) == {}
    assert cells(tmp_path / "out") == sorted(ran)
    results = load_results(tmp_path / "out")
    assert results.cuts == cuts
    for place, runs in results.runs.items():
        for one in runs:
            best = cell(tmp_path / "out", f"{file_name(place)}-seed{one.seed}")["summary"]["best"]
            assert one.score("best") == pytest.approx(100 * best)


def test_settings_replace_those_of_the_experiment(experiment, tmp_path):
    settings = {"batch_size": 100, "shift_options": {"std": 0.2}, "rounds": 1, "metric": "macro-f1"}
    assert run_experiment(experiment, tmp_path / "out", settings=settings, seeds=[0]) == {}
    for name in cells(tmp_path / "out"):
        config = cell(tmp_path / "out", name)["config"]
        assert (config["batch_size"], config["shift_options"]) == (100, {"std": 0.2})
    results = load_results(tmp_path / "out")
    assert {"batch-size is 100", "1 round instead of 4"} < {*results.cuts}
    assert results.metrics == {("", "little"): "macro-f1", ("", "much"): "macro-f1"}


def test_a_setting_that_another_row_refuses_is_reported_for_the_rows_that_take_it(define, tmp_path):
    gp = define(with_row('{ label = "FedGP", method = "fedgp" }'))
    chosen, settings = ["FedGP", "little"], {"beta": "0.25"}
    assert run_experiment(gp, tmp_path, only=chosen, seeds=[0], rounds=1, settings=settings) == {}
    results = load_results(tmp_path)
    assert [row for _, row, _ in results.runs] == ["FedGP"]
    assert {"beta is 0.25", "1 of 6 cells"} < {*results.cuts}
    assert write_report([results], tmp_path / "report.md")


def test_an_attack_among_the_settings_attacks(experiment, tmp_path):
    settings = {"attack": "flip-sign", "attackers": "2"}
    assert run_experiment(experiment, tmp_path, rounds=1, settings=settings, **ONE) == {}
    config = cell(tmp_path)["config"]
    assert (config["attack"], config["attackers"]) == ("flip-sign", ["source-1", "source-2"])


# What is refused


def test_invalid_labels_seeds_and_settings_are_refused_before_a_folder_is_made(experiment, tmp_path):
    for how, error in (
        ({"only": ["nobody"]}, ("row, column or group", "nobody", "FedAvg, Target Only, little, much")),
        ({"only": [""]}, ("row, column or group", "")),
        ({"only": "little"}, ("only", "little")),
        ({"settings": {"epoch": 2}}, ("cell", "FedAvg, little")),
        ({"seeds": "12"}, ("seeds", "12")),
        ({"rounds": 0}, ("cell", "FedAvg, little")),
        ({"jobs": 0}, ("jobs", 0)),
        ({"rounds": 1, "settings": {"rounds": "2"}}, ("rounds", 1)),
        ({"settings": {"attack": "nothing"}}, ("cell", "FedAvg, little")),
    ):
        with pytest.raises(ConfigError, check=names(*error)):
            run_experiment(experiment, tmp_path / "out", **how)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_another_experiment_is_refused_and_stays_as_it_is(
    experiment, define, tmp_path, files_of, trained
):
    out = tmp_path / "out"
    run_experiment(experiment, out, rounds=1, **ONE)
    before = files_of(out)
    trained.clear()
    changed = define(TEXT.replace("std = 0.1", "std = 0.15"))
    for other, how, thing in (
        (define(name="other"), {}, out),
        (experiment, {"settings": {"epochs": 2}}, out),
        (changed, {}, out / "runs" / FIRST),
        (changed, {"only": ["Target Only"]}, out / "runs" / FIRST),
        (changed, {"seeds": [1]}, out / "runs" / FIRST),
    ):
        with pytest.raises(ConfigError, check=names(str(thing))):
            run_experiment(other, out, rounds=1, **how)
    assert trained == []
    assert files_of(out) == before
    changed = define(TEXT.replace("std = 0.5", "std = 0.6"))  # a change of other cells does not matter
    assert run_experiment(changed, out, rounds=1, seeds=[0]) == {}
    assert cell(out, "FedAvg-much-seed0")["config"]["shift_options"] == {"std": 0.6}


def test_a_setting_that_is_younger_than_a_run_had_its_default(experiment, tmp_path, trained):
    run_experiment(experiment, tmp_path / "out", rounds=1, **ONE)
    path = tmp_path / "out" / "runs" / FIRST / "config.json"
    found = json.loads(path.read_text())
    del found["run"]["average"]
    path.write_text(json.dumps(found))
    trained.clear()
    assert run_experiment(experiment, tmp_path / "out", rounds=1, **ONE) == {}
    assert trained == []
    path.write_text(json.dumps(found | {"run": found["run"] | {"average": "ema:0.9"}}))
    with pytest.raises(ConfigError, check=names(str(path.parent))):
        run_experiment(experiment, tmp_path / "out", rounds=1, **ONE)


def test_a_run_that_is_in_no_table_is_named(experiment, define, tmp_path):
    out = tmp_path / "out"
    run_experiment(experiment, out, rounds=1, seeds=[0])
    renamed = TEXT.replace('label = "FedAvg"', 'label = "Mean"')
    (out / "experiment.toml").write_text(renamed, encoding="utf-8")
    rounds = out / "runs" / "Target_Only-much-seed0" / "rounds.jsonl"
    rounds.write_text("", encoding="utf-8")
    cuts = load_results(out).cuts
    assert f"without 2 runs whose labels are not in the file: {FIRST}, FedAvg-much-seed0" in cuts
    assert "without 1 run whose rounds.jsonl lacks rounds: Target_Only-much-seed0" in cuts


def test_packed_records_have_the_results_of_the_runs_and_more_are_added(define, tmp_path, records):
    row = '{ label = "FedDA_Auto", method = "fedda-auto", average = "tail:2" }'
    auto = define(f'figures = ["betas"]\n{with_row(row)}')

    def texts(results):
        paths = write_report([results], tmp_path / "report.md")
        return [path.read_text(encoding="utf-8") for path in paths if path.suffix != ".png"]

    def packed():
        assert records.pack(tmp_path / "out").name == "noise.jsonl.xz"
        return records.read_results(auto)

    for only in (["little"], []):
        run_experiment(auto, tmp_path / "out", rounds=2, only=only)
        loaded = load_results(tmp_path / "out")
        assert texts(replace(packed(), columns=loaded.columns)) == texts(loaded)
    both = [[betas([one.history]) for one in each.all_runs] for each in (packed(), loaded)]
    assert sum(map(bool, both[0])) == 4
    for ours, expected in zip(*both, strict=True):
        assert np.ravel([*ours.values()]) == pytest.approx(
            np.ravel([*expected.values()]), rel=1e-3, nan_ok=True
        )
    undrawn = records.for_page(
        {"history": packed().at(("", "FedDA_Auto", "much"))[0].history}, define(with_row(row))
    )["history"]
    assert [bool(record["sources"]) for record in undrawn] == [False, True]
    shutil.rmtree(tmp_path / "out")
    run_experiment(auto, tmp_path / "out", rounds=3, **ONE)
    replaced = packed()
    for column, rounds in (("little", 3), ("much", 2)):
        assert len(replaced.at(("", "FedAvg", column))[0].history) == rounds
    shutil.rmtree(tmp_path / "out")
    run_experiment(auto, tmp_path / "out", rounds=1, settings={"epochs": 2}, **ONE)
    with pytest.raises(SystemExit):
        records.pack(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    run_experiment(define(auto.text.replace("std = 0.1", "std = 0.15")), tmp_path / "out", rounds=1, **ONE)
    with pytest.raises(SystemExit, match="'FedAvg-little' differ in shift_options"):
        records.pack(tmp_path / "out")


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ({"batches": "even", "proximal": 0.0, "dp_buffers": "local"}, {"beta": None}),
        ({"variant": "reference-code", "batches": "even"}, {"variant": "reference-rules"}),
        ({"variant": "reference-code", "batches": "fixed"}, {"variant": "reference-code"}),
        ({"dataset": "heart"}, {"dataset": "heart", "columns": "own"}),
    ],
)
def test_runs_of_earlier_versions_are_compared_in_the_words_of_this_one(records, earlier, now):
    first = {key: value for key, value in RunConfig().fingerprint().items() if key != "columns"} | earlier
    runs = {"a-seed0": {"run": first}, "a-seed1": {"run": RunConfig(seed=1).fingerprint() | now}}
    records.check_cells(runs, ["a-seed1"])
    runs["a-seed1"]["run"]["epochs"] = 3
    records.check_cells(runs, [])
    with pytest.raises(SystemExit, match="'a' differ in epochs: 3 in 'a-seed1', 1 in 'a-seed0'"):
        records.check_cells(runs, ["a-seed1"])


def test_a_damaged_file_is_named(experiment, tmp_path):
    out = tmp_path / "out"

    def check(file, text, *uses):
        path = out / file
        before = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        for use in uses:
            with pytest.raises(ConfigError) as caught:
                use()
            assert str(path) in (caught.value.thing, str(caught.value.value))
        path.write_text(before, encoding="utf-8")

    def go_on():
        run_experiment(experiment, out)

    def results():
        load_results(out)

    run_experiment(experiment, out, rounds=1, **ONE)
    for text in ("[]", "{}", '{"experiment": "noise", "settings": 3}'):
        check("experiment.json", text, results, go_on)
    check(f"runs/{FIRST}/summary.json", "{", results, go_on)
    check(f"runs/{FIRST}/config.json", "{", results, go_on)


def test_an_output_that_is_a_file_or_that_another_process_uses_is_refused(experiment, tmp_path, trained):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, check=names("output folder")):
        run_experiment(experiment, tmp_path / "file")
    with files.only_writer(tmp_path / "out"):
        with pytest.raises(ConfigError, check=names("output folder", tmp_path / "out", "wait until")):
            run_experiment(experiment, tmp_path / "out", **ONE)
        assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert trained == []


# A full disk


def test_a_summary_that_cannot_be_written_fails_its_cell_and_can_be_written_later(
    experiment, tmp_path, monkeypatch, trained
):
    summary = importlib.import_module("fda_flower.reporting.summary")
    with monkeypatch.context() as patch:
        patch.setattr(summary, "write_atomically", Mock(side_effect=NO_ROOM))
        failures = run_experiment(experiment, tmp_path / "out", rounds=1, **ONE)
    assert f"the summary cannot be written to '{tmp_path / 'out' / 'runs' / FIRST}'" in failures[FIRST]
    assert load_results(tmp_path / "out").runs == {}
    trained.clear()
    assert run_experiment(experiment, tmp_path / "out", rounds=1, **ONE) == {}
    assert trained == [], "its rounds were kept"
    assert len(load_results(tmp_path / "out").all_runs) == 1


# Reports


@pytest.fixture
def results(experiment, define, tmp_path):
    """Those of two experiments."""
    run_experiment(experiment, tmp_path / "first", rounds=2, seeds=[0])
    other = define(TEXT.replace("Digits with noise", "Another one"), "a second")
    run_experiment(other, tmp_path / "second", rounds=1, only=["Target Only"])
    return [load_results(tmp_path / name) for name in ("first", "second")]


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def links(text):
    return [unquote(link) for link in re.findall(r"!\[[^\]]*\]\(([^) ]*)\)", text)]


def test_a_report_is_tables_and_figures_of_each_experiment_with_what_was_measured(
    results, tmp_path, pictures
):
    """The first experiment is there twice, with files of its own."""
    results.append(replace(results[0], cuts=["something"]))
    output, folder = tmp_path / "reports" / "all.md", tmp_path / "reports" / "all"
    paths, experiments = write_report(results, output), ("noise", "a second", "noise-2")
    stems = [f"{name}-{figure}" for name in experiments for figure in ("columns", "rounds")]
    expected = [f"{name}.{ending}" for name in experiments for ending in ("csv", "tex")]
    expected += [f"{stem}.png" for stem in stems]
    assert (paths[0], sorted(paths[1:])) == (output, sorted(folder / name for name in expected))
    assert sorted(output.parent.iterdir()) == [folder, output]
    assert sorted(folder.iterdir()) == sorted(paths[1:])
    assert all((folder / f"{stem}.png").read_bytes().startswith(PNG) for stem in stems)
    before = output.read_bytes()
    assert write_report(results, output) == paths
    assert output.read_bytes() == before
    vectors = write_report(results[1:2], tmp_path / "pdf.md", figures="pdf")[-2:]
    assert all(path.read_bytes().startswith(b"%PDF") for path in vectors)
    with pytest.raises(ConfigError, check=names("figure format", "bmp")):
        write_report(results, output, figures="bmp")
    text = output.read_text(encoding="utf-8")
    assert links(text) == [f"all/{stem}.png" for stem in stems]
    titles = ["# Digits with noise", "# Another one", "# Digits with noise"]
    assert [line for line in text.splitlines() if line.startswith("# ")] == titles
    shares = cell(tmp_path / "first")["summary"]
    measured = {name: 100 * shares[name] for name in ("last5", "best")}
    for name in ("noise", "noise-2"):
        lines = table(folder / f"{name}.csv")
        assert {*lines} == {*product(("FedAvg", "Target Only"), ("little", "much"))}
        line = lines["FedAvg", "little"]
        assert float(line["last5"]) == pytest.approx(measured["last5"])
        assert float(line["best"]) == pytest.approx(measured["best"])
        assert (float(line["paper"]), line["seeds"], line["rounds"]) == (60.5, "1", "2")
        assert float(line["difference"]) == pytest.approx(measured["last5"] - 60.5, rel=1e-5)
        assert lines["Target Only", "little"]["paper"] == ""
    assert f"{measured['last5']:.1f}" in text
    assert "paper 60.5" in text
    assert "2 rounds instead of 4" in results[0].cuts
    assert all(cut in text for one in results for cut in one.cuts)


def test_before_anything_is_measured_a_report_has_no_figures(experiment, tmp_path, module, monkeypatch):
    monkeypatch.setattr(module, "run_config", Mock(side_effect=RunError("the reason")))
    run_experiment(experiment, tmp_path / "out", rounds=1)
    results = load_results(tmp_path / "out")
    assert results.runs == {}
    paths = write_report([results], tmp_path / "r" / "report.md")
    assert [path.name for path in paths] == ["report.md", "noise.csv", "noise.tex"]
    text = paths[0].read_text(encoding="utf-8")
    assert links(text) == []
    assert "0 of 4 cells" in text
    path = paths[0] / "report.md"
    with pytest.raises(ConfigError, check=names("report", path)):
        write_report([results], path)


def test_a_board_has_tables_of_regrets_and_epochs_and_marks_references(define, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "target-only", replace(METHODS["target-only"], ensemble=True))
    top = 'report = "regret"\nfigures = ["regret"]\nrivals = ["FedAvg", "Target Only"]\n'
    coral = '{ label = "CORAL", method = "central:coral" }'
    run_experiment(define(top + with_row(coral)), tmp_path / "out", rounds=2, seeds=[0])
    results = load_results(tmp_path / "out")
    assert (results.design.report, results.design.rivals) == ("regret", ("FedAvg", "Target Only"))
    assert (results.ensembles, results.centralised) == ({"Target Only"}, {"CORAL"})
    assert {row: one.epochs for (_, row, _), (one,) in results.runs.items()} == {
        "FedAvg": {"source": 2, "target": 2},
        "Target Only": {"source": 0, "target": 2},
        "CORAL": {"source": 2, "target": 0},
    }
    paths = write_report([results], tmp_path / "board.md")
    names = ["board.md", "noise.csv", "noise-regret.csv"]
    assert [path.name for path in paths] == [*names, "noise.tex", "noise-regret.png"]
    names = [f"{row}-little-seed0" for row in ("FedAvg", "Target_Only")]
    scores = [100 * cell(tmp_path / "out", name)["summary"]["last5"] for name in names]
    lines = table(tmp_path / "board" / "noise-regret.csv")
    assert float(lines["FedAvg", "little"]["regret"]) == pytest.approx(scores[0] - scores[1])
    text = (tmp_path / "board.md").read_text(encoding="utf-8")
    assert "Target Only †" in text
    rows = [line for line in text.splitlines() if line.startswith("| CORAL")]
    assert len(rows) == 4
    assert all(line.startswith("| CORAL ‡ |") for line in rows)


def test_a_row_may_be_judged_by_its_averaged_model(define, tmp_path):
    row = '{ label = "Averaged", method = "fedavg", average = "tail:2", headline = "average" }'
    only = ["Averaged", "FedAvg", "little"]
    run_experiment(define(with_row(row)), tmp_path / "out", rounds=2, seeds=[0], only=only)
    results = load_results(tmp_path / "out")
    (averaged,), (plain,) = (results.at(("", label, "little")) for label in ("Averaged", "FedAvg"))
    assert averaged.score("last5") == averaged.score("last5", "-average")
    assert averaged.score("last5", "") == plain.score("last5")
    assert averaged.score("last5") != plain.score("last5")


def test_runs_that_their_patience_has_ended_are_done_and_the_report_says_so(experiment, tmp_path, files_of):
    asked = {"validation": "0.25", "patience": "1", "learning_rate": "1e-7", "target_samples": "40"}
    settings = {**asked, "model": "logistic"}
    run_experiment(experiment, tmp_path, **ONE, rounds=9, settings=settings)
    results = load_results(tmp_path)
    (one,) = results.all_runs
    rounds = len(one.history)
    assert rounds < 9
    assert f"ended by their patience: runs 1, rounds {rounds} to {rounds}" in results.cuts
    before = files_of(tmp_path / "runs")
    run_experiment(experiment, tmp_path, **ONE, rounds=9, settings=settings)
    assert files_of(tmp_path / "runs") == before
