"""`fda experiment` and `fda report` as the shell calls them."""

import importlib
import json
import logging
import re
import shlex
import signal
from pathlib import Path

import pytest
from in_process import run_all
from typer.testing import CliRunner

from fda_flower.cli.app import app
from fda_flower.errors import RunError
from fda_flower.experiments.definition import RUN_KEYS

WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "TERM": "dumb", "NO_COLOR": "1"}
TEXT = """
title = "Digits with noise"
axis = "Noise"
seeds = [0, 1]

[run]
model = "mlp"
shift = "noise"
rounds = 2
target-samples = 16
batch-size = 64

[[columns]]
label = "0.1"
shift-options = { std = 0.1 }

[[columns]]
label = "0.5"
shift-options = { std = 0.5 }

[[rows]]
label = "FedAvg"
method = "fedavg"
paper = { "0.1" = 60.5 }

[[rows]]
label = "Target Only"
method = "target-only"
"""
ONE = ["--only", "Target Only", "--only", "0.1", "--seeds", "1", "--device", "cpu"]
"""Of all cells one."""
FIRST = "Target_Only-0.1-seed0"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """A wide terminal without colours, Flower's log as it was, and a folder with an experiment."""
    for name, value in WIDE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("noise.toml").write_text(TEXT, encoding="utf-8")
    logger = logging.getLogger("flwr")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """The module of cells, which run here, one after the other."""
    cell = importlib.import_module("fda_flower.experiments.cells")
    monkeypatch.setattr(cell, "run_all", run_all)
    return cell


def cells(folder="runs/noise"):
    return sorted(path.parent.name for path in (Path(folder) / "runs").glob("*/summary.json"))


def config_of(name=FIRST, folder="runs/noise"):
    return json.loads((Path(folder) / "runs" / name / "config.json").read_text(encoding="utf-8"))["run"]


# Help


@pytest.mark.parametrize("command", ["experiment", "report"])
def test_the_help_has_an_example_and_describes_every_option(command):
    result = CliRunner().invoke(app, [command, "--help"], env=WIDE)
    assert result.exit_code == 0
    (example,) = re.findall(r"Example: `?(fda [^`\n│]+)", result.output)
    assert example.startswith(f"fda {command} ")
    for line in result.output.splitlines():
        if found := re.search(r"(--[a-z-]+)\s+(.*)", line):
            assert len(found[2].strip(" │|")) > 10, f"{found[1]} has no description"
    options = {"experiment": {"--only", "--seeds", "--rounds", "--set", "--jobs", "--device", "--data-dir"}}
    assert options.get(command, set()) | {"--output"} <= set(re.findall(r"--[a-z-]+", result.output))


@pytest.mark.parametrize("command", ["experiment", "report"])
def test_without_a_file_or_folder_it_is_a_usage_error(fda, command):
    code, _, err = fda(command)
    assert code == 2
    assert "Usage" in err


# fda experiment


def test_an_experiment_ends_with_a_report(fda, pictures):
    code, out, err = fda("experiment", "noise.toml", "--device", "cpu", "--jobs", "1")
    assert (code, err) == (0, "")
    assert len(cells()) == 2 * 2 * 2
    folder = Path("runs/noise")
    names = [
        "report.md",
        "report/noise.csv",
        *(f"report/noise-{f}.png" for f in ("columns", "rounds")),
    ]
    assert out.splitlines()[-1] == f"Written: {', '.join(str(folder / name) for name in names)}"
    assert all((folder / name).stat().st_size for name in names)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "# Digits with noise" in text
    assert "paper 60.5" in text
    assert "Cut down" not in text


def test_what_is_done_is_kept_and_more_seeds_are_added(fda):
    assert fda("experiment", "noise.toml", *ONE)[0] == 0
    assert cells() == [FIRST]
    before = (Path("runs/noise/runs") / FIRST / "summary.json").stat().st_mtime_ns
    assert fda("experiment", "noise.toml", *ONE, "--seeds", "2")[0] == 0
    assert cells() == [FIRST, "Target_Only-0.1-seed1"]
    assert (Path("runs/noise/runs") / FIRST / "summary.json").stat().st_mtime_ns == before


