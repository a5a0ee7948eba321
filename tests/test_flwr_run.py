"""`flwr run .`, as the README says it: a real SuperLink, Ray, and the same bits as in this process."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from whole_runs import same_bits

from fda_flower import run
from fda_flower.strategies import RunFolder

ROOT = Path(__file__).resolve().parent.parent


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
