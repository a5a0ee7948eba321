"""Processes that benchmarks compare, and the script for a machine with a GPU."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PACKAGE = "import fda_flower; print(fda_flower.__file__)"


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("common")
    del sys.modules["common"]


def test_a_process_has_its_own_memory_and_the_package_of_its_checkout(common, tmp_path):
    (tmp_path / "fda_flower").mkdir()
    (tmp_path / "fda_flower" / "__init__.py").touch()
    ballast = b"x" * (2 * 10**8)
    own, other = (common.Process(("-c", PACKAGE), checkout=each) for each in (BENCHMARKS.parent, tmp_path))
    costs = [each.cost() for each in (own, other)]
    assert [Path(cost.output.strip()).parents[1] for cost in costs] == [BENCHMARKS.parent, tmp_path]
    assert all(0 < cost.megabytes < 100 < len(ballast) / 1e6 and cost.seconds > 0 for cost in costs)


def test_a_process_that_fails_says_why(common):
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1.*ZeroDivisionError"):
        common.Process(("-c", "1 / 0")).cost()


@pytest.mark.parametrize("base", [True, False])
def test_the_least_numbers_are_printed_with_those_of_the_base(common, monkeypatch, tmp_path, base):
    (tmp_path / "fda_flower").mkdir()
    monkeypatch.delenv("FDA_BASE", raising=False)
    if base:
        monkeypatch.setenv("FDA_BASE", str(tmp_path))
    code = f"import os; print(7 if '{tmp_path}' in os.environ['PYTHONPATH'] else 5)"
    printed = common.printed_with_base({"x": common.Process(("-c", code))}, 1)
    assert printed == {"x": (7.0 if base else None, 5.0)}
    assert common.cell(printed["x"][0]) == ("7.00" if base else "not measured")


def test_a_base_without_the_package_is_refused(common, monkeypatch, tmp_path):
    monkeypatch.setenv("FDA_BASE", str(tmp_path))
    with pytest.raises(SystemExit, match="no folder fda_flower"):
        common.base_checkout()


def gpu(*options):
    environment = {**os.environ, "PYTHON": "false"}
    command = ["bash", str(BENCHMARKS / "gpu.sh"), *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_each_part_for_a_gpu_has_a_row_whatever_happens_to_the_others():
    done = gpu("--quick")
    rows = done.stdout.splitlines()[-5:]
    assert done.returncode == 1
    assert [row.split()[1] for row in rows] == ["A", "B", "methods", "features", "fedgp"]
    assert all("failed with 1" in row for row in rows)
    assert "--device cuda" in gpu("--help").stdout
    assert "'--fast'" in gpu("--fast").stderr
