"""`fda experiment` and `fda report` as the shell calls them."""

import json
import shlex
import signal
from pathlib import Path

import pytest
from run_folders import files_below, make_run
from sites import write_sites, write_table
from small_runs import EXPERIMENT as TEXT

from fda_flower.errors import RunError
from fda_flower.experiments.definition import RUN_KEYS
from fda_flower.running import processes as module

ONE = ["--only", "Target Only", "--only", "little", "--seeds", "1", "--device", "cpu"]
"""Of all cells one."""
SHORT = ["experiment", "noise.toml", *ONE, "--rounds", "1"]
FIRST = "Target_Only-little-seed0"

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(autouse=True)
def file(in_a_folder_of_its_own):
    """An experiment in the working directory."""
    Path("noise.toml").write_text(TEXT, encoding="utf-8")


def cells():
    return {
        path.parent.name: path.stat().st_mtime_ns for path in Path("runs/noise").glob("runs/*/summary.json")
    }


def report_of(folder="runs/noise"):
    return Path(folder, "report.md").read_text(encoding="utf-8")


# fda experiment


def test_an_experiment_ends_with_a_report(fda, pictures):
    code, out, err = fda("experiment", "noise.toml", "--device", "cpu", "--jobs", "1")
    assert (code, err) == (0, "")
    assert len(cells()) == 2 * 2 * 2
    names = [
        "report.md",
        "report/noise.csv",
        "report/noise.tex",
        "report/noise-columns.png",
        "report/noise-rounds.png",
    ]
    paths = [Path("runs/noise", name) for name in names]
    assert out.splitlines()[-1] == f"Written: {', '.join(map(str, paths))}"
    assert all(path.stat().st_size for path in paths)
    assert "# Digits with noise" in report_of()
    assert "paper 60.5" in report_of()
    assert "Cut down" not in report_of()


def test_a_cut_down_run_is_marked_in_its_report_and_json_has_its_rows(fda):
    code, out, _ = fda(*SHORT, "--output", "out", "--track", "tensorboard", "--json")
    found = json.loads(out)
    assert (code, found["failures"], found["files"][0]) == (0, {}, "out/report.md")
    (row,) = (each for each in found["rows"] if each["seeds"] == 1)
    assert (row["experiment"], row["row"], row["column"]) == ("noise", "Target Only", "little")
    assert 0 < row["last5"] < 1
    assert row["paper"] is None
    assert json.loads(fda("report", "out", "--json")[1])["rows"] == found["rows"]
    assert not Path("runs").exists()
    assert "1 round instead of 4" in report_of("out")
    assert "1 of 4 cells" in report_of("out")
    assert len(list(Path("out/runs", FIRST).glob("*tfevents*"))) == 1


def test_set_changes_settings_of_all_runs(fda):
    changes = "method=fedgp beta=0.1,0.2,0.3 batch_size=100 epochs=2 target-samples=5% shift-options=std=0.2"
    options = ["--set", "method-options=granularity=model", "--set", "method_options=magnitude=cosine"]
    code, _, err = fda(*SHORT, *options, *(part for one in changes.split() for part in ("--set", one)))
    assert (code, err) == (0, "")
    config = json.loads(Path("runs/noise/runs", FIRST, "config.json").read_text(encoding="utf-8"))["run"]
    for key, value in {
        **{"method": "fedgp", "beta": [0.1, 0.2, 0.3], "batch_size": 100, "epochs": 2},
        **{"target_samples": "5%", "shift_options": {"std": 0.2}},
        "method_options": {"granularity": "model", "magnitude": "cosine"},
    }.items():
        assert config[key] == value
        assert f"{key.replace('_', '-')} is " in report_of()


def test_an_empty_table_of_options_drops_the_files(fda):
    text = TEXT.replace('model = "mlp"', 'model = "lenet"\nmodel-options = { batch_norm = true }')
    Path("noise.toml").write_text(text, encoding="utf-8")
    code, _, err = fda(*SHORT, "--set", "model=mlp", "--set", "model-options=")
    assert (code, err) == (0, "")
    config = json.loads(Path("runs/noise/runs", FIRST, "config.json").read_text(encoding="utf-8"))["run"]
    assert (config["model"], config["model_options"]) == ("mlp", {})


