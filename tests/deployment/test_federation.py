"""A federation of real processes: what is started, with which arguments, and that nothing stays."""

import os
import shlex
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from naming import names

from fda_flower.deployment import Federation, federation
from fda_flower.errors import ConfigError, RunError

NODES: dict[str, dict[str, str | int | float]] = {
    "source-1": {"role": "source", "domain": "source-1", "data-dir": 'a "quoted" folder'},
    "target": {"role": "target", "domain": "target", "share": 0.5, "number": 3},
}


class FakeService:
    """Records what would be started."""

    def __init__(self, name, command, folder, environment, temporary=False):
        self.name, self.command = name, command

    def wait_until_it_says(self, text, timeout):
        pass


@pytest.fixture
def started(monkeypatch):
    """The `flwr` commands that a federation without processes ran, and its services that were ended."""
    commands, ended = [], []
    monkeypatch.setattr(federation, "Service", FakeService)
    monkeypatch.setattr(federation, "end", lambda services, kill=False: ended.extend(services))
    monkeypatch.setattr(Federation, "_flwr_process", nullcontext)
    monkeypatch.setattr(Federation, "_flwr", lambda self, process, given: commands.append(given))
    return commands, ended


@pytest.mark.parametrize("secure", [True, False])
def test_what_is_started_and_written_for_it(started, tmp_path, secure):
    commands, ended = started
    with Federation(tmp_path, NODES, secure=secure) as running:
        pass
    told = {each.name: shlex.join(each.command[1:]).replace(str(tmp_path), "F") for each in ended}
    own = os.path.dirname(sys.executable)
    assert {os.path.dirname(service.command[0]) for service in ended} == {own}
    assert running.environment["PATH"].split(os.pathsep)[0] == own
    port = running.address.split(":")[1]
    link = f"--host 127.0.0.1 --port {port} --database F/state.db --disable-runtime-dependency-installation "
    if secure:
        link += "--ssl-ca-certfile F/certificates/ca.crt --ssl-certfile F/certificates/server.crt "
        link += "--ssl-keyfile F/certificates/server.key --enable-supernode-auth"
    assert told["superlink"] == link + ("" if secure else "--insecure")
    trust = " --root-certificates F/certificates/ca.crt --auth-supernode-private-key F/keys/target"
    begin = f"-m fda_flower.supernode.command --superlink {running.address} --host 127.0.0.1 --port "
    assert told["target"].startswith(begin)
    assert told["target"].endswith("--node-config F/nodes/target.toml" + (trust if secure else " --insecure"))
    register = [
        shlex.split(f"supernode register {tmp_path}/keys/{name}.pub rehearsal --name {name}")
        for name in NODES
    ]
    assert commands == ([register] if secure else [])
    for name, config in NODES.items():
        assert tomllib.loads((tmp_path / "nodes" / f"{name}.toml").read_text(encoding="utf-8")) == config
    home = tomllib.loads((Path(running.environment["FLWR_HOME"]) / "config.toml").read_text())
    ca = {"root-certificates": str(tmp_path / "certificates" / "ca.crt")} if secure else {"insecure": True}
    at = {"address": running.address, **ca}
    assert home == {"superlink": {"default": "rehearsal", "rehearsal": at}}


def test_a_node_that_is_not_there_is_an_error_that_names_it(tmp_path):
    running = Federation(tmp_path, NODES)
    for call in (running.start_node, running.stop_node, running.wait_for_node, running.logs):
        with pytest.raises(ConfigError, check=names("node", "nobody")):
            call("nobody")


def test_what_was_started_is_ended_if_a_later_start_fails(started, tmp_path, monkeypatch):
    monkeypatch.setattr(Federation, "wait_for_node", lambda self, name: 1 / 0)
    with pytest.raises(ZeroDivisionError), Federation(tmp_path, NODES, secure=False):
        pass
    assert {service.name for service in started[1]} == {"superlink", "source-1", "target"}


def test_flwr_commands_run_one_after_another_in_one_process_and_failures_say_why(tmp_path):
    running = Federation(tmp_path, {}, secure=False)
    with running._flwr_process() as process:
        assert running._flwr(process, [["--help"], ["--help"]]).count("Usage: flwr") == 2
    with pytest.raises(RunError, match=r"(?s)'flwr nonsense' failed with exit code 2: .*No such command"):
        running.flwr("nonsense")


def test_a_process_that_is_given_no_flwr_commands_ends(tmp_path):
    with Federation(tmp_path, {}, secure=False)._flwr_process() as process:
        pass
    assert process.returncode