def test_a_cut_down_run_is_marked_in_its_report(fda):
    assert fda("experiment", "noise.toml", *ONE, "--rounds", "1", "--output", "out")[0] == 0
    assert not Path("runs").exists()
    text = Path("out/report.md").read_text(encoding="utf-8")
    assert "1 round instead of 2" in text
    assert "1 of 4 cells" in text


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (["shift-options=std=0.2"], "shift_options", {"std": 0.2}),
        (["shift_options=std=0.2"], "shift_options", {"std": 0.2}),
        (["batch-size=100"], "batch_size", 100),
        (["batch-size=100", "epochs=2"], "epochs", 2),
        (["method=fedgp", "method-options=granularity=model magnitude=cosine"], "method_options",
         {"granularity": "model", "magnitude": "cosine"}),
        (["method=fedgp", "beta=0.1,0.2,0.3"], "beta", [0.1, 0.2, 0.3]),
        (["target-samples=5%"], "target_samples", "5%"),
        (["only-sources=source-3,source-1"], "only_sources", ["source-3", "source-1"]),
    ],
    ids=str,
)  # fmt: skip
def test_set_changes_a_setting_of_all_runs(fda, change, key, value):
    options = [part for one in change for part in ("--set", one)]
    code, _, err = fda("experiment", "noise.toml", *ONE, "--rounds", "1", *options)
    assert (code, err) == (0, "")
    assert config_of()[key] == value
    name = key.replace("_", "-")
    assert f"{name} is " in Path("runs/noise/report.md").read_text(encoding="utf-8")


def test_options_that_are_set_merge_with_those_of_the_file(fda):
    text = TEXT.replace('shift = "noise"', "").replace("{ std = 0.1 }", "{ angle = 10, invert = false }")
    Path("turn.toml").write_text(text.replace("shift-options = { std = 0.5 }", ""), encoding="utf-8")
    assert fda("experiment", "turn.toml", *ONE, "--rounds", "1", "--set", "shift-options=angle=20")[0] == 0
    assert config_of(folder="runs/turn")["shift_options"] == {"angle": 20.0, "invert": False}


def test_the_folder_of_data_sets_and_the_device_go_to_the_runs(fda, module, monkeypatch):
    seen = []

    def spy(config, **where):
        seen.append((config.data_dir, config.device))
        raise RunError("seen")

    monkeypatch.setattr(module, "run_config", spy)
    fda("experiment", "noise.toml", *ONE, "--data-dir", "here")
    monkeypatch.setenv("FDA_DATA_DIR", "there")
    fda("experiment", "noise.toml", *ONE)
    assert seen == [("here", "cpu"), ("there", "cpu")]


def test_an_interrupt_says_how_to_go_on(fda, monkeypatch):
    def interrupt(*args):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("fda_flower.experiments.cells.run_all", interrupt)
    code, out, err = fda("experiment", "noise.toml", *ONE)
    assert (code, out) == (130, "")
    again = f"fda experiment noise.toml {shlex.join(ONE)}"
    assert err == f"Stopped with no cell done. Go on with: {again}\n"
    assert Path("runs/noise/report.md").exists()


def test_a_cell_that_fails_is_told_with_its_reason_and_the_exit_code_is_1(fda, module, monkeypatch):
    run_config = module.run_config

    def fail(config, **where):
        if config.method == "fedavg":
            raise RunError("the reason [in brackets]")
        return run_config(config, **where)

    monkeypatch.setattr(module, "run_config", fail)
    arguments = ["experiment", "noise.toml", "--only", "0.1", "--seeds", "1", "--device", "cpu"]
    code, out, err = fda(*arguments)
    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == "Failed: FedAvg-0.1-seed0: the reason [in brackets]"
    assert out.splitlines()[-2].startswith("Written: runs/noise/report.md")
    assert cells() == [FIRST]
    monkeypatch.setattr(module, "run_config", run_config)
    code, out, _ = fda(*arguments)
    assert code == 0
    assert "Failed" not in out
    assert cells() == ["FedAvg-0.1-seed0", FIRST]