def test_an_interrupt_says_how_to_go_on(fda, monkeypatch):
    monkeypatch.setattr(module, "run_all", lambda *_: signal.raise_signal(signal.SIGINT))
    again = f"fda experiment noise.toml {shlex.join(ONE)}"
    said = f"Stopped with no cell done. Continue with: {again}\n"
    assert fda("experiment", "noise.toml", *ONE) == (130, "", said)
    assert Path("runs/noise/report.md").exists()


def test_cells_take_the_folder_of_data_and_the_device_and_one_that_fails_is_told(fda, monkeypatch):
    seen = []

    def fail(config, how):
        seen.append((config.data_dir, config.device))
        raise RunError("the reason [in brackets]")

    monkeypatch.setattr(module, "run_config", fail)
    code, out, err = fda("experiment", "noise.toml", *ONE, "--data-dir", "here")
    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == f"Failed: {FIRST}: the reason [in brackets]"
    assert out.splitlines()[-2].startswith("Written: runs/noise/report.md")
    monkeypatch.setenv("FDA_DATA_DIR", "there")
    fda("experiment", "noise.toml", *ONE)
    assert seen == [("here", "cpu"), ("there", "cpu")]


def test_tables_of_a_folder_need_no_names_in_the_file_and_are_reported_without_the_folder(fda):
    """A file without columns, too: its table has a column for each score."""
    write_sites(write_table, Path("hospitals"), "abc")
    rows = '[[rows]]\nlabel = "FedAvg"\nmethod = "fedavg"\n'
    run = '[run]\ndataset = "table"\nmodel = "logistic"\nrounds = 1\n'
    Path("own.toml").write_text(f'title = "Own"\n{rows}{run}', encoding="utf-8")
    code, _, err = fda("experiment", "own.toml", "--data-dir", "hospitals", "--device", "cpu")
    assert (code, err) == (0, "")
    written = report_of("runs/own")
    assert "| Method | last5 (%) | best (%) | seeds | rounds |" in written
    Path("hospitals").rename("elsewhere")
    assert fda("report", "runs/own")[0] == 0
    assert report_of("runs/own") == written
    code, _, err = fda("experiment", "own.toml", "--device", "cpu")
    assert (code, "give the folder that holds them by --data-dir" in err) == (2, True)


PHOTOS = """
title = "Photos"
columns = [{ label = "S", target = "SUN09" }]
rows = [{ label = "FedAvg", method = "fedavg" }, { label = "Target Only", method = "target-only" }]
[run]
dataset = "vlcs"
dataset-options = { image_size = 8 }
model = "cnn"
"""


def test_a_check_says_what_is_missing_and_the_cheapest_row_first_and_trains_nothing(fda):
    Path("photos.toml").write_text(PHOTOS, encoding="utf-8")
    code, shown, err = fda("experiment", "photos.toml", "--check", "--data-dir", "nowhere")
    assert (code, err) == (1, "")
    *lines, last = shown.splitlines()
    assert last.startswith("Missing: the data folder 'nowhere/VLCS' is missing: get it from DomainBed")
    rows = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert rows == ["Target Only", "FedAvg"]
    again = "fda experiment photos.toml --data-dir nowhere --only ROW"
    assert any(line.endswith(f"one after the other: {again}") for line in lines)
    assert not Path("runs").exists()


def test_a_check_names_cells_that_cannot_run_and_refuses_what_the_run_would(fda):
    Path("photos.toml").write_text(PHOTOS.replace("fedavg", "fedbn"), encoding="utf-8")
    code, shown, _ = fda("experiment", "photos.toml", "--check", "--seeds", "2", "--only", "FedAvg")
    assert code == 1
    assert shown.splitlines()[-1].startswith(
        "Cannot run: cell 'FedAvg, S': method 'fedbn' needs a network with"
    )
    for option, reason in {"--jobs=0": "jobs must be at least 1", "--track=x": "unknown tracker 'x'"}.items():
        code, _, err = fda("experiment", "photos.toml", "--check", option)
        assert (code, reason in err) == (2, True)


