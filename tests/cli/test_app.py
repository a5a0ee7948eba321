"""`fda list`, `fda run` and `fda compare` as the shell calls them, and the help of all commands."""

import dataclasses
import errno
import json
import logging
import re
import shlex
from collections import Counter
from functools import wraps
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from run_folders import files_below, settings_in
from typer.testing import CliRunner

import fda_flower
from fda_flower import Comparison, RunConfig, run
from fda_flower.cli.advice import advice
from fda_flower.cli.app import app
from fda_flower.datasets import DATASETS, SHIFTS, DataSpec
from fda_flower.errors import RunError
from fda_flower.experiments import RUNNERS, RunResult
from fda_flower.experiments.comparison import USUAL, _config
from fda_flower.models import FORMS, MODELS
from fda_flower.records.record import COSTS
from fda_flower.reporting import Design, Results
from fda_flower.runs.methods import METHODS, run_names
from fda_flower.runs.settings import SETTINGS

SMALL = ["--model", "mlp", "--rounds", "2", "--target-samples", "16", "--device", "cpu"]
COSINE = {"method": "fedgp", "method_options": {"magnitude": "cosine"}}
COMPARE = ["compare", *SMALL, "--seeds", "1", "--output", "c"]


def help_of(command, option="--help"):
    result = CliRunner().invoke(app, [*command.split(), option])
    assert result.exit_code == 0
    return result.output


# Help

COMMANDS = ["run", "compare", "experiment", "report", "predict", "evaluate", "export", "verify", "tune"]


@pytest.mark.parametrize("command", ["", *COMMANDS, "list", "data check", "deploy rehearse"])
def test_every_command_has_a_help_with_an_example_and_describes_its_options(command):
    text = help_of(command)
    assert re.findall(r"Example: `?(fda [^`\n│]+)", text)[0].startswith(f"fda {command}".strip())
    for option, words in re.findall(r"^│ \*?\s*(--[a-z-]+)\s+(.*)", text, re.M):
        assert len(words.strip(" │|")) > 10, f"{option} has no description"


@pytest.mark.parametrize(
    ("command", "without", "more"),
    [
        ("run", set(), {"--engine", "--config", "--output", "--resume", "--workers", "--verbose"}),
        ("compare", {"--method", "--seed"}, {"--methods", "--seeds", "--jobs", "--config", "--resume"}),
        ("deploy rehearse", set(), {"--config", "--output"}),
    ],
)
def test_a_command_that_runs_something_takes_all_settings_in_their_groups(command, without, more):
    text = help_of(command, "--help-all")
    panels = dict(re.findall(r"╭─ (\w+) ─+╮\n((?:│.*\n)+)", text))
    found = {title: set(re.findall(r"^│ \*?\s*(--[a-z-]+)", panel, re.M)) for title, panel in panels.items()}
    for group in ("Data", "Method", "Training", "Limits", "Machine"):
        assert found[group] == {each.option for each in SETTINGS if each.group == group} - without
    assert more <= found["Options"]


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("run", {"--method"}),
        ("compare", {"--methods", "--seeds"}),
        ("tune", {"--search", "--trials", "--validation"}),
        ("deploy rehearse", {"--method"}),
    ],
)
def test_the_help_of_a_command_with_all_settings_is_short(command, shows):
    found = set(re.findall(r"^│ \*?\s*(--[a-z-]+)", help_of(command), re.M))
    assert {"--dataset", "--rounds", "--output", "--help-all"} | shows <= found
    assert len(found) <= 20
    assert "--learning-rate-factor" not in found


def test_the_help_of_a_command_tells_its_defaults():
    text = help_of("deploy rehearse")
    for option, default in (("--rounds", "(2)"), ("--sources", "(2, or the data set's)")):
        assert re.search(rf"{option} .*\n.*\[default: {re.escape(default)}\]", text)
    assert re.search(r"--target-samples .*\n.*\[default: up to 50\]", text)


def test_without_arguments_the_help_is_shown_and_with_version_the_version(fda):
    code, out, err = fda()
    assert code in (0, 2)  # as the version of typer has it
    assert "compare" in out + err
    assert fda("--version") == (0, f"fda-flower {fda_flower.__version__}\n", "")


