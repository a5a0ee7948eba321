"""What goes wrong in a federation of real processes, and what a run then does and says.

All tests use one federation of four sites with tables of their own, in their order: it takes long to start.
Its nodes are given up after 20 seconds without a heartbeat, the least that Flower allows, not after a minute.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w
from sites import write_sites, write_table
from waiting import until
from whole_runs import same_bits

from fda_flower import RunConfig, run
from fda_flower.deployment import Federation, run_deployed, submission
from fda_flower.deployment.processes import Service, end, free_port
from fda_flower.deployment.submission import write_app
from fda_flower.errors import RunError
from fda_flower.records.folder import RunFolder
from fda_flower.records.record import without_line
from fda_flower.site.words import KEPT

pytestmark = pytest.mark.slow

SITES = ["broken", "late", "steady", "target"]
SETTINGS: dict[str, Any] = {
    "dataset": "table",
    "dataset_options": {"domains": ",".join(SITES), "classes": "0,1"},
    "target": "target",
    "target_samples": 16,
    "model": "logistic",
    "method": "fedgp-auto",
    "device": "cpu",
    # No time is up by itself: a test says what fails, and when.
    "round_timeout": 3600.0,
}

FAULTY = '''
"""The package's apps, with the faults of the run's configuration."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fda_flower import server_app
from fda_flower.client_app import make_client_app
from fda_flower.engines import superlink as prompt
from fda_flower.supernode.resident import ResidentApp
from fda_flower.strategies import nodes
from fda_flower.wire.bundles import split

nodes.ASK_AGAIN_SECONDS = 0
gather = nodes.Nodes.gather
nodes.Nodes.gather = lambda self, grid, nodes, sources, _, timeout: gather(
    self, grid, nodes, sources, 1.0, timeout
)


class Faulty(ClientApp):
    def __call__(self, message, context):
        if message.metadata.message_type == "train":
            here = Path(context.run_config["here"])
            number = split(message.content)["config"]["server-round"]
            now = f"{context.node_config['domain']} in {number}"
            match json.loads(context.run_config["faults"]).get(now):
                case "waits" | "hangs":
                    (here / now).touch()
                    while not (here / f"{now}, released").exists():
                        time.sleep(0.1)
                case "raises":
                    raise OSError("the disk is full")
                case "crashes":
                    os._exit(1)
        return real(message, context)


class Impatient(ServerApp):
    """Its time is up once the only reply that is missing is that of a client that hangs, and never before."""

    def __call__(self, grid, context):
        faults = json.loads(context.run_config["faults"])
        hanging = {Path(context.run_config["here"], now) for now in faults if faults[now] == "hangs"}
        pull, clock = grid.pull_messages, {"ahead": 0}

        def pull_messages(asked):
            asked = list(asked)
            replies = list(pull(asked))
            for path in [path for path in hanging if path.exists() and len(asked) - len(replies) == 1]:
                hanging.remove(path)
                clock["ahead"] += context.run_config["round-timeout"]
            return replies

        grid.pull_messages = pull_messages
        prompt.time = SimpleNamespace(monotonic=lambda: time.monotonic() + clock["ahead"], sleep=time.sleep)
        server_app.app(grid, context)


