"""What goes wrong in a federation of real processes, and what a run then does and says.

All tests use one federation of four sites with tables of their own, in their order: it takes long to start.
"""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fda_flower import RunConfig, run
from fda_flower.deployment import Federation, run_deployed, submission
from fda_flower.deployment.app import write_app
from fda_flower.deployment.processes import Service, end, free_ports
from fda_flower.errors import RunError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SITES = ["broken", "late", "steady", "target"]
SETTINGS: dict[str, Any] = {
    "dataset": "table",
    "dataset_options": {"domains": ",".join(SITES), "classes": "0,1"},
    "target": "target",
    "target_samples": 16,
    "model": "logistic",
    "method": "fedgp-auto",
    "device": "cpu",
}

FAULTY = '''
"""The package's apps, with the faults of the run's configuration, such as "steady hangs in 2"."""

import os
import time
from pathlib import Path

from flwr.clientapp import ClientApp

from fda_flower import server_app
from fda_flower.client_app import make_client_app
from fda_flower.site.resident import ResidentApp
from fda_flower.strategies import nodes

nodes.ASK_AGAIN_SECONDS = 1


class Faulty(ClientApp):
    def __call__(self, message, context):
        if message.metadata.message_type == "train":
            domain, now = context.node_config["domain"], message.content["config"]["server-round"]
            print(f"{domain} trains in round {now}", flush=True)
            faults = str(context.run_config["faults"]).split(", ")
            while f"{domain} waits in {now}" in faults and not Path(context.run_config["go"]).exists():
                time.sleep(0.1)
            if f"{domain} hangs in {now}" in faults:
                time.sleep(context.run_config["round-timeout"] + 5)
            if f"{domain} raises in {now}" in faults:
                raise OSError("the disk is full")
            if f"{domain} crashes in {now}" in faults:
                os._exit(1)
        return real(message, context)


real = make_client_app()
app = ResidentApp(Faulty(), "faulty:Faulty")
server = server_app.app
'''


@pytest.fixture(scope="module")
def enough():
    """Seconds in which four sites train for sure: importing torch takes most of the time."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import fda_flower.run_model"], check=True)
    return max(90.0, 20 * (time.monotonic() - begun))


def write_table(path, seed):
    chance = random.Random(seed)
    rows = [[chance.gauss(0, 1) for _ in range(3)] for _ in range(60)]
    lines = [",".join([*(f"{x:.3f}" for x in row), str(int(sum(row) + seed / 4 > 0))]) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["x,y,z,label", *lines]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """All sites' tables in one folder, as a local run needs them."""
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(SITES):
        write_table(folder / f"{name}.csv", seed)
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
    with Federation(folder, nodes) as federation:
        with table_at(federation, "broken").open("a", encoding="utf-8") as file:
            file.write("1.0,oops,2.0,1\n")
        yield federation


