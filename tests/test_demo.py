"""The command of `make demo`, on one seed and few rounds."""

import re
import shlex
from pathlib import Path

import pytest

from fda_flower.experiments.comparison import USUAL
from fda_flower.runs.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_the_demo_ends_with_a_table_and_a_picture(fda, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (command,) = re.findall(r"/fda (compare .+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    small = ("--rounds", 2, "--seeds", 1, "--output", tmp_path / "demo")
    code, shown, said = fda(*shlex.split(command), *small)
    assert code == 0, said
    methods = USUAL
    assert [method for method in methods if METHODS[method].label not in shown] == []
    table = (tmp_path / "demo/report.md").read_text(encoding="utf-8")
    assert table.count("\n|") == len(["rule", *methods, "most frequent class"])
    assert (tmp_path / "demo/report/comparison-runs.png").read_bytes().startswith(b"\x89PNG")