@pytest.mark.parametrize("command", ["", "run", "compare"])
def test_the_examples_of_the_help_are_commands_that_parse(command, caught):
    (example,) = re.findall(r"Example: `?fda ([^`\n│]+)", help_of(command))
    caught(*example.split())


# fda list


def test_list_names_every_entry_of_every_registry(fda):
    code, out, err = fda("list")
    assert (code, err) == (0, "")
    for registry in (METHODS, DATASETS, SHIFTS, MODELS, FORMS, RUNNERS):
        for name in registry:
            (line,) = [line for line in out.splitlines() if line.split() and line.split()[0] == name]
            assert len(line.split()) > 2, f"{name} has no description"


def test_list_names_an_entry_point_that_it_leaves_out(fda, monkeypatch):
    group = "fda_flower.models"
    points = {
        "mine": EntryPoint("mine", "nowhere:MINE", group),
        "mlp": EntryPoint("mlp", "others:MLP", group),
    }
    monkeypatch.setitem(
        vars(MODELS), "_points", {name: {point.value: point} for name, point in points.items()}
    )
    code, out, _ = fda("list", "models", "--json")
    taken, broken = json.loads(out)["warnings"]
    assert (code, [*json.loads(out)["models"]]) == (0, [*MODELS.builtin, *FORMS])
    assert "not others:MLP of others: rename" in taken
    assert broken.startswith("left out: 'mine' of fda_flower.models cannot be loaded from nowhere:MINE")


def test_list_shows_one_kind_alone_by_whatever_name_or_refuses_it(fda):
    kinds: dict[str, Any] = {
        "methods": run_names(),
        "Method": run_names(),
        "networks": [*MODELS, *FORMS],
    }
    kinds |= dict.fromkeys(("data sets", "datasets", "data_set"), DATASETS)
    for words, registry in kinds.items():
        assert sorted(fda("list", *words.split(), "--quiet")[1].splitlines()) == sorted(registry)
    code, out, err = fda("list", "metods")
    assert (code, out) == (2, "")
    assert "'metods' (did you mean 'methods'?)" in err


# fda run


def test_run_writes_a_folder_named_after_what_was_run(fda, tmp_path):
    code, out, err = fda("run", *SMALL, "--method", "fedavg", "--seed", "4")
    assert (code, err) == (0, "")
    folder = Path("runs") / "digits-rotate-fedavg-seed4"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert {path.name for path in folder.iterdir()} == {
        *(".lock", "accuracy.png", "checkpoint", "config.json", "model.json", "model.safetensors"),
        *("rounds.jsonl", "summary.json"),
    }
    shown = [line for line in out.splitlines() if line.startswith("round ")]
    assert [line[:26] for line in shown] == [f"round {i}/2: target accuracy "[:26] for i in (1, 2)]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    width = 50 * (summary["interval"][1] - summary["interval"][0])
    ended, judged, suggested = out.splitlines()[-3:]
    assert ended == (
        f"FedAvg: accuracy last5 {summary['last5']:.1%}, best {summary['best']:.1%} "
        f"(±{width:.1f} points for 450 test samples at 95%). Written to {folder}"
    )
    assert "'1', for all 450 test samples: accuracy 10.2%" in judged
    what, _, command = suggested.partition(": ")
    better = "Not better" not in judged
    assert what == ("What the sources bring" if better else "Other methods on the same data")
    assert ("--methods target-only,fedavg" in command) is better
    assert command.startswith("fda compare ")
    assert {*SMALL} <= {*command.split()}


