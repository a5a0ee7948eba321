"""`fda tune`, as a user calls it."""

import json
import signal
from unittest.mock import Mock

import pytest

from fda_flower.experiments import tuning

SMALL = ("--model", "mlp", "--rounds", "2", "--sources", "2", "--target-samples", "60")


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
    ("arguments", "says"),
    [
        ((), "nothing to search"),
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
