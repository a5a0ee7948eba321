"""The command of `make demo`, on one seed and few rounds."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fda_flower.cli.runs import COMPARED
from fda_flower.runs.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent


def demo_command():
    """What the Makefile runs, without the folder of its environment."""
    (line,) = [
        line.strip()
        for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
        if "fda compare" in line
    ]
    return shlex.split(line.split("/", 1)[1])


@pytest.mark.slow
def test_the_demo_ends_with_a_table_and_a_picture(tmp_path):
    program, *arguments = demo_command()
    assert program == "fda"
    small = {"--rounds": "2", "--seeds": "1", "--output": str(tmp_path / "demo")}
    for option, value in small.items():
        arguments[arguments.index(option) + 1] = value
    done = subprocess.run(
        [Path(sys.executable).parent / program, *arguments], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    methods = COMPARED.split(",")
    for method in methods:
        assert METHODS[method].label in done.stdout
    table = (tmp_path / "demo/table.md").read_text(encoding="utf-8")
    assert table.count("\n|") == 1 + len(methods)
    assert (tmp_path / "demo/comparison.png").read_bytes().startswith(b"\x89PNG")
