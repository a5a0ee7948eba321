"""benchmarks/simulation.py compares runs in which every client trains."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

APP = """
import time

def main():
    for number in range(1, 6):
        print("ROUND", number, time.time())
    print("aggregate_train: Received {results} results and {failures} failures")
"""


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("simulation").measured
    for name in ("common", "simulation"):
        del sys.modules[name]


def test_a_run_is_measured_by_its_rounds(measured):
    found = measured(APP.format(results=10, failures=0))
    assert 0 < found["first round (s)"] < 60
    assert found["memory (MiB)"] > 0


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (APP.format(results=0, failures=10), "and 10 failures"),
        (APP.format(results=9, failures=1), "and 1 failures"),
        (APP.format(results=10, failures=0) + "    raise ValueError('lost')\n", "ValueError: lost"),
        (APP.replace("range(1, 6)", "range(1, 3)").format(results=10, failures=0), "ROUND 2"),
    ],
    ids=["all clients failed", "one client failed", "an error", "too few rounds"],
)
def test_a_run_that_did_not_do_its_work_is_not_measured(measured, code, says):
    with pytest.raises(SystemExit, match=says):
        measured(code)
