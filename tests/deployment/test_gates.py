"""A hostile app, an app that no site has approved, and a node under another's name, over real processes."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from waiting import until

from fda_flower import RunConfig, run
from fda_flower.deployment import Federation, app_hash, run_deployed
from fda_flower.deployment.submission import Connection, write_app
from fda_flower.errors import RunError
from fda_flower.site import read_log

SECRET = "the patient 4711 has diabetes"
APP = '''
"""Flower's quickstart, and apps that send what they must not."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

SECRET = "the patient 4711 " + "has diabetes"
HOW = ("quickstart", "array", "text", "name", "bytes", "list", "error", "exception")
app = ClientApp()
server = ServerApp()


@app.train()
def train(message, context):
    how, arrays = message.content["config"]["how"], message.content["arrays"]
    content = {"arrays": arrays, "metrics": MetricRecord({"train_loss": 0.25, "num-examples": 40})}
    if how == "array":
        content["arrays"] = ArrayRecord({**arrays, "x": Array(np.frombuffer(SECRET.encode(), np.uint8))})
    elif how == "text":
        content["config"] = ConfigRecord({"note": SECRET})
    elif how == "name":
        content["metrics"] = MetricRecord({SECRET: 0.25})
    elif how == "bytes":
        content["metrics"] = ConfigRecord({"train_loss": SECRET.encode()})
    elif how == "list":
        content["metrics"] = ConfigRecord({"train_loss": [SECRET]})
    elif how == "error":
        return Message(Error(0, SECRET), reply_to=message)
    elif how == "exception":
        raise OSError(SECRET)
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid, context):
    (node,) = grid.get_node_ids()
    for how in HOW:
        model = ArrayRecord({"w": Array(np.zeros((2, 3), np.float32))})
        content = RecordDict({"arrays": model, "config": ConfigRecord({"how": how})})
        (reply,) = grid.send_and_receive([Message(content, node, "train")], timeout=60)
        print("replied", how, reply.error.reason if reply.has_error() else sorted(reply.content), flush=True)
'''


def submit(federation: Federation, folder: Path) -> str:
    """Run the app of this file, and return the run's log."""
    folder.mkdir()
    (folder / "hostile.py").write_text(APP, encoding="utf-8")
    components = {"serverapp": "hostile:server", "clientapp": "hostile:app"}
    project = {"name": "hostile", "version": "1.0.0", "dependencies": []}
    text = tomli_w.dumps(
        {"project": project, "tool": {"flwr": {"app": {"publisher": "x", "components": components}}}}
    )
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    settings = folder.with_suffix(".toml")
    settings.write_text("", encoding="utf-8")
    connection = Connection(federation.connection, federation.environment)
    number = connection.submit(folder, settings)
    until(lambda: connection.status(number)[0].startswith("finished"))
    return "".join(filter(None, connection.log(number)))


@pytest.mark.slow
def test_of_a_hostile_app_nothing_leaves_a_site_that_names_what_may(tmp_path):
    rules = {"allow-records": "arrays,metrics.train_loss,metrics.num-examples", "state-dir": str(tmp_path)}
    with Federation(tmp_path / "federation", {"north": {"domain": "north", **rules}}, secure=False) as found:
        log = submit(found, tmp_path / "app")
        kept = (tmp_path / "federation" / "state.db").read_bytes()
    assert "replied quickstart ['arrays', 'metrics']" in log
    for how in ("array", "text", "name", "bytes", "list", "error", "exception"):
        assert f"replied {how} this site withholds" in log
    assert SECRET not in log
    assert SECRET.encode() not in kept
    lines = read_log(tmp_path)
    reasons = [line.get("refused") or line.get("failed") for line in lines]
    assert reasons[0] is None
    assert all("allow-records" in str(reason) for reason in reasons[1:6])
    assert all(SECRET in str(reason) for reason in reasons[6:])


@pytest.mark.slow
def test_a_site_starts_approved_apps_alone_and_a_key_stands_for_one_domain(tmp_path):
    domains, state = ("source-1", "target"), str(tmp_path / "state")
    nodes: dict[str, Any] = {name: {"domain": name} for name in domains}
    nodes["source-1"] |= {"apps": app_hash(), "state-dir": state}
    settings: dict[str, Any] = {"sources": 1, "rounds": 1, "model": "logistic", "method": "fedavg"}
    settings |= {"target_samples": 16, "source_samples": 40, "test_samples": 40, "device": "cpu"}

    def deploy(output: str) -> Any:
        there = tmp_path / output
        config = RunConfig(**settings)
        return run_deployed(config, found.connection, there, environment=found.environment)

    with Federation(tmp_path / "federation", nodes) as found:
        history, _ = deploy("approved")
        assert history[-1]["accuracy"] == run(**settings).history[-1]["accuracy"]
        keys = json.loads((tmp_path / "approved" / "config.json").read_text())["keys"]
        assert set(keys) == set(domains)
        assert len({key for key in keys.values() if key.startswith("SHA256:")}) == 2

        found.stop_node("target")
        log = submit(found, tmp_path / "app")
        assert f"the site has not approved the app {app_hash(tmp_path / 'app')}" in log
        assert "quickstart ['arrays'" not in log
        assert "refused" in read_log(tmp_path / "state")[-1]

        found.add_node("west", {"domain": "target"})
        found.wait_for_node("west")
        with pytest.raises(RunError, match="the node registered as 'west' claims the domain 'target'"):
            deploy("another")


def test_the_app_of_all_runs_is_one(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_app(tmp_path / name)
    assert app_hash(tmp_path / "one") == app_hash(tmp_path / "other") == app_hash()
