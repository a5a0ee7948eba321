import dataclasses
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from in_process import run_all
from typer.testing import CliRunner

import fda_flower
from fda_flower import Comparison, RunConfig, cli
from fda_flower.cli.app import app
from fda_flower.datasets import DATASETS, SHIFTS
from fda_flower.errors import RunError
from fda_flower.experiments import RUNNERS
from fda_flower.experiments.experiment import compared
from fda_flower.models import MODELS
from fda_flower.records.folder import RunFolder
from fda_flower.records.record import COSTS
from fda_flower.runs.methods import METHODS
from fda_flower.runs.settings import SETTINGS

SMALL = ["--model", "mlp", "--rounds", "2", "--target-samples", "16", "--device", "cpu"]
WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "TERM": "dumb", "NO_COLOR": "1"}


class CaughtError(Exception):
    """Stops a command once it has called what was to be tested."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """A wide terminal without colours, an empty working directory, and Flower's log as it was."""
    for name, value in WIDE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("flwr")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def in_process(monkeypatch):
    """Comparisons whose cells run here, one after the other."""
    monkeypatch.setattr("fda_flower.experiments.cells.run_all", run_all)


@pytest.fixture
def caught(monkeypatch):
    """What `fda run` calls `run_config` with, and `fda compare` `compare`, neither of which runs."""
    calls = []

    def catch(*args, **kwargs):
        calls.append((args, kwargs))
        raise CaughtError

    monkeypatch.setattr("fda_flower.experiments.run_config", catch)
    monkeypatch.setattr("fda_flower.experiments.compare", catch)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fda", *map(str, arguments)])
        with pytest.raises(CaughtError):
            cli.main()
        return calls[-1]

    return call