def test_tensorboards_files_can_be_asked_for(fda):
    pytest.importorskip("tensorboard")
    assert fda("experiment", "noise.toml", *ONE, "--rounds", "1", "--track", "tensorboard")[0] == 0
    assert len(list(Path("runs/noise/runs", FIRST).glob("*tfevents*"))) == 1


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


def test_a_report_is_written_into_the_first_folder_unless_told_otherwise(fda):
    assert fda("experiment", "noise.toml", *ONE, "--rounds", "1")[0] == 0
    written = Path("runs/noise/report.md")
    expected = written.read_bytes()
    written.unlink()
    assert fda("report", "runs/noise")[0] == 0
    assert written.read_bytes() == expected


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml"], ["unknown experiment 'nothing.toml'", "choose one of", "fashion_mnist_noise"]),
        (["at/nothing.toml"], ["the experiment 'at/nothing.toml' cannot be read"]),
        (["fashion_mnist_noise", "--only", "red"], ["unknown row, column or group 'red'", "FedGP_0.5"]),
        (["noise.toml", "--only", "nobody"],
         ["unknown row, column or group 'nobody'", "choose one of 0.1, 0.5, FedAvg, Target Only"]),
        (["noise.toml", "--seeds", "0"], ["seeds is '0'", "give their number, such as 3"]),
        (["noise.toml", "--jobs", "-1"], ["jobs is -1: it must be at least 1"]),
        (["noise.toml", "--rounds", "0"], ["cell 'FedAvg, 0.1'", "rounds is 0: it must be at least 1"]),
        (["noise.toml", "--set", "colour=red"], ["--set is 'colour=red'", *sorted(RUN_KEYS)]),
        (["noise.toml", "--set", "model"], ["--set is 'model': give KEY=VALUE"]),
        (["noise.toml", "--set", "seed=3"], ["--set is 'seed=3'"]),
        (["noise.toml", "--set", "model=giant"], ["cell 'FedAvg, 0.1'", "unknown model 'giant'"]),
        (["noise.toml", "--set", "shift-options=std"], ["option 'std' is not of the form NAME=VALUE"]),
        (["noise.toml", "--set", "shift-options=size=3"], ["unknown option 'size' of shift 'noise'"]),
        (["noise.toml", "--device", "tpu"], ["unknown device 'tpu'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_is_one_line_before_anything_is_written(fda, arguments, words):
    code, _, err = fda("experiment", *arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("Error: ")
    for word in words:
        assert word in err
    assert [path.name for path in Path().iterdir()] == ["noise.toml"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"colour = 1\n{TEXT}", ["unknown key 'colour' in the file", "choose one of title, source"]),
        (
            TEXT.replace("batch-size", "size"),
            [
                "unknown key 'size' in [run]",
                "choose one of attack, attackers, average, batch-size, batches, beta",
            ],
        ),
        (TEXT.replace("fedavg", "fedmagic"), ["cell 'FedAvg, 0.1'", "unknown method 'fedmagic'"]),
        ("title = ", ["cannot be read"]),
    ],
    ids=["top", "run", "cell", "TOML"],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(fda, text, words):
    Path("noise.toml").write_text(text, encoding="utf-8")
    code, _, err = fda("experiment", "noise.toml")
    assert code == 2
    assert len(err.splitlines()) == 1
    for word in ("Error: ", "noise.toml", *words):
        assert word in err
    assert [path.name for path in Path().iterdir()] == ["noise.toml"]


def test_the_folder_of_other_settings_is_refused(fda):
    assert fda("experiment", "noise.toml", *ONE, "--rounds", "1")[0] == 0
    code, _, err = fda("experiment", "noise.toml", *ONE, "--rounds", "1", "--set", "epochs=2")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "holds the experiment 'noise' with the settings {}" in err
    assert "choose another --output" in err


@pytest.mark.parametrize("folder", [".", "nothing"])
def test_a_report_of_a_folder_without_results_is_one_line(fda, folder):
    code, _, err = fda("report", folder)
    assert code == 2
    assert err == (
        f"Error: '{folder}' holds no run, comparison or experiment: give the --output of `fda run`, "
        "`fda compare` or `fda experiment`\n"
    )
    assert [path.name for path in Path().iterdir()] == ["noise.toml"]
