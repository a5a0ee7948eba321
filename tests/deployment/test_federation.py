"""A federation of real processes: what is started, with which arguments, and that nothing stays."""

import json
import os
import shlex
import sys
import tomllib

import psutil
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
        self.name, self.command, self.environment = name, command, environment

    def wait_until_it_says(self, text, timeout):
        pass


@pytest.fixture
def started(monkeypatch):
    """A federation's services by name, without processes, and the `flwr` commands that it ran."""
    commands, ended = [], []

    class FakeProcess:
        returncode = 0

        def __init__(self, *args, **kwargs):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def communicate(self, given):
            commands.append(json.loads(given))
            return "", ""

    monkeypatch.setattr(federation, "Service", FakeService)
    monkeypatch.setattr(federation, "end", lambda services, kill=False: ended.extend(services))
    monkeypatch.setattr(federation.subprocess, "Popen", FakeProcess)  # type: ignore[attr-defined]
    return commands, ended


def command_of(running, name):
    program, *arguments = running._services[name].command
    return os.path.basename(program), " ".join(arguments).replace(str(running.folder), "F")


def test_with_security_there_are_certificates_keys_and_registered_nodes(started, tmp_path):
    commands, ended = started
    own = os.path.dirname(sys.executable)
    with Federation(tmp_path, NODES) as running:
        assert running._services["superlink"].command[0].startswith(own)  # type: ignore[attr-defined]
        assert running.environment["PATH"].split(os.pathsep)[0] == own
        assert command_of(running, "superlink") == (
            "flower-superlink",
            f"--host 127.0.0.1 --port {running.address.split(':')[1]} --database F/state.db "
            "--disable-runtime-dependency-installation --ssl-ca-certfile F/certificates/ca.crt "
            "--ssl-certfile F/certificates/server.crt --ssl-keyfile F/certificates/server.key "
            "--enable-supernode-auth",
        )
        program, arguments = command_of(running, "target")
        assert program == os.path.basename(sys.executable)
        module = "-m fda_flower.site.supernode"
        assert arguments.startswith(f"{module} --superlink {running.address} --host 127.0.0.1 --port ")
        assert arguments.endswith(
            "--node-config F/nodes/target.toml --root-certificates F/certificates/ca.crt "
            "--auth-supernode-private-key F/keys/target"
        )
        (registered,) = commands
        assert registered == [
            shlex.split(f"supernode register {tmp_path}/keys/{name}.pub rehearsal --name {name}")
            for name in NODES
        ]
    assert {service.name for service in ended} >= {"superlink", "source-1", "target"}


def test_without_security_there_are_none_and_node_configurations_arrive_as_they_are(started, tmp_path):
    commands, _ = started
    with Federation(tmp_path, NODES, secure=False) as running:
        for name in ("superlink", "source-1", "target"):
            assert command_of(running, name)[1].endswith("--insecure")
        assert commands == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flwr-home", "nodes"]
    for name, config in NODES.items():
        assert tomllib.loads((tmp_path / "nodes" / f"{name}.toml").read_text(encoding="utf-8")) == config


@pytest.mark.parametrize("secure", [True, False])
def test_the_flower_configuration_names_the_connection(started, tmp_path, secure):
    with Federation(tmp_path, {}, secure=secure) as running:
        assert running.environment["FLWR_HOME"] == str(tmp_path / "flwr-home")
        config = tomllib.loads((tmp_path / "flwr-home" / "config.toml").read_text(encoding="utf-8"))
    trust = {"root-certificates": str(tmp_path / "certificates" / "ca.crt")} if secure else {"insecure": True}
    assert config == {
        "superlink": {"default": "rehearsal", "rehearsal": {"address": running.address, **trust}}
    }


def test_a_node_that_is_not_there_is_an_error_that_names_those_that_are(started, tmp_path):
    with Federation(tmp_path, NODES, secure=False) as running:
        for call in (running.start_node, running.stop_node, running.wait_for_node):
            with pytest.raises(ConfigError, check=names("node", "nobody")):
                call("nobody")


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


def test_what_was_started_is_ended_if_a_later_start_fails(started, tmp_path, monkeypatch):
    _, ended = started
    monkeypatch.setattr(Federation, "wait_for_node", lambda self, name: 1 / 0)
    with pytest.raises(ZeroDivisionError), Federation(tmp_path, NODES, secure=False):
        pass
    assert {service.name for service in ended} == {"superlink", "source-1", "target"}


APP = {
    "pyproject.toml": """
[project]
name = "thin"
version = "0.0.0"
dependencies = []
[tool.flwr.app]
publisher = "test"
[tool.flwr.app.components]
serverapp = "thin.app:server"
clientapp = "thin.app:client"
[tool.flwr.app.config]
output = ""
""",
    "thin/__init__.py": "",
    "thin/app.py": """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()

@client.query("node")
def node(message, context):
    return Message(RecordDict({"node": ConfigRecord(dict(context.node_config))}), reply_to=message)

@server.main()
def main(grid, context):
    asked = [Message(RecordDict(), node_id, "query.node") for node_id in grid.get_node_ids()]
    replies = [dict(reply.content["node"]) for reply in grid.send_and_receive(asked)]
    Path(context.run_config["output"]).write_text(json.dumps(replies))
""",
}


def write_app(folder):
    for name, text in APP.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_flower_app_runs_on_it_and_nothing_stays(tmp_path):
    output = tmp_path / "replies.json"
    before = set(psutil.pids())
    with Federation(tmp_path / "f", NODES) as running:
        app = str(write_app(tmp_path / "app"))
        running.flwr("run", app, running.connection, "--stream", "--run-config", f"output='{output}'")
        replies = json.loads(output.read_text(encoding="utf-8"))
        assert sorted(replies, key=lambda reply: reply["domain"]) == list(NODES.values())
        assert "SuperNode ID" in running.logs("target")
        tree = [psutil.Process(p) for p in set(psutil.pids()) - before if is_ours(p, running)]
        assert len(tree) >= 6, "SuperLink, two SuperNodes, and what each starts tasks with"
        assert listening(tree) == {"127.0.0.1"}
    assert [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def listening(tree):
    """The addresses on which processes listen."""
    sockets = [socket for process in tree for socket in process.net_connections("inet")]
    return {socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN}


def is_ours(pid, running):
    try:
        return any(str(running.folder) in part for part in psutil.Process(pid).cmdline()) or any(
            p.pid == service.process.pid
            for p in psutil.Process(pid).parents()
            for service in running._services.values()
        )
    except psutil.NoSuchProcess:
        return False
