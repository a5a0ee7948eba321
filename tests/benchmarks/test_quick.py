"""Each benchmark runs: `--quick` is what a reader tries first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if "quick_asked(" in path.read_text())
OF_IMAGES = {"evaluation": "FashionMNIST", "trained": "PACS", "sent": "PACS"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "common"])
def test_a_benchmark_prints_its_tables(name, tmp_path):
    data = Path(os.environ.get("FDA_DATA_DIR", "")) / OF_IMAGES.get(name, "")
    if name in OF_IMAGES and not ("FDA_DATA_DIR" in os.environ and data.is_dir()):
        pytest.skip(f"needs {OF_IMAGES[name]} in FDA_DATA_DIR")
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr[-2000:]
    assert "| ---:" in process.stdout
