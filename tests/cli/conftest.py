"""Commands are called in an empty folder, in a wide terminal without colours."""

import logging
import signal

import pytest
from in_process import run_all
from prediction.conftest import digits_run, image_run, patients_run, regression_run, run_in, table_run  # noqa: F401

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """An empty working directory, a wide terminal; Flower's log and signals are as they were afterwards."""
    for name, value in {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    level, handlers = logging.getLogger("flwr").level, {each: signal.getsignal(each) for each in SIGNALS}
    yield
    logging.getLogger("flwr").setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def in_process(monkeypatch):
    """Comparisons and experiments whose cells run here, one after the other."""
    monkeypatch.setattr("fda_flower.running.processes.run_all", run_all)
