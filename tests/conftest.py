"""Shared by all tests: quiet, offline, and fast."""

import gc
import importlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
# Test processes share the cores: where each has a thread for every core, the threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import flwr  # noqa: F401 - sets up its logger, which is then made quiet
import hypothesis
import pytest
from installed import describe
from matplotlib.figure import Figure
from waiting import running_in, until

from fda_flower.wire.internals import task_identity

logging.getLogger("flwr").setLevel(logging.ERROR)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

TESTS = Path(__file__).resolve().parent
# The plug-in of the experiments, as if it were installed, here and in the processes that tests start.
BOARD = TESTS.parent / "experiments" / "tools" / "board"
METADATA = tempfile.TemporaryDirectory()
describe(Path(METADATA.name), "fda_board", (BOARD / "pyproject.toml").read_text(encoding="utf-8"))
sys.path += (added := [METADATA.name, str(BOARD)])
os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *added])

SAVE = Figure.savefig
# Half of a small run's time would go into its picture: a file is empty, unless a test asks for `pictures`.
Figure.savefig = lambda figure, file, **how: None  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while modules are imported, nor later in what they hold."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def pictures(monkeypatch):
    """Have figures drawn."""
    monkeypatch.setattr(Figure, "savefig", SAVE)


@pytest.fixture(scope="session", autouse=True)
def rule():
    """Have runs that name no method train in rounds by FedGP_Auto, as most tests need; the rule otherwise."""
    config = importlib.import_module("fda_flower.runs.completion")
    rule = config.fitting_method
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "fitting_method", lambda *_: ("fedgp-auto", "the tests need rounds"))
        yield rule


@pytest.fixture
def by_the_rule(rule, monkeypatch):
    """Have runs that name no method take the one that fits, as they do outside the tests."""
    monkeypatch.setattr("fda_flower.runs.completion.fitting_method", rule)


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


class CaughtError(Exception):
    """Stops a command once it has called what was to be tested."""


@pytest.fixture
def caught(monkeypatch):
    """What a command calls with which arguments, by position and by name; it does not run."""

    def catch(*positional, **named):
        raise CaughtError(positional, named)

    for name in ("run_config", "compare", "run_experiment"):
        monkeypatch.setattr(f"fda_flower.experiments.{name}", catch)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fda", *map(str, arguments)])
        with pytest.raises(CaughtError) as caught:
            importlib.import_module("fda_flower.cli").main()
        return caught.value.args

    return call


@pytest.fixture
def flower_log(caplog, monkeypatch):
    """What Flower's log has from warnings on."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING, "flwr")
    return caplog


@pytest.fixture(scope="module")
def flower(tmp_path_factory):
    """The environment of `flwr run` in a home of its own, with a SuperLink that simulates nodes.

    Flower would start one, but gives it 15 seconds, which are too few on a busy machine.
    """
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {
        **os.environ,
        "HOME": str(home),
        "FLWR_HOME": str(home / ".flwr"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}",
    }
    command = "flower-superlink --insecure --simulation --isolation subprocess --host 127.0.0.1 --port"
    superlink = subprocess.Popen([*command.split(), port], cwd=home, env=environment)
    until(lambda: _listens(port) or superlink.poll() is not None)
    yield environment
    superlink.terminate()
    superlink.wait()
    for process in running_in(home):
        process.kill()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@pytest.fixture
def in_a_run():
    """Flower lets messages be made inside a run only."""
    with task_identity():
        yield
