"""Commands are called in an empty folder, in a wide terminal without colours."""

import logging
import signal

import pytest
from in_process import run_all
from prediction.conftest import (  # noqa: F401
    digits_run,
    image_run,
    patients_run,
    quick_export,
    regression_run,
    run_in,
    table_run,
)

from fda_flower.cli.output import out

SIGNALS = (signal.SIGTERM, signal.SIGHUP)

RECORD = {
    **{"round": 1, "accuracy": 0.5, "held": None, "sources": {"source-1": {"beta": 0.25}}, "seconds": {}},
    "dropped": [{"domain": "source-2", "reason": "its node is [offline]"}],
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """An empty working directory, a wide terminal; Flower's log and signals are as they were afterwards."""
    for name, value in {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    out.begin()
    level, handlers = logging.getLogger("flwr").level, {each: signal.getsignal(each) for each in SIGNALS}
    yield
    logging.getLogger("flwr").setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def in_process(monkeypatch):
    """Comparisons and experiments whose cells run here, one after the other."""
    monkeypatch.setattr("fda_flower.running.processes.run_all", run_all)


@pytest.fixture
def rehearsed(monkeypatch):
    """What `fda deploy rehearse` asks for, without processes."""
    calls = []

    def rehearse(config, output, *, on_step, on_round):
        calls.append((config, str(output)))
        on_step("Starting ward [north]")
        on_round(RECORD)
        return [RECORD]

    monkeypatch.setattr("fda_flower.deployment.rehearse", rehearse)
    return calls