@pytest.mark.parametrize(
    ("about", "better", "methods"),
    [
        ({"method": "ridge"}, True, ["target-only", "ridge"]),
        ({"method": "ridge"}, False, list(USUAL)),
        ({"method": "fedprox", "method_options": {"mu": 0.5}}, True, ["target-only", "fedprox"]),
        ({"method": "fedgp", "beta": 0.25}, False, list(USUAL)),
        ({"method": "ridge", "target": "all", "sources": 3}, False, None),
    ],
)
def test_the_comparison_that_a_run_suggests_has_it_as_it_ran_and_others_that_fit(
    caught, about, better, methods
):
    config = RunConfig(**about)
    floor = 0.1 if better else 0.9
    summary = {"metric": "accuracy", "last5": 0.5, "baseline": {"accuracy": floor}, "parameters": 1}
    lines = advice(RunResult(config, [{}], summary | {"figures": {}}, {}, None))
    assert len(lines) == 1 + (methods is not None)
    if methods is not None:
        ((chosen, _, _), settings) = caught(*shlex.split(lines[-1].partition(": fda ")[2]))
        chosen = list(USUAL) if chosen == "usual" else chosen
        assert chosen == methods
        assert not {"rounds", "model"} & settings.keys()
        assert _config(config.method, 0, chosen, settings_in(settings)).fingerprint() == config.fingerprint()
        assert _config("fedavg", 0, chosen, settings_in(settings)).rounds == RunConfig.rounds


def test_a_run_completes_its_settings_once(fda, monkeypatch):
    built = Counter()

    def counting(kind):
        build = kind.__init__

        @wraps(build)
        def init(self, *args, **kwargs):
            built[kind.__name__] += 1
            build(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", init)

    counting(RunConfig)
    counting(DataSpec)
    monkeypatch.setattr("fda_flower.reporting.words.is_better", lambda summary: False)
    code, out, _ = fda("run", *SMALL, "--method", "fedavg")
    assert (code, "Other methods on the same data: fda compare --methods source-only," in out) == (0, True)
    assert built == {"RunConfig": 1, "DataSpec": 2}


def test_a_centralised_reference_ends_with_its_figures_and_has_a_page(fda):
    code, out, _ = fda("run", *SMALL, "--method", "central:erm", "--output", "run")
    assert (code, "ERM (centralised): accuracy last5" in out) == (0, True)
    assert fda("report", "--html", "run")[0] == fda("report", "--card", "run")[0] == 0


def test_a_private_run_ends_with_the_largest_epsilon(fda):
    _, out, _ = fda("run", *SMALL, "--dp-clip", "1", "--dp-noise", "4", "--output", "run")
    privacy = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))["privacy"]
    largest = max(told["epsilon"] for told in privacy.values())
    found = re.search(r"^Privacy: the largest ε is ([\d.]+), of ([\w-]+) \(δ = 1e-05\)$", out, re.M)
    assert found is not None
    assert (found[1], privacy[found[2]]["epsilon"]) == (f"{largest:.4g}", largest)


def test_another_headline_is_shown_and_summarised(fda):
    code, out, _ = fda("run", *SMALL, "--metric", "ece", "--output", "out")
    assert code == 0
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    errors = [json.loads(line)["ece"] for line in Path("out/rounds.jsonl").read_text().splitlines()]
    assert (summary["metric"], summary["best"]) == ("ece", min(errors))
    shown = f"calibration error last5 {summary['last5']:.1%}, best {summary['best']:.1%} (450 test samples)"
    assert shown in out
    assert "Better than" not in out, "how sure naming one class is, is not known"
    assert "accuracy last5" in fda("run", *SMALL, "--output", "out", "--resume")[1]
    again = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert again["confusion"] == summary["confusion"], "a run that has ended keeps it"