def files_below(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


# Help


@pytest.mark.parametrize("command", [[], ["run"], ["compare"], ["list"]], ids=" ".join)
def test_every_command_has_a_help_with_an_example(command):
    result = CliRunner().invoke(app, [*command, "--help"], env=WIDE)
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "fda " in result.output


@pytest.mark.parametrize(
    ("command", "without", "more"),
    [
        ("run", set(), {"--engine", "--config", "--output", "--resume", "--workers", "--verbose"}),
        ("compare", {"--method", "--seed"}, {"--methods", "--seeds", "--jobs", "--config", "--resume"}),
        ("deploy rehearse", set(), {"--config", "--output"}),
    ],
)
def test_a_command_that_runs_something_takes_all_settings_in_their_groups(command, without, more):
    whole = "--help-all" if command == "run" else "--help"
    text = CliRunner().invoke(app, [*command.split(), whole], env=WIDE).output
    panels = dict(re.findall(r"╭─ (\w+) ─+╮\n((?:│.*\n)+)", text))
    found = {title: set(re.findall(r"^│ \*?\s*(--[a-z-]+)", panel, re.M)) for title, panel in panels.items()}
    for group in ("Data", "Method", "Training", "Limits", "Machine"):
        assert found[group] == {each.option for each in SETTINGS if each.group == group} - without
    assert more <= found["Options"]
    for line in text.splitlines():
        if option := re.search(r"(--[a-z-]+)\s+(.*)", line):
            assert len(option[2].strip(" │|")) > 10, f"{option[1]} has no description"


def test_the_help_of_run_is_short(fda):
    code, out, _ = fda("run", "--help")
    found = set(re.findall(r"^│ \*?\s*(--[a-z-]+)", out, re.M))
    assert code == 0
    assert {"--dataset", "--method", "--rounds", "--output", "--help-all"} <= found
    assert len(found) <= 16


def test_the_help_tells_the_defaults_of_a_command():
    text = CliRunner().invoke(app, ["deploy", "rehearse", "--help"], env=WIDE).output
    for option, default in (("--rounds", "2"), ("--sources", "(2, or those of the data set)")):
        assert re.search(rf"{option} .*\n.*\[default: {re.escape(default)}\]", text)
    assert re.search(r"--target-samples .*\n.*\[default: up to 50\]", text)


def test_the_version_is_shown(fda):
    assert fda("--version") == (0, f"fda-flower {fda_flower.__version__}\n", "")


def test_without_arguments_the_help_is_shown(fda):
    code, out, err = fda()
    assert code in (0, 2)  # as the version of typer has it
    assert "Usage" in out + err
    assert "compare" in out + err


@pytest.mark.parametrize("command", ["", "run", "compare", "list"])
def test_the_examples_of_the_help_are_commands_that_parse(command, caught, monkeypatch):
    text = CliRunner().invoke(app, [*command.split(), "--help"], env=WIDE).output
    (example,) = re.findall(r"Example: `?(fda [^`\n│]+)", text)
    _, *arguments = example.split()
    if arguments[0] == "list":
        assert CliRunner().invoke(app, arguments).exit_code == 0
    else:
        caught(*arguments)


# fda list


def test_list_names_every_entry_of_every_registry(fda):
    code, out, err = fda("list")
    assert code == 0
    assert err == ""
    for registry in (METHODS, DATASETS, SHIFTS, MODELS, RUNNERS):
        for name in registry:
            (line,) = [line for line in out.splitlines() if line.split() and line.split()[0] == name]
            assert len(line.split()) > 2, f"{name} has no description"


@pytest.mark.parametrize("words", ["methods", "Method", "data sets", "datasets", "data_set", "networks"])
def test_list_shows_one_kind_alone_by_whatever_name(fda, words):
    found = json.loads(fda("list", *words.split(), "--json")[1])
    (names,) = found.values()
    registry = METHODS if "ethod" in words else MODELS if words == "networks" else DATASETS
    assert names == list(registry)


def test_list_of_an_unknown_kind_names_those_that_there_are(fda):
    code, out, err = fda("list", "metods")
    assert (code, out) == (2, "")
    assert "'metods' (did you mean 'methods'?)" in err


# fda run


def test_run_writes_a_folder_named_after_what_was_run(fda, tmp_path):
    code, out, err = fda("run", *SMALL, "--method", "fedavg", "--seed", "4")
    assert code == 0
    assert err == ""
    folder = Path("runs") / "digits-rotate-fedavg-seed4"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "accuracy.png",
        "checkpoint",
        "config.json",
        "model.json",
        "model.safetensors",
        "rounds.jsonl",
        "summary.json",
    ]
    assert len((folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    last = out.splitlines()[-1]
    width = (summary["interval"][1] - summary["interval"][0]) / 2
    assert last == (
        f"FedAvg: accuracy last5 {summary['last5']:.1f}%, best {summary['best']:.1f}% "
        f"(±{width:.1f} points for 450 test samples at 95%). Written to {folder}"
    )


def test_a_private_run_ends_with_the_largest_epsilon(fda, tmp_path):
    _, out, _ = fda("run", *SMALL, "--dp-clip", "1", "--dp-noise", "4", "--output", "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    largest = max(told["epsilon"] for told in summary["privacy"].values())
    found = re.search(r"^Privacy: the largest ε is ([\d.]+), of ([\w-]+) \(δ = 1e-05\)$", out, re.M)
    assert found is not None
    assert found[1] == f"{largest:.4g}"
    assert summary["privacy"][found[2]]["epsilon"] == largest


def test_another_headline_is_shown_and_summarised(fda):
    code, out, _ = fda("run", *SMALL, "--metric", "ece", "--output", "out")
    assert code == 0
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    errors = [json.loads(line)["ece"] for line in Path("out/rounds.jsonl").read_text().splitlines()]
    assert (summary["metric"], summary["best"]) == ("ece", 100 * min(errors))
    shown = f"calibration error last5 {summary['last5']:.1f}%, best {summary['best']:.1f}% (450 test samples)"
    assert shown in out.splitlines()[-1]
    code, out, _ = fda("run", *SMALL, "--output", "out", "--resume")
    assert "accuracy last5" in out
    again = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert again["confusion"] == summary["confusion"], "a run that has ended keeps it"


def test_run_writes_to_the_output_folder_and_resumes_it(fda, tmp_path):
    output = tmp_path / "out [b]"
    code, out, _ = fda("run", *SMALL, "--output", output)
    assert code == 0
    assert str(output) in out
    code, out, _ = fda("run", *SMALL, "--rounds", "3", "--output", output, "--resume")
    assert code == 0
    assert len((output / "rounds.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_run_is_the_same_run_as_in_python(fda, tmp_path):
    from fda_flower import run

    assert fda("run", *SMALL, "--output", "a", "--shift-option", "angle=45")[0] == 0
    result = run(model="mlp", rounds=2, target_samples=16, device="cpu", shift_options={"angle": 45.0})
    lines = (tmp_path / "a" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert [100 * json.loads(line)["accuracy"] for line in lines] == result.accuracies


def test_the_defaults_of_run_are_those_of_the_configuration(caught):
    (config,), where = caught("run")
    assert config == RunConfig()
    assert where["engine"] == "local"
    assert where["output"] == Path("runs/digits-rotate-fedgp-auto-seed0")
    assert where["resume"] is False
    assert where["workers"] is None


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--dataset", "digits", "--shift", "label"], {"dataset": "digits", "shift": "label"}),
        (
            ["--shift-option", "angle=45", "--shift-option", "invert=no"],
            {"shift_options": {"angle": "45", "invert": "no"}},
        ),
        (["--method-option", "magnitude=cosine"], {"method_options": {"magnitude": "cosine"}}),
        (["--method", "fedda", "--beta", "0.25"], {"method": "fedda", "beta": 0.25}),
        (["--method", "fedgp", "--beta", "0.1,0.2,0.3"], {"method": "fedgp", "beta": (0.1, 0.2, 0.3)}),
        (["--sources", "2", "--target", "source-1"], {"sources": 2, "target": "source-1"}),
        (["--rounds", "7", "--seed", "3", "--epochs", "2"], {"rounds": 7, "seed": 3, "epochs": 2}),
        (["--model", "mlp", "--optimizer", "sgd"], {"model": "mlp", "optimizer": "sgd"}),
        (["--learning-rate", "0.1", "--batch-size", "64"], {"learning_rate": 0.1, "batch_size": 64}),
        (
            ["--target-learning-rate", "0.2", "--target-batch-size", "8", "--target-samples", "40"],
            {"target_learning_rate": 0.2, "target_batch_size": 8, "target_samples": 40},
        ),
        (["--device", "cpu", "--cpus-per-client", "2"], {"device": "cpu", "threads": 2}),
        (["--data-dir", "data"], {"data_dir": "data"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_option_of_run_becomes_a_setting(caught, options, settings):
    (config,), _ = caught("run", *options)
    assert config == RunConfig(**settings)


def test_run_says_at_its_end_what_was_missing(fda, monkeypatch):
    from fda_flower.experiments import RunResult

    def incomplete(config, **where):
        good, bad = {"a": {}, "b": {}, "c": {}}, {"a": {}}
        history = [
            {"round": 1, "held": None, "sources": good, "dropped": []},
            {"round": 2, "held": None, "sources": bad, "dropped": [{"domain": "b"}]},
            {"round": 3, "held": "no target", "sources": {}, "dropped": []},
        ]
        history = history[: where["workers"]]
        return RunResult(config, history, {"last5": 1.0, "best": 1.0}, {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr("fda_flower.experiments.run_config", incomplete)
    monkeypatch.setattr("fda_flower.experiments.pages.draw", lambda folder: None)
    _, out, _ = fda("run", "--workers", "3")
    assert "rounds without a new model: 1, rounds without all sources: 1, dropped replies: 1 (rounds" in out
    assert "Not complete" not in fda("run", "--workers", "1")[1]


def test_run_passes_on_where_it_is_to_run(caught):
    options = ["--engine", "ray", "--workers", "2", "--gpus-per-client", "0.5", "--resume", "--output", "x"]
    _, where = caught("run", *options)
    assert (where["engine"], where["workers"], where["gpus_per_client"]) == ("ray", 2, 0.5)
    assert (where["resume"], where["output"]) == (True, Path("x"))
    _, where = caught("run", "--engine", "deploy", "--connection", "prod")
    assert (where["engine"], where["connection"]) == ("deploy", "prod")


@pytest.mark.parametrize(("device", "share"), [("cpu", 0.0), ("cuda", 0.25)])
def test_clients_share_a_gpu_evenly_if_there_is_one(caught, monkeypatch, device, share):
    monkeypatch.setattr("fda_flower.models.devices.find_device", lambda name: torch.device(device))
    _, where = caught("run", "--engine", "ray")
    assert where["gpus_per_client"] == share
    _, where = caught("run", "--engine", "deploy")
    assert where["gpus_per_client"] == 0


def test_the_folder_of_data_sets_can_come_from_the_environment(caught, monkeypatch):
    monkeypatch.setenv("FDA_DATA_DIR", "elsewhere")
    (config,), _ = caught("run")
    assert config.data_dir == "elsewhere"


@pytest.mark.parametrize(("flags", "level"), [([], logging.WARNING), (["-v"], logging.INFO)])
def test_verbose_shows_the_log_of_flower(caught, flags, level):
    caught("run", *flags)
    assert logging.getLogger("flwr").level == level


@pytest.mark.parametrize(("flags", "said"), [([], "16 models\n"), (["--quiet"], "")])
def test_what_a_method_costs_is_a_line_of_the_command(fda, monkeypatch, flags, said):
    def say_cost_alone(*_, **__):
        COSTS.info("%d models", 16)
        raise RunError("Mixture: nothing")

    monkeypatch.setattr("fda_flower.experiments.run_config", say_cost_alone)
    code, out, error = fda("run", *flags)
    assert (code, out) == (1, said)
    assert error == "Error: Mixture: nothing\n"
    assert (COSTS.handlers, COSTS.propagate) == ([], True)


# fda run --config


OPTIONS = [
    "--sources",
    "2",
    "--method",
    "fedgp",
    "--beta",
    "0.3,0.7",
    "--seed",
    "3",
    "--cpus-per-client",
    "1",
]


def test_config_json_repeats_a_run_bit_for_bit_in_a_folder_of_its_own(fda, tmp_path):
    assert fda("run", *SMALL, *OPTIONS, "--shift-option", "angle=45", "--batch-size", "32")[0] == 0
    first = Path("runs") / "digits-rotate-fedgp-seed3"
    before = files_below(first)
    for number in (2, 3):
        code, out, err = fda("run", "--config", first / "config.json")
        assert (code, err) == (0, "")
        again = Path("runs") / f"digits-rotate-fedgp-seed3-{number}"
        assert out.endswith(f"Written to {again}\n")
        model, other = (RunFolder(folder).load_checkpoint().model for folder in (first, again))
        assert {name: array.tobytes() for name, array in model.items()} == {
            name: array.tobytes() for name, array in other.items()
        }
        ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (first, again))
        assert ours == theirs
    assert files_below(first) == before


def test_a_run_goes_on_in_the_folder_of_its_config_json(fda):
    assert fda("run", *SMALL, "--output", "a")[0] == 0
    code, _, err = fda("run", "--config", "a/config.json", "--output", "a", "--resume", "--rounds", "3")
    assert (code, err) == (0, "")
    assert len(Path("a/rounds.jsonl").read_text(encoding="utf-8").splitlines()) == 3


@pytest.fixture
def config_json(tmp_path):
    """A `config.json` with settings."""

    def write(**settings):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"settings": RunConfig(**settings).settings()}), encoding="utf-8")
        return path

    return write


def test_options_on_the_command_line_win_over_those_of_config_json(caught, config_json, monkeypatch):
    monkeypatch.setenv("FDA_DATA_DIR", "elsewhere")
    path = config_json(rounds=5, seed=7, target_samples="10%", data_dir="/data", shift_options={"angle": 45})
    (config,), _ = caught("run", "--config", path, "--seed", "8", "--rounds", "30", "--target-samples", "all")
    expected = RunConfig(seed=8, target_samples=None, data_dir="/data", shift_options={"angle": 45})
    assert config == expected


@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        (
            {"method": "fedgp", "beta": 0.3, "variant": "paper", "method_options": {"magnitude": "cosine"}},
            ["--method", "fedavg"],
            {"method": "fedavg"},
        ),
        ({"shift_options": {"angle": 45}}, ["--shift", "color"], {"shift": "color"}),
        ({"sources": 2, "seed": 4}, ["--dataset", "heart"], {"dataset": "heart", "seed": 4}),
        ({"model": "resnet18", "model_options": {"weights": "x"}}, ["--model", "mlp"], {"model": "mlp"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_another_method_does_not_get_the_options_of_the_one_in_config_json(
    caught, config_json, settings, options, expected
):
    (config,), _ = caught("run", "--config", config_json(**settings), *options)
    assert config == RunConfig(**expected)


def test_compare_and_rehearse_take_a_config_json_too(caught, config_json):
    path = config_json(method="fedavg", seed=7, rounds=5, model="mlp")
    _, where = caught("compare", "--config", path)
    assert (where["rounds"], where["model"]) == (5, "mlp")
    assert not {"method", "seed"} & set(where)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"run": {}}', "'settings'"),
        ('{"settings": {"speed": 1}}', "unknown setting 'speed'"),
        ('{"settings": {"rounds": "many"}}', "option 'rounds' of the run is 'many'"),
    ],
)
def test_a_file_without_settings_is_one_line(fda, tmp_path, text, says):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    code, _, err = fda("run", "--config", path)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert says in err


# fda compare


def test_compare_writes_tables_and_a_picture_and_shows_the_table(fda, in_process, tmp_path):
    code, out, err = fda(
        "compare", *SMALL, "--methods", "fedavg,fedgp", "--seeds", "2", "--output", "c", "--jobs", "1"
    )
    assert code == 0
    assert err == ""
    cells = ["fedavg-seed0", "fedavg-seed1", "fedgp-seed0", "fedgp-seed1"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        ".lock",
        "comparison.png",
        *cells,
        "table.csv",
        "table.md",
    ]
    for line in (tmp_path / "c" / "table.md").read_text(encoding="utf-8").splitlines()[2:4]:
        label, last5, best, *_ = (cell.strip(" *") for cell in line.strip("|").split("|"))
        assert re.search(rf"{label}\s+\S+\s+{re.escape(last5)}\s+\S+\s+{re.escape(best)}", out)
    caption = (tmp_path / "c" / "table.md").read_text(encoding="utf-8").splitlines()[-1]
    assert caption in out
    assert "points for 450 test samples at 95%." in caption
    assert "Written to c" in out


def test_compare_with_a_cell_that_fails_says_which_and_why_and_exits_with_1(fda, in_process, tmp_path):
    cell = tmp_path / "c" / "fedgp-seed0"
    cell.mkdir(parents=True)
    (cell / "config.json").write_text("{", encoding="utf-8")
    code, out, _ = fda(
        "compare", *SMALL, "--methods", "fedavg,fedgp", "--seeds", "1", "--output", "c", "--resume"
    )
    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith("Failed")]
    assert line.startswith(f"Failed: fedgp-seed0: '{cell / 'config.json'}' is not the configuration of a run")
    assert "FedAvg" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")


def test_compare_in_which_every_cell_fails_does_not_say_that_it_wrote_a_table(fda, in_process, tmp_path):
    (tmp_path / "file").touch()
    code, out, err = fda(
        "compare", *SMALL, "--methods", "fedavg", "--seeds", "1", "--output", tmp_path / "file"
    )
    assert code == 2
    assert "Written to" not in out
    assert f"'{tmp_path / 'file'}'" in err


ALONE = (
    *("fedprox", "feddaf", "feddwa", "fedavg-ft", "ditto", "irm", "vrex", "groupdro", "kd3a", "apfl"),
    *("knn-per", "fedper", "fedrep", "fedbn", "finetune-offline", "oracle"),
)
"""Methods that `fda compare` runs only when it is asked."""


def test_the_defaults_of_compare_are_those_of_the_configuration(caught):
    (methods, seeds, output), where = caught("compare")
    names = {field.name for field in dataclasses.fields(RunConfig)}
    config = RunConfig(**{name: value for name, value in where.items() if name in names})
    assert {**config.fingerprint(), "method": ""} == {**RunConfig().fingerprint(), "method": ""}
    assert config.rounds == RunConfig().rounds
    assert list(methods) == [m for m in METHODS if m not in ALONE]
    assert list(seeds) == [0, 1, 2]
    assert output == Path("runs/compare")
    assert where["jobs"] >= 1
    assert where["workers"] is None
    assert where["resume"] is False


@pytest.mark.parametrize(("workers", "jobs"), [("2", 3), ("4", 1), ("8", 1)])
def test_cells_with_workers_leave_each_other_a_core_for_each_worker(caught, monkeypatch, workers, jobs):
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    _, where = caught("compare", "--workers", workers)
    assert (where["workers"], where["jobs"]) == (int(workers), jobs)


def test_compare_with_all_methods_says_which_it_leaves_out(fda, monkeypatch):
    def compare(methods, *_, **__):
        assert methods == "all"
        return Comparison(compared("c", []), {}, Path("c"), {"some": "method 'some' needs what is not there"})

    monkeypatch.setattr("fda_flower.experiments.compare", compare)
    code, out, _ = fda("compare", "--methods", "all")
    assert code == 0
    assert "Left out: method 'some' needs what is not there" in out


def test_compare_takes_methods_separated_by_commas_with_or_without_spaces(caught):
    (methods, _, _), _ = caught("compare", "--methods", "fedavg, fedgp")
    assert list(methods) == ["fedavg", "fedgp"]


@pytest.mark.parametrize(
    ("methods", "option"),
    [
        ("fedgp,fedgp-auto", "magnitude=cosine"),
        ("fedgp-auto", "batch_update_encoding=full"),
        ("fedda", "updates=aligned"),
    ],
)
def test_compare_takes_the_options_of_the_methods_it_compares(fda, in_process, tmp_path, methods, option):
    code, _, err = fda(
        "compare", *SMALL, "--methods", methods, "--seeds", "1", "--output", "c", "--method-option", option
    )
    assert (code, err) == (0, "")
    name, value = option.split("=")
    for cell in (tmp_path / "c").glob("*-seed0"):
        config = json.loads((cell / "config.json").read_text(encoding="utf-8"))
        assert config["run"]["method_options"] == {name: value}


def test_compare_resumes_what_is_done(fda, in_process, tmp_path):
    arguments = ["compare", *SMALL, "--methods", "target-only", "--seeds", "1", "--output", "c"]
    assert fda(*arguments)[0] == 0
    before = files_below(tmp_path)
    code, _, err = fda(*arguments)
    assert code == 2
    assert "already holds a comparison" in err
    assert files_below(tmp_path) == before
    assert fda(*arguments, "--resume")[0] == 0
    assert files_below(tmp_path) == before


# Mistakes

MISTAKES = [
    (["--method", "nope"], "'nope'", "choose one of apfl, central:coral"),
    (["--method", "[bold]"], "'[bold]'", "choose one of apfl, central:coral"),
    (["--method", "[/bold]"], "'[/bold]'", "choose one of apfl, central:coral"),
    (["--dataset", "nope"], "'nope'", "choose one of"),
    (["--shift", "nope"], "'nope'", "choose one of color, label, noise, rotate"),
    (["--shift-option", "size=1"], "'size'", "choose one of angle, invert"),
    (["--shift-option", "angle=abc"], "'abc'", "angle"),
    (["--shift-option", "angle"], "'angle'", "NAME=VALUE"),
    (["--shift", "label", "--shift-option", "eta=0.7"], "0.7", "it must be in [0, 0.5]"),
    (["--shift", "color", "--sources", "3"], "3 were asked for", "has 2 sources"),
    (["--method-option", "size=1"], "'size'", "granularity, filter"),
    (["--method-option", "magnitude=long"], "'long'", "choose one of projection, cosine"),
    (["--method-option", "=1"], "'=1'", "NAME=VALUE"),
    (["--model", "nope"], "'nope'", "choose one of cnn, conv4, lenet"),
    (["--device", "nope"], "'nope'", "choose one of auto, cpu, cuda"),
    (["--engine", "spark"], "'spark'", "choose one of deploy, local, ray"),
    (["--workers", "0"], "workers is 0", "at least 1 is needed"),
    (["--workers", "-2"], "workers is -2", "at least 1 is needed"),
    (["--gpus-per-client", "0.5"], "gpus-per-client is 0.5", "leave it out, or choose --engine ray"),
    (["--connection", "prod"], "'prod'", "choose --engine deploy"),
    (["--engine", "deploy"], "connection", "give --connection NAME"),
    (["--engine", "deploy", "--connection", "prod", "--workers", "2"], "workers is 2", "leave it out"),
    (
        ["--engine", "deploy", "--connection", "prod", "--gpus-per-client", "1"],
        "gpus-per-client is 1.0",
        "leave",
    ),
    (["--device", "cuda"], "'cuda'", "use auto or cpu"),
    (["--optimizer", "nope"], "'nope'", "choose one of adam, sgd"),
    (["--beta", "2"], "2", "it must be in [0, 1]"),
    (["--beta", "nan"], "nan", "it must be in [0, 1]"),
    (["--beta", "0.1,0.2"], "2 values for 3 sources", "one for each source"),
    (["--beta", "abc"], "'abc'", "give a number"),
    (["--method", "fedavg", "--beta", "0.5"], "'fedavg'", "leave it out"),
    (["--rounds", "0"], "rounds is 0", "at least 1"),
    (["--target-samples", "0"], "target-samples is '0'", "at least 1"),
    (["--method", "fedda", "--target-samples", "0"], "target-samples is '0'", "at least 1"),
    (["--target-samples", "5", "--target-batch-size", "4"], "5 labelled samples", "give more samples"),
    (["--target-samples", "100000"], "100000", "ask for fewer"),
    (["--sources", "0"], "sources is 0", "at least 1"),
    (["--sources", "2000"], "2001", "use fewer sources"),
    (["--target", "nobody"], "'nobody'", "choose one of source-1"),
    (["--batch-size", "0"], "0", "at least 1"),
    (["--target-batch-size", "0"], "0", "at least 1"),
    (["--epochs", "0"], "0", "at least 1"),
    (["--learning-rate", "0"], "0.0", "above 0"),
    (["--target-learning-rate", "0"], "0.0", "above 0"),
    (["--cpus-per-client", "0"], "cpus-per-client is 0", "at least 1"),
    (["--engine", "ray", "--gpus-per-client", "-1"], "-1", "must not be negative"),
    (["--engine", "ray", "--workers", "0"], "workers is 0", "at least 1"),
    (["--seed", "-1"], "seed is -1", "at least 0"),
    (["--dataset", "images", "--dataset-option", "domains=clean"], "'clean'", "name two domains or more"),
]


@pytest.mark.parametrize(
    ("arguments", "value", "remedy"), MISTAKES, ids=[" ".join(arguments) for arguments, _, _ in MISTAKES]
)
def test_a_mistake_is_one_line_that_names_the_value_and_the_remedy(
    fda, tmp_path, monkeypatch, arguments, value, remedy
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    small = [*SMALL, "--device", "auto"]
    code, _, err = fda("run", *small, *arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("Error: ")
    assert "Traceback" not in err
    assert value in err
    assert remedy in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "value", "remedy"),
    [
        (["--seeds", "0"], "seeds is '0'", "give their number"),
        (["--methods", "fedavg,nope"], "'nope'", "choose one of apfl, central:coral"),
        (["--methods", ""], "''", "choose one of apfl, central:coral"),
        (["--methods", "fedavg,fedavg"], "fedavg", ""),
        (["--jobs", "-1"], "-1", ""),
        (["--dataset", "nope"], "'nope'", "choose one of"),
        (["--shift", "nope"], "'nope'", "choose one of color"),
        (["--sources", "0"], "sources is 0", "at least 1"),
        (["--batch-size", "0"], "0", "at least 1"),
        (["--target-samples", "5", "--methods", "fedgp-auto"], "5 labelled samples", "give more samples"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_in_a_comparison_is_one_line_before_any_cell_runs(
    fda, in_process, tmp_path, arguments, value, remedy
):
    code, _, err = fda("compare", *SMALL, "--methods", "fedavg", "--seeds", "1", *arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("Error: ")
    assert value in err
    assert remedy in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["file", "file/below", "/proc/x"])
@pytest.mark.parametrize("command", ["run --method fedavg", "compare --methods fedavg"])
def test_an_output_that_cannot_be_written_is_refused_before_data_are_loaded(
    fda, tmp_path, monkeypatch, command, output
):
    monkeypatch.setattr("fda_flower.server_app.load_federation", None)
    (tmp_path / "file").touch()
    code, out, err = fda(*command.split(), *SMALL, "--output", output)
    assert (code, out) == (2, "")
    assert f"'{tmp_path / output}'" in err
    assert "choose another --output" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "9"], "seed: 0 there, 9 asked for"),
        (["--seed", "9", "--resume"], "seed: 0 there, 9 asked for"),
        ([], "go on with --resume"),
    ],
    ids=["another run", "another run to resume", "this run"],
)
def test_a_folder_that_is_in_use_is_refused_and_stays_as_it_is(fda, tmp_path, arguments, message):
    assert fda("run", *SMALL, "--output", "a")[0] == 0
    before = files_below(tmp_path)
    code, _, err = fda("run", *SMALL, "--output", "a", *arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert message in err
    assert str(tmp_path / "a") in err
    assert "--output" in err
    assert files_below(tmp_path) == before


def test_a_truncated_checkpoint_is_one_line_that_names_the_file_and_exits_with_1(fda, tmp_path):
    assert fda("run", *SMALL, "--output", "a")[0] == 0
    path = tmp_path / "a" / "checkpoint"
    path.write_bytes(path.read_bytes()[:200])
    before = files_below(tmp_path)
    code, _, err = fda("run", *SMALL, "--output", "a", "--resume")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert str(path) in err
    assert "restore it" in err
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    "arguments",
    [["run", "--nope"], ["run", "--rounds", "many"], ["nope"]],
    ids=" ".join,
)
def test_what_the_command_line_itself_does_not_take_is_a_usage_error(fda, tmp_path, arguments):
    code, _, err = fda(*arguments)
    assert code == 2
    assert "Usage" in err
    assert arguments[-1] in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_exits_with_2_and_one_line(tmp_path):
    command = [sys.executable, "-c", "from fda_flower.cli import main; main()", "run", "--method", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: unknown method 'nope'")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