# fda report


def test_a_report_of_several_folders_is_one_file(fda):
    Path("other.toml").write_text(TEXT.replace("Digits with noise", "Another one"), encoding="utf-8")
    for name in ("noise", "other"):
        assert fda("experiment", f"{name}.toml", *ONE, "--rounds", "1")[0] == 0
    code, out, err = fda("report", "runs/noise", "runs/other", "--output", "reports/all.md")
    assert (code, err) == (0, "")
    text = Path("reports/all.md").read_text(encoding="utf-8")
    assert text.index("# Digits with noise") < text.index("# Another one")
    assert "reports/all.md" in out
    assert {"noise.csv", "other.csv"} <= {path.name for path in Path("reports/all").iterdir()}
    written = report_of()
    Path("runs/noise/report.md").unlink()
    assert fda("report", "runs/noise")[0] == 0
    assert report_of() == written, "it is written into the first folder unless told otherwise"


def test_a_page_is_written_beside_the_run_or_where_it_is_asked_for(fda):
    make_run(Path("runs/first"), method="fedavg")
    assert fda("report", "--html", "runs/first") == (0, "Written: runs/first/report.html\n", "")
    assert "<h1>first</h1>" in Path("runs/first/report.html").read_text(encoding="utf-8")
    assert fda("report", "--html", "runs", "--output", "all.html")[0] == 0
    assert "<h1>runs</h1>" in Path("all.html").read_text(encoding="utf-8")


def test_without_html_a_run_or_the_runs_of_a_folder_are_drawn(fda, pictures):
    make_run(Path("runs/first"), method="fedavg")
    code, out, _ = fda("report", "runs/first", "runs")
    one, several = out.splitlines()
    assert (code, one) == (0, "Written: runs/first/accuracy.png")
    files = ["report.md", *(f"report/comparison{end}" for end in (".csv", ".tex", "-runs.png"))]
    assert several == f"Written: {', '.join(f'runs/{file}' for file in files)}"
    for picture in ("runs/first/accuracy.png", "runs/report/comparison-runs.png"):
        assert Path(picture).read_bytes().startswith(b"\x89PNG")
    code, _, err = fda("report", "runs/first", "--output", "page.md")
    assert code == 2
    assert "output is 'page.md', but the picture of 'runs/first'" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--html", "--card"], ["--html and --card are given"]),
        (["--sent", "state"], ["sent is 'state'", "add --card"]),
        (["--html", "--sent", "state"], ["sent is 'state'", "add --card"]),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(fda, options, words):
    make_run(Path("runs/first"), method="fedavg")
    before = files_below("runs")
    code, _, err = fda("report", "runs/first", *options)
    assert code == 2
    assert all(word in err for word in words)
    assert files_below("runs") == before


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml"], ["'nothing.toml'", "fashion_mnist_noise"]),
        (["noise.toml", "--seeds", "0"], ["seeds is '0'"]),
        (["noise.toml", "--set", "colour=red"], ["--set is 'colour=red'", *sorted(RUN_KEYS)]),
        (["noise.toml", "--set", "Model=mlp"], ["--set is 'Model=mlp'", "did you mean 'model'?"]),
        (["noise.toml", "--set", "model"], ["'model'", "KEY=VALUE"]),
        (["noise.toml", "--set", "epochs=2", "--set", "epochs=3"], ["'epochs=3'", "given before"]),
        (["noise.toml", "--set", "shift-options=std"], ["'std'", "NAME=VALUE"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_before_anything_is_written(fda, arguments, words):
    code, _, err = fda("experiment", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    for word in ("Error: ", *words):
        assert word in err
    assert [path.name for path in Path().iterdir()] == ["noise.toml"]


@pytest.mark.parametrize("options", [["--html"], []])
@pytest.mark.parametrize("folder", [".", "nothing"])
def test_a_report_of_a_folder_without_results_is_one_line(fda, folder, options):
    code, _, err = fda("report", folder, *options)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"'{folder}' holds no run, comparison or experiment" in err
    assert [path.name for path in Path().iterdir()] == ["noise.toml"]