def test_run_writes_to_the_output_folder_what_python_records_and_resumes_it(fda, tmp_path):
    output = tmp_path / "out [b]"
    code, out, _ = fda("run", *SMALL, "--output", output, "--shift-option", "angle=45")
    assert code == 0
    assert str(output) in out
    more = ["--rounds", "3", "--output", output, "--resume"]
    assert fda("run", *SMALL, *more, "--shift-option", "angle=45")[0] == 0
    assert fda("run", "--config", output / "config.json", *more, "--rounds", "4")[0] == 0
    lines = (output / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    result = run(model="mlp", rounds=4, target_samples=16, device="cpu", shift_options={"angle": 45.0})
    assert [100 * json.loads(line)["accuracy"] for line in lines] == result.accuracies
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_the_defaults_of_run_are_those_of_the_configuration(caught):
    (config, how), _ = caught("run")
    assert config == RunConfig()
    assert (how.engine, how.resume, how.workers) == ("local", False, None)
    assert how.output == Path("runs/digits-rotate-fedgp-auto-seed0")


def test_options_of_each_form_become_settings(caught):
    options = "--shift-option angle=45 --shift-option invert=no --method fedgp --beta 0.1,0.2 --sources 2"
    options += " --target source-1 --learning-rate 0.1 --target-samples 40 --device cpu --threads 2"
    (config, _), _ = caught("run", *options.split())
    settings: dict[str, Any] = {"shift_options": {"angle": "45", "invert": "no"}, "method": "fedgp"}
    settings |= {"beta": (0.1, 0.2), "sources": 2, "target": "source-1", "learning_rate": 0.1}
    assert config == RunConfig(**settings, target_samples=40, device="cpu", threads=2)


def test_run_says_at_its_end_what_was_missing(fda, monkeypatch):
    def incomplete(config, how):
        good, bad = {"a": {}, "b": {}, "c": {}}, {"a": {}}
        history = [
            {"round": 1, "held": None, "sources": good, "dropped": []},
            {"round": 2, "held": None, "sources": bad, "dropped": [{"domain": "b"}]},
            {"round": 3, "held": "no target", "sources": {}, "dropped": []},
            {"round": 4, "held": None, "sources": bad, "dropped": [], "drawn": ["a"]},
        ]
        history = history[: how.workers]
        return RunResult(config, history, {"last5": 1.0, "best": 1.0}, {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr("fda_flower.experiments.run_config", incomplete)
    monkeypatch.setattr("fda_flower.experiments.pages.draw", lambda folder: None)
    _, out, _ = fda("run", "--workers", "4")
    assert "rounds without a new model: 1, rounds without all sources: 1, dropped replies: 1 (see" in out
    assert "Incomplete" not in fda("run", "--workers", "1")[1]


def test_run_passes_on_where_it_is_to_run(caught, monkeypatch):
    options = "--engine ray --workers 2 --gpus-per-client 0.5 --resume --output x -v"
    (_, how), _ = caught("run", *options.split())
    told = {"engine": "ray", "workers": 2, "gpus_per_client": 0.5, "resume": True, "output": Path("x")}
    assert vars(how).items() >= told.items()
    assert logging.getLogger("flwr").level == logging.INFO
    monkeypatch.setenv("FDA_DATA_DIR", "elsewhere")
    (config, how), _ = caught("run", "--engine", "deploy", "--connection", "prod")
    assert (how.engine, how.connection, config.data_dir) == ("deploy", "prod", "elsewhere")
    assert logging.getLogger("flwr").level == logging.WARNING


@pytest.mark.parametrize(("device", "share"), [("cpu", 0.0), ("cuda", 0.25), ("xpu", 0.25), ("mps", 0.0)])
def test_clients_share_a_gpu_evenly_if_there_is_one(caught, monkeypatch, device, share):
    monkeypatch.setattr("fda_flower.runs.network.find_device", lambda name: torch.device(device))
    for engine, each in (("ray", share), ("deploy", 0)):
        (_, how), _ = caught("run", "--engine", engine)
        assert how.gpus_per_client == each


@pytest.mark.parametrize(("flags", "said"), [([], "16 models\n"), (["--quiet"], "")])
def test_what_a_method_costs_is_a_line_of_the_command(fda, monkeypatch, flags, said):
    def say_cost_alone(*_, **__):
        COSTS.info("%d models", 16)
        raise RunError("Mixture: nothing")

    monkeypatch.setattr("fda_flower.experiments.run_config", say_cost_alone)
    assert fda("run", *flags) == (1, said, "Error: Mixture: nothing\n")
    assert (COSTS.handlers, COSTS.propagate) == ([], True)


# --config


def test_config_json_repeats_a_run_bit_for_bit_in_a_folder_of_its_own(fda):
    options = "--sources 2 --method fedgp --beta 0.3,0.7 --seed 3 --threads 1 --batch-size 32"
    assert fda("run", *SMALL, *options.split(), "--shift-option", "angle=45")[0] == 0
    first = Path("runs") / "digits-rotate-fedgp-seed3"
    before = files_below(first)
    for number in (2, 3):
        again = Path(f"{first}-{number}")
        code, out, err = fda("run", "--config", first / "config.json")
        assert (code, err) == (0, "")
        assert f"Written to {again}\n" in out
        for name in ("config.json", "model.safetensors"):
            assert (again / name).read_bytes() == (first / name).read_bytes()
    assert files_below(first) == before


@pytest.fixture
def config_json(tmp_path):
    """A maker of a `config.json` with settings."""

    def write(**settings):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"settings": RunConfig(**settings).settings()}), encoding="utf-8")
        return path

    return write


