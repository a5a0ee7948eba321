"""`fda tune`, as a user calls it."""

import json
import signal
from unittest.mock import Mock

import pytest

from fda_flower.experiments import run_config, tuning

SMALL = ("--model", "mlp", "--rounds", "2", "--sources", "2", "--target-samples", "60")

FILE = """
title = "Small"
seeds = [0]
columns = [{ label = "60 labels", target-samples = 60 }]
rows = [{ label = "FedAvg", method = "fedavg" }, { label = "Ditto", method = "ditto" }]
[run]
dataset = "digits"
sources = 2
model = "mlp"
rounds = 2
"""


def test_a_search_ends_with_the_best_settings_which_a_run_takes(fda, tmp_path):
    folder = tmp_path / "tune"
    arguments = ("tune", *SMALL, "--search", "batch-size=8,16", "--trials", "5", "--output", folder)
    code, out, _ = fda(*arguments)
    assert code == 0
    assert "FedGP_Auto: best of 2 trials: trial" in out
    assert "batch-size = " in out
    assert {path.name for path in folder.iterdir()} == {
        *(".lock", "study.db", "trials.md", "trials.csv", "trials.png", "best.json")
    }
    assert json.loads((folder / "best.json").read_text())["settings"]["validation"] is None
    code, _, error = fda(*arguments)
    assert code == 2
    assert "already holds a search: continue it with --resume" in error
    assert fda(*arguments, "--resume")[0] == 0
    code, out, _ = fda("run", "--config", folder / "best.json", "--output", tmp_path / "run")
    assert code == 0
    assert "selected" not in out


@pytest.mark.parametrize(
    ("own", "options", "found"),
    [({}, [], "0.2"), ({"validation": "cv:2"}, [], "cv:2"), ({"validation": 0.5}, ["0.4"], "0.4")],
)
def test_an_experiment_says_which_labels_are_held_out_unless_told_otherwise(
    fda, tmp_path, monkeypatch, own, options, found
):
    file, makers = tmp_path / "small.toml", []
    file.write_text(FILE + "".join(f"{name} = {json.dumps(value)}\n" for name, value in own.items()))

    def search(name, make, folder, *_, **how):
        makers.append(make)
        return {"folder": folder}

    monkeypatch.setattr("fda_flower.cli.tune._search", search)
    options = [word for value in options for word in ("--validation", value)]
    assert fda("tune", file, "--search", "epochs=1,2", *options)[0] == 0
    assert {make(0, {}).validation for make in makers} == {found}


def test_an_experiment_has_a_search_for_each_cell_it_is_told(fda, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(FILE)
    arguments = ("--search", "method-option.lam=0.1,1", "--trials", "2", "--output", tmp_path / "tune")
    code, out, _ = fda("tune", file, "--only", "Ditto", *arguments, "--validation", "cv:2", "--seeds", "4-5")
    assert code == 0
    assert "Ditto, 60 labels: best of 2 trials" in out
    assert "method-options.lam = " in out
    assert [path.name for path in (tmp_path / "tune").iterdir()] == ["Ditto-60_labels"]
    found = json.loads((tmp_path / "tune" / "Ditto-60_labels" / "best.json").read_text())
    assert found["settings"]["seed"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to search"),
        (("--search", "epochs=1,2", "--only", "FedAvg"), "only is 'FedAvg'"),
        (("--search", "epochs=1,2", "--seeds", "x"), "seeds is 'x'"),
        (("--search", "epochs=1,2", "--seeds", "3", "--seed", "4"), "seed is 4, but --seeds"),
        (("--search", "batch-size=8,16", "--batch-size", "4"), "batch-size is 4, but --search"),
        (("--search", "epochs=1,2", "--target-samples", "9"), ", 9"),
    ],
)
def test_a_mistake_is_one_line_before_any_trial(fda, tmp_path, arguments, says):
    code, _, error = fda("tune", *arguments, "--output", tmp_path / "tune")
    assert code == 2
    assert says in error
    assert not (tmp_path / "tune").exists()


def test_a_cell_without_a_complete_trial_is_named_and_the_others_are_searched(fda, tmp_path, monkeypatch):
    file = tmp_path / "small.toml"
    file.write_text(FILE)

    def run(config, how):
        if config.method == "fedavg":
            raise RuntimeError("no luck")
        return run_config(config, how)

    monkeypatch.setattr(tuning, "run_config", run)
    arguments = ("--search", "epochs=1,2", "--trials", "2", "--output", tmp_path / "tune")
    code, out, _ = fda("tune", file, *arguments, "--json")
    found = json.loads(out)
    assert (code, [one["cell"] for one in found["searches"]]) == (1, ["Ditto, 60 labels"])
    (cell, reason), *_ = found["failures"].items()
    assert cell == "FedAvg, 60 labels"
    assert "no trial of 2 is complete, the first because RuntimeError('no luck')" in reason
    code, out, _ = fda("tune", file, *arguments, "--resume", "--quiet")
    assert (code, [line.split(": ")[0] for line in out.splitlines()][1:]) == (1, ["Failed"])


def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("run", "code", "says"),
    [
        (interrupt, 130, "holds the finished trials. Continue with: fda tune"),
        (
            Mock(side_effect=RuntimeError("no luck")),
            1,
            "no trial of 2 is complete, the first because Runtime",
        ),
    ],
)
def test_a_search_that_is_interrupted_or_fails_says_so(fda, tmp_path, monkeypatch, run, code, says):
    monkeypatch.setattr(tuning, "run_config", run)
    found = fda("tune", *SMALL, "--search", "epochs=1,2", "--output", tmp_path / "tune")
    assert (found[0], found[1]) == (code, "")
    assert says in found[2]
    assert (tmp_path / "tune" / "trials.md").exists() == (code == 1)
