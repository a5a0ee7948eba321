"""`flwr run .`, as the README says it: a real SuperLink, Ray, and the same bits as in this process."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import until
from whole_runs import same_bits

from fda_flower import run
from fda_flower.strategies import RunFolder

ROOT = Path(__file__).resolve().parent.parent
SUPERLINK_PORT = 39091


def superlink_runs():
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", SUPERLINK_PORT)) == 0


@pytest.fixture
def flower(tmp_path):
    """Flower's environment in a home of its own, with the SuperLink that it starts stopped after."""
    if superlink_runs():
        pytest.skip(f"a SuperLink runs on port {SUPERLINK_PORT} already")
    home = tmp_path / "home"
    home.mkdir()
    bin_dir = str(Path(sys.executable).parent)
    yield {
        **os.environ,
        "HOME": str(home),
        "FLWR_HOME": str(home / ".flwr"),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(["pkill", "-f", str(home)], check=False)
    until(lambda: not superlink_runs())


def own_models(run_folder):
    """What the clients of a run have kept for themselves, by file."""
    folder = run_folder / "clients"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


@pytest.mark.slow
def test_flwr_run_gives_the_same_bits_as_the_local_engine(flower, tmp_path):
    method: dict[str, Any] = {"method": "mixture", "method_options": "epochs=1,2 every=1"}
    method |= {"dp_clip": 1.0, "dp_noise": 0.01}
    named = " ".join(f"{key.replace('_', '-')}={value!r}" for key, value in method.items())
    app = tmp_path / "app"
    app.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, app)
    shutil.copytree(ROOT / "fda_flower", app / "fda_flower", ignore=shutil.ignore_patterns("__pycache__"))
    output = tmp_path / "run"
    settings = f"rounds=2 sources=2 target-batch-size=8 output='{output}' {named}"
    done = subprocess.run(
        [
            *("flwr", "run", ".", "--stream", "--run-config", settings),
            *("--federation-config", "num-supernodes=3 client-resources-num-cpus=1"),
        ],
        cwd=app,
        env=flower,
        capture_output=True,
        text=True,
    )
    assert (output / "summary.json").exists(), done.stdout + done.stderr
    local = run(sources=2, target_batch_size=8, rounds=2, output=tmp_path / "local", **method)
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert summary["parameters"] == local.summary["parameters"]
    checkpoint = RunFolder(output).load_checkpoint()
    assert checkpoint.round == 2
    assert same_bits(local.model, checkpoint.model)
    assert own_models(output) == own_models(tmp_path / "local")
    assert {Path(name).name for name in own_models(output)} == {"mixture.safetensors"}