def test_options_on_the_command_line_win_over_those_of_config_json(caught, config_json, monkeypatch):
    monkeypatch.setenv("FDA_DATA_DIR", "elsewhere")
    path = config_json(rounds=5, seed=7, target_samples="10%", data_dir="/data", shift_options={"angle": 45})
    (config, _), _ = caught(
        "run", "--config", path, "--seed", "8", "--rounds", "30", "--target-samples", "all"
    )
    expected = RunConfig(seed=8, target_samples=None, data_dir="/data", shift_options={"angle": 45})
    assert config == expected
    _, where = caught("compare", "--config", path)
    assert (where["rounds"], where["target_samples"]) == (5, "10%")
    assert not {"method", "seed"} & set(where)


@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        ({"beta": 0.3, "variant": "paper", **COSINE}, "--method fedavg", {"method": "fedavg"}),
        ({"shift_options": {"angle": 45}}, "--shift color", {"shift": "color"}),
        ({"sources": 2, "seed": 4}, "--dataset heart", {"dataset": "heart", "seed": 4}),
        ({"model": "resnet18", "model_options": {"weights": "x"}}, "--model mlp", {"model": "mlp"}),
    ],
)
def test_another_thing_does_not_get_the_options_of_the_one_in_config_json(
    caught, config_json, settings, options, expected
):
    (config, _), _ = caught("run", "--config", config_json(**settings), *options.split())
    assert config == RunConfig(**expected)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"run": {}}', '{"settings": {"speed": 1}}', '{"settings": {"rounds": "many"}}']
)
def test_a_file_without_settings_is_one_line(fda, text):
    Path("config.json").write_text(text, encoding="utf-8")
    code, _, err = fda("run", "--config", "config.json")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "config.json" in err or "many" in err


# fda compare


def test_compare_writes_tables_and_a_picture_and_shows_the_table(fda, in_process):
    code, out, err = fda(*COMPARE, "--methods", "fedavg,fedgp", "--seeds", "2", "--jobs", "1")
    assert (code, err) == (0, "")
    assert {path.name for path in Path("c").iterdir()} == {
        *(".lock", "experiment.json", "experiment.toml", "report", "report.md", "runs"),
    }
    assert {path.name for path in Path("c/report").iterdir()} == {
        *("comparison-runs.png", "comparison.csv", "comparison.tex"),
    }
    lines = Path("c/report.md").read_text(encoding="utf-8").splitlines()
    (caption,) = (line for line in lines if line.startswith("Target test accuracy"))
    for line in [line for line in lines if line.startswith("| ")][2:4]:
        label, last5, best, *_ = (cell.strip(" *") for cell in line.strip("|").split("|"))
        assert re.search(rf"{label}\s+\S+\s+{re.escape(last5)}\s+\S+\s+{re.escape(best)}", out)
    assert caption in out
    assert "points for 450 test samples at 95%." in caption
    assert "Written to c" in out
    code, _, err = fda(*COMPARE, "--methods", "fedavg,fedgp")
    assert (code, "already holds a comparison" in err) == (2, True)


ALONE = (
    *("fedprox", "feddaf", "feddwa", "fedavg-ft", "ditto", "irm", "vrex", "groupdro", "fedomg"),
    *("kd3a", "fada", "apfl", "knn-per", "pfedfda", "fedper", "fedrep", "fedbn"),
    *("finetune-offline", "oracle"),
)
"""Methods that `fda compare` runs only when it is asked."""


