"""Shared by all tests: quiet, offline, and fast."""

import importlib
import logging
import os
import sys

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
# Test processes share the cores: where each has a thread for every core, the threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import flwr  # noqa: F401 - sets up its logger, which is then made quiet
import hypothesis
import pytest
from matplotlib.figure import Figure

from fda_flower.wire.internals import task_identity

logging.getLogger("flwr").setLevel(logging.ERROR)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

SAVE = Figure.savefig
# Half of a small run's time would go into its picture: a file is empty, unless a test asks for `pictures`.
Figure.savefig = lambda figure, file, **how: None  # type: ignore[method-assign]


@pytest.fixture
def pictures(monkeypatch):
    """Have figures drawn."""
    monkeypatch.setattr(Figure, "savefig", SAVE)


@pytest.fixture
def fda(monkeypatch, capsys):
    """Call the command as the shell does; its exit code, standard output and standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fda", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            importlib.import_module("fda_flower.cli").main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return call


@pytest.fixture
def in_a_run():
    """Flower lets messages be made inside a run only."""
    with task_identity():
        yield