def until(condition, submitted=None, seconds=1200):
    """Wait for something to happen, before the run ends if one is given."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        assert submitted is None or submitted.is_alive(), submitted.error
        time.sleep(0.2)


def rejoin(federation, name):
    """Start a node again until it is let in: its old self first has to be given up by the SuperLink."""
    deadline = time.monotonic() + 600
    while True:
        federation.start_node(name)
        try:
            federation.wait_for_node(name)
            return
        except RunError:
            assert time.monotonic() < deadline
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


def dropped(record):
    return {drop["domain"]: drop["reason"] for drop in record["dropped"]}


def test_a_node_with_an_unknown_key_or_without_the_ca_is_turned_away(federation, tmp_path):
    federation.add_node("stranger", {"domain": "late", "role": "source"}, registered=False)
    with pytest.raises(RunError, match="stranger ended with exit code"):
        federation.wait_for_node("stranger")
    assert "SuperNode ID:" not in federation.logs("stranger")

    command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", federation.address]
    command += ["--host", "127.0.0.1", "--port", str(free_ports(1)[0])]
    command += ["--auth-supernode-private-key", str(federation.folder / "keys" / "stranger")]
    without_ca = Service("without-ca", command, tmp_path / "log", federation.environment)
    try:
        without_ca.wait_until_it_says("CERTIFICATE_VERIFY_FAILED", 120)
    finally:
        end([without_ca])
    assert "SuperNode ID:" not in without_ca.said()


def test_a_run_goes_on_without_the_sources_that_fail_and_ends_without_its_target(
    federation, node, enough, tmp_path, monkeypatch
):
    def write_faulty(folder, settings):
        faults = "steady waits in 1, steady hangs in 2, steady raises in 3, broken crashes in 3"
        write_app(folder, settings | {"faults": faults, "go": str(tmp_path / "go")})
        project = folder / "pyproject.toml"
        text = project.read_text(encoding="utf-8")
        text = text.replace("fda_flower.client_app:app", "faulty:app")
        project.write_text(text.replace("fda_flower.server_app:app", "faulty:server"), encoding="utf-8")
        (folder / "faulty.py").write_text(FAULTY, encoding="utf-8")

    monkeypatch.setattr(submission, "write_app", write_faulty)
    seconds: dict[str, Any] = {"wait_seconds": 1, "query_timeout": enough, "round_timeout": enough}
    config = RunConfig(**SETTINGS, rounds=5, max_held_rounds=1, **seconds)
    submitted = Submitted(config, federation, tmp_path / "run")

    def trains(site, number):
        return lambda: f"{site} trains in round {number}" in federation.logs(site)

    # A damaged site stays out until it is mended, a late one comes in.
    until(trains("steady", 1), submitted)
    federation.add_node("late", node(federation.folder, "late"))
    federation.wait_for_node("late")
    node(federation.folder, "broken")
    (tmp_path / "go").touch()
    until(lambda: len(submitted.records) == 1, submitted)
    # One source dies, another one hangs.
    until(trains("late", 2), submitted)
    federation.stop_node("late", kill=True)
    until(lambda: len(submitted.records) == 2, submitted)
    # A worker dies, and the target.
    until(trains("target", 3), submitted)
    federation.stop_node("target", kill=True)
    submitted.join(1200)

    first, second, third = submitted.records
    assert [left["domain"] for left in first["missing"]] == ["broken"]
    assert "no number in line 62, column 'y'" in first["missing"][0]["reason"]
    assert (set(first["sources"]), first["held"]) == ({"steady"}, None)

    assert second["missing"] == []
    assert (set(second["sources"]), second["held"]) == ({"broken"}, None)
    assert dropped(second)["steady"] == "no reply within the timeout"
    assert set(dropped(second)) == {"late", "steady"}

    assert "the disk is full" in dropped(third)["steady"]
    assert "the resident worker of this node (process " in dropped(third)["broken"]
    # The SuperLink takes "late" for alive up to a minute after its death, when round 2 may be over.
    assert set(dropped(third)) - {"late"} == {"broken", "steady", "target"}
    assert "target" in third["held"]
    assert third["evaluation-failed"]
    assert "in a row" in str(submitted.error)
    assert "then resume" in str(submitted.error)
    lines = (tmp_path / "run" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == submitted.records
    assert (tmp_path / "run" / "checkpoint").exists()


def test_nodes_rejoin_and_a_run_whose_superlink_was_killed_resumes_with_the_same_bits(
    federation, data, tmp_path
):
    for name in ("late", "target"):
        rejoin(federation, name)
    # FedDAF's target has a model of its own, which the resumed run has to give back.
    settings = {**SETTINGS, "method": "feddaf", "rounds": 2, "seed": 1}
    config = RunConfig(**settings, wait_seconds=240)
    submitted = Submitted(config, federation, tmp_path / "run")
    until(lambda: len(submitted.records) == 1, submitted)
    federation.stop_superlink(kill=True)
    federation.start_superlink()
    submitted.join(1200)
    assert "--resume" in str(submitted.error)

    history, model = run_deployed(
        config, federation.connection, tmp_path / "run", resume=True, environment=federation.environment
    )
    assert history[0] == submitted.records[0]
    assert [len(record["sources"]) for record in history] == [3, 3]
    assert history[1]["target"]["alpha"] is not None
    local = run(**settings, data_dir=str(data))
    assert {name: array.tobytes() for name, array in model.items()} == {
        name: array.tobytes() for name, array in local.model.items()
    }