def test_the_defaults_of_compare_are_those_of_the_configuration(caught):
    (methods, seeds, output), where = caught("compare")
    names = {field.name for field in dataclasses.fields(RunConfig)}
    config = RunConfig(**{name: value for name, value in where.items() if name in names})
    assert {**config.fingerprint(), "method": ""} == {**RunConfig().fingerprint(), "method": ""}
    assert config.rounds == RunConfig().rounds
    assert (methods, list(USUAL)) == ("usual", [m for m in METHODS if m not in ALONE])
    assert (list(seeds), output) == ([0, 1, 2], Path("runs/compare"))
    assert (where["workers"], where["resume"]) == (None, False)
    options = ["--methods", "fedavg, fedgp", "--method-option", "magnitude=cosine", "--resume"]
    (methods, _, _), where = caught("compare", *options)
    assert list(methods) == ["fedavg", "fedgp"]
    assert (where["method_options"], where["resume"]) == ({"magnitude": "cosine"}, True)


@pytest.mark.parametrize(("workers", "jobs"), [(2, 3), (4, 1), (8, 1)])
def test_cells_with_workers_leave_each_other_a_core_for_each_worker(caught, monkeypatch, workers, jobs):
    monkeypatch.setattr("fda_flower.cli.runs.usable_cores", lambda: 6)
    _, where = caught("compare", "--workers", workers)
    assert (where["workers"], where["jobs"]) == (workers, jobs)


def test_compare_with_all_methods_says_which_it_leaves_out(fda, monkeypatch):
    def compare(methods, *_, **__):
        assert methods == "all"
        results = Results(Design(name="c", title="c"), [], [""], {}, 0)
        return Comparison(results, {}, Path("c"), {"some": "method 'some' needs what is not there"})

    monkeypatch.setattr("fda_flower.experiments.compare", compare)
    code, out, _ = fda("compare", "--methods", "all")
    assert code == 0
    assert "Left out: method 'some' needs what is not there" in out


# Mistakes: each kind once; `tests/runs` and `tests/experiments` have them all, `test_light.py` a used folder.


@pytest.mark.parametrize(
    ("arguments", "value", "remedy"),
    [
        ("run --method [/bold]", "'[/bold]'", "choose one of apfl, central:coral"),
        ("run --shift-option angle", "'angle'", "NAME=VALUE"),
        ("run --target-samples 100000", "100000", "ask for fewer"),
        ("run --device cuda", "'cuda'", "use auto or cpu"),
        ("compare --seeds 0", "seeds is '0'", "give their number"),
        ("compare --seeds 20261130", "seeds is '20261130'", "7-7 for seed 7 alone"),
        ("compare --seeds 0-99999999999999999999", "more than 10,000", "give their number"),
        ("run --output=", "'--output'", "a variable of the shell"),
        (f"run --output {300 * 'x'}", f"{300 * 'x'}/config.json'", "choose another"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_value_and_the_remedy(
    fda, in_process, tmp_path, monkeypatch, arguments, value, remedy
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    command, *options = arguments.split()
    code, _, err = fda(command, *SMALL, "--device", "auto", *options)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("Error: ")
    assert value in err
    assert remedy in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "output"),
    [
        *product(("run --method fedavg", "compare --methods fedavg"), ("file", "file/below", "/proc/x")),
        *product(("predict nowhere", "export nowhere"), (".", "file/below.csv", "/proc/x/y.csv")),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_loaded(
    fda, monkeypatch, command, output
):
    monkeypatch.setattr("fda_flower.server_app.load_federation", None)
    Path("file").touch()
    code, out, err = fda(*command.split(), "--output", output)
    assert (code, out) == (2, "")
    path = Path(output).absolute()
    assert re.search(f"'{path}'|'{path.parent}'|output is '.'", err)
    assert "choose another --output" in err
    assert [path.name for path in Path().iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Error: No space left on device: free some"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/d/south.csv"),
            "Error: Permission denied",
        ),
    ],
)
def test_what_the_disk_refuses_is_one_line(fda, monkeypatch, error, says):
    monkeypatch.setattr("fda_flower.experiments.run_config", Mock(side_effect=error))
    code, _, err = fda("run", "--method", "fedavg", *SMALL)
    assert code in (1, 2)
    assert err.splitlines()[-1].startswith(says)
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", ["run --nope", "run --rounds many", "nope", "experiment", "report"])
def test_what_the_command_line_itself_does_not_take_is_a_usage_error(fda, tmp_path, arguments):
    code, _, err = fda(*arguments.split())
    assert code == 2
    assert "Usage" in err
    assert arguments.split()[-1] in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
