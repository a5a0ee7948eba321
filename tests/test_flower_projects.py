"""Patterns of Flower's own projects, written for these tests in `flower_projects/`, by a real `flwr run`."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PROJECT = """
[project]
name = "{title}"
version = "1.0.0"
description = "A pattern"
license = {{ file = "LICENSE" }}
dependencies = ["flwr[simulation]>=1.30"]

[tool.flwr.app]
publisher = "nobody"
fab-format-version = 1
flwr-version-target = "1.30.0"

[tool.flwr.app.components]
serverapp = "{name}:server"
clientapp = "{name}:client"
"""
BETAS = r"β 0 [01]\.\d\d, 1 [01]\.\d\d, 2 [01]\.\d\d$"
"""Each estimated, since none is marked as fixed."""


def flwr_run(name, flower, folder):
    """Run a project of `flower_projects` with four nodes, and return what the user sees, without colours."""
    folder /= name
    folder.mkdir()
    project = PROJECT.format(name=name, title=name.replace("_", "-"))
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    for part in ("LICENSE", "README.md"):
        (folder / part).write_text("A test.", encoding="utf-8")
    shutil.copy(TESTS / "flower_projects" / f"{name}.py", folder)
    nodes = "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=1"
    done = subprocess.run(
        ["flwr", "run", ".", "--stream", "--federation-config", nodes],
        cwd=folder,
        env=flower,
        capture_output=True,
        text=True,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


PATTERNS = {
    "dictionaries": rf"round 2/2: target eval_loss 0\.1, server accuracy 0\.5; {BETAS}",
    "mixing": r"round 2/2: target eval_acc [\d.]+, mixture_acc [\d.]+$",
    "unnamed_arrays": r"round 2/2: target eval_loss 0\.1; β 0 0\.50, 1 0\.50, 2 0\.50$",
    "frozen_body": rf"round 2/2: server accuracy 0\.5; {BETAS}",
    "adapters": rf"round 2/2: target eval_loss 0\.1; {BETAS}",
    "mod_around_app": rf"round 2/2: target eval_loss 0\.1; {BETAS}",
    "options": rf"round 2/2: target loss 0\.25; {BETAS}",
    "older": r"round 2: target loss 0\.125, server loss 0\.75, acc 0\.5; β 0 0\.50, 1 0\.50, 2 0\.50$",
    "short_starts": r"round 3/3: target loss 0\.25; β 1 1\.00, 2 1\.00$",
    "own_head": r"Round 2: β is fixed for each of 3 nodes \(0, 1, 2\): .* does your client begin with the",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_of_flowers_projects_runs_without_a_traceback(name, flower, tmp_path):
    if name == "adapters":
        pytest.importorskip("peft")
    shown = flwr_run(name, flower, tmp_path)
    assert re.search(PATTERNS[name], shown, re.MULTILINE), shown
    assert "Traceback" not in shown, shown


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), [("failing", 10), ("failing_older", 21)])
def test_what_all_clients_lack_is_the_last_line_of_its_first_round(name, line, flower, tmp_path):
    shown = flwr_run(name, flower, tmp_path)
    assert "all 4 nodes asked to train (0, 1, 2, 3) fail alike" in shown, shown
    assert f"KeyError: 'lr' ({name}.py, line {line})" in shown, shown
    assert not re.search(r"round 2", shown, re.IGNORECASE)