real = make_client_app()
app = ResidentApp(Faulty(), "faulty:Faulty")
server = Impatient()
'''


SOONER = """
from flwr.common import constant

constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
"""
"""What each process of the federation begins with."""


class Faults:
    """Faults of the runs that a test submits; a client waits or hangs until it is released, or killed."""

    def __init__(self, folder):
        self._folder = folder
        self.of: dict[str, str] = {}

    def write_app(self, folder):
        write_app(folder)
        project = folder / "pyproject.toml"
        text = project.read_text(encoding="utf-8")
        text += tomli_w.dumps({"faults": json.dumps(self.of), "here": str(self._folder)})
        text = text.replace("fda_flower.client_app:app", "faulty:app")
        project.write_text(text.replace("fda_flower.server_app:app", "faulty:server"), encoding="utf-8")
        (folder / "faulty.py").write_text(FAULTY, encoding="utf-8")

    def reached(self, *clients):
        return all((self._folder / client).exists() for client in clients)

    def release(self, client):
        (self._folder / f"{client}, released").touch()


@pytest.fixture
def faults(tmp_path, monkeypatch):
    found = Faults(tmp_path)
    monkeypatch.setattr(submission, "write_app", found.write_app)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """All sites' tables in one folder, as a local run needs them."""
    folder = tmp_path_factory.mktemp("data")
    write_sites(write_table, folder, SITES, 60, ("x", "y", "z"))
    return folder


def table_at(federation, site):
    return federation.folder / "data" / site / f"{site}.csv"


@pytest.fixture(scope="module")
def node(data):
    """The node configuration of a site that has its table in a folder of its own.

    All but "late" have a resident worker.
    """

    def config(federation_folder, site):
        path = federation_folder / "data" / site / f"{site}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((data / path.name).read_bytes())
        role = "target" if site == "target" else "source"
        config = {"domain": site, "role": role, "data-dir": str(path.parent)}
        own = {"state-dir": str(federation_folder / "state" / site), "resident": True}
        return config if site == "late" else config | own

    return config


@pytest.fixture(scope="module")
def federation(node, tmp_path_factory):
    """A federation whose site "late" is not there yet, and whose site "broken" has a damaged table."""
    folder = tmp_path_factory.mktemp("federation")
    nodes = {site: node(folder, site) for site in SITES if site != "late"}
    federation = Federation(folder, nodes)
    (folder / "sitecustomize.py").write_text(SOONER, encoding="utf-8")
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    federation.environment["PYTHONPATH"] = os.pathsep.join(path)
    with federation:
        with table_at(federation, "broken").open("a", encoding="utf-8") as file:
            file.write("\n1.0,oops,2.0,1\n")
        yield federation


def rejoin(federation, name):
    """Start a node again until it is let in: its old self first has to be given up by the SuperLink."""
    while True:
        federation.start_node(name)
        try:
            federation.wait_for_node(name)
            return
        except RunError:
            time.sleep(3)


class Submitted(threading.Thread):
    """A run that is followed beside the test; its records, and the error that it ends with."""

    def __init__(self, config, federation, output):
        super().__init__(daemon=True)
        self.records = []
        self.error = None
        self._arguments = config, federation.connection, output
        self._environment = federation.environment
        self.start()

    def run(self):
        try:
            run_deployed(*self._arguments, on_round=self.records.append, environment=self._environment)
        except RunError as error:
            self.error = error

    def wait_until(self, condition):
        """Wait for something to happen, before the run ends."""

        def happened():
            assert self.is_alive(), self.error
            return condition()

        until(happened)


def dropped(record):
    return {drop["domain"]: drop["reason"] for drop in record["dropped"]}


def test_only_this_machine_is_listened_on(federation):
    processes = [
        process
        for service in federation._services.values()
        for process in service.process.children(recursive=True)
    ]
    assert len(processes) >= 8, "SuperLink, three SuperNodes, and what each starts tasks with"
    sockets = [socket for process in processes for socket in process.net_connections("inet")]
    assert {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_a_node_with_an_unknown_key_or_without_the_ca_is_turned_away(federation, tmp_path):
    federation.add_node("stranger", {"domain": "late", "role": "source"}, registered=False)
    with pytest.raises(RunError, match="stranger ended with exit code"):
        federation.wait_for_node("stranger")
    assert "SuperNode ID:" not in federation.logs("stranger")

    command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", federation.address]
    command += ["--host", "127.0.0.1", "--port", str(free_port())]
    command += ["--auth-supernode-private-key", str(federation.folder / "keys" / "stranger")]
    without_ca = Service("without-ca", command, tmp_path / "log", federation.environment)
    try:
        without_ca.wait_until_it_says("CERTIFICATE_VERIFY_FAILED", 120)
    finally:
        end([without_ca])
    assert "SuperNode ID:" not in without_ca.said()


@pytest.mark.smoke
def test_a_run_goes_on_without_the_sources_that_fail_and_ends_without_its_target(
    federation, node, faults, tmp_path
):
    faults.of = {
        **{"steady in 1": "waits", "late in 2": "waits", "steady in 2": "hangs"},
        **{"steady in 3": "raises", "broken in 3": "crashes", "target in 3": "waits"},
    }
    config = RunConfig(**SETTINGS, rounds=5)
    submitted = Submitted(config, federation, tmp_path / "run")

    # A damaged site stays out until it is mended, a late one comes in.
    submitted.wait_until(lambda: faults.reached("steady in 1"))
    federation.add_node("late", node(federation.folder, "late"))
    federation.wait_for_node("late")
    node(federation.folder, "broken")
    faults.release("steady in 1")
    # One source dies, another one hangs until the round is over.
    submitted.wait_until(lambda: faults.reached("late in 2", "steady in 2"))
    federation.stop_node("late", kill=True)
    submitted.wait_until(lambda: len(submitted.records) == 2)
    faults.release("steady in 2")
    # A worker dies, and the target.
    submitted.wait_until(lambda: faults.reached("target in 3"))
    federation.stop_node("target", kill=True)
    submitted.join()

    first, second, third, fourth, _ = submitted.records
    assert [left["domain"] for left in first["missing"]] == ["broken", "late"]
    assert KEPT in first["missing"][0]["reason"], "the line and the column are in the site's own log"
    assert (set(first["sources"]), first["held"]) == ({"steady"}, None)

    assert second["missing"] == []
    assert (set(second["sources"]), second["held"]) == ({"broken"}, None)
    assert dropped(second)["steady"] == "no reply within the timeout"
    assert set(dropped(second)) == {"late", "steady"}
    assert without_line(second) == "without late (no heartbeat), steady (no reply within the timeout)"

    assert "the disk is full" in dropped(third)["steady"], "of an app without our words"
    assert "the resident worker of this node (process " in dropped(third)["broken"]
    assert set(dropped(third)) == {"broken", "steady", "target"}
    assert "target" in third["held"]
    assert third["evaluation-failed"]
    assert {"domain": "late", "reason": "no heartbeat"} in third["missing"]
    assert without_line(fourth) == "without late, target (no heartbeat)"
    assert "in a row" in str(submitted.error)
    assert "then resume" in str(submitted.error)
    assert RunFolder(tmp_path / "run").read_rounds() == submitted.records


def test_nodes_rejoin_and_a_run_whose_superlink_was_killed_resumes_with_the_same_bits(
    federation, node, data, faults, tmp_path
):
    """They have left in the test before; where that was left out, only the late one is to come."""
    node(federation.folder, "broken")
    late = node(federation.folder, "late")
    if "late" not in federation._nodes:
        federation.add_node("late", late)
    for name in ("late", "target"):
        if federation._services[name].process.poll() is not None:
            rejoin(federation, name)
        federation.wait_for_node(name)
    # FedDAF's target keeps a model of its own, which the resumed run goes on with.
    settings = {**SETTINGS, "method": "feddaf", "rounds": 2, "seed": 1}
    config = RunConfig(**settings)
    faults.of = {"steady in 2": "waits"}
    submitted = Submitted(config, federation, tmp_path / "run")
    submitted.wait_until(lambda: len(submitted.records) == 1 and faults.reached("steady in 2"))
    federation.stop_superlink(kill=True)
    federation.start_superlink()
    faults.release("steady in 2")
    submitted.join()
    assert "--resume" in str(submitted.error)

    history, there = run_deployed(
        config, federation.connection, tmp_path / "run", resume=True, environment=federation.environment
    )
    assert history[0] == submitted.records[0]
    assert [len(record["sources"]) for record in history] == [3, 3]
    assert history[1]["target"]["alpha"] is not None
    local = run(**settings, data_dir=str(data))
    model = RunFolder(there).load_checkpoint().model
    assert same_bits(model, local.model)
