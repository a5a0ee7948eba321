"""Real runs in TensorBoard's files, MLflow's SQLite store and W&B's offline mode, read back."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fda_flower.reporting.trackers import Tracking
from fda_flower.reporting.trackers.services import MLflow

# TensorBoard


def scalars_of(folder):
    """Return each number by step."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]
    }


def test_the_events_hold_each_number_at_the_step_of_its_round_also_of_a_resumed_run(tracked, record):
    for rounds in ((1, 2), (3,)):
        with Tracking(["tensorboard"], tracked) as shown:
            for number in rounds:
                shown.record(record(number, number / 4))
                assert max(scalars_of(tracked.folder)["accuracy"]) == number, "it can be read at once"
    found = scalars_of(tracked.folder)
    assert found.pop("accuracy") == {1: 0.25, 2: 0.5, 3: 0.75}
    constants = {"target/examples": 50, "target/train-loss": 0.25, "seconds/train": 1.5}
    constants["beta/hôpital (1)"] = 0.25
    assert found == {tag: dict.fromkeys((1, 2, 3), value) for tag, value in constants.items()}


# MLflow


def run_of(uri, experiment):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return client, run


@pytest.mark.slow
def test_mlflow_has_a_run_in_the_store_of_the_output_folder_and_goes_on_there(tracked, record):
    pytest.importorskip("mlflow")
    with Tracking(["mlflow"], tracked) as shown:
        shown.record(record(1, 0.25))
    with suppress(KeyboardInterrupt), Tracking(["mlflow"], tracked) as shown:
        shown.record(record(2, 0.5))
        raise KeyboardInterrupt
    client, run = run_of(f"sqlite:///{tracked.store / 'mlflow.db'}", "fda-flower")
    assert (run.info.run_name, run.info.status) == ("fedgp-seed3", "KILLED")
    assert run.data.params["seed"] == "3"
    assert run.data.params["shift_options"] == "{'angle': 45}"
    assert (run.data.tags["version.torch"], run.data.tags["group"]) == ("2.9", "runs")
    steps = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "accuracy")]
    assert steps == [(1, 0.25), (2, 0.5)]
    assert "beta/h_pital _1_" in run.data.metrics


@pytest.mark.slow
def test_variables_of_mlflow_win(tracked, record, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mine.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "hospitals")
    with Tracking(["mlflow"], tracked) as shown:
        shown.record(record(1) | {f"number-{i}": i for i in range(150)})
    assert not (tracked.store / "mlflow.db").exists()
    _, run = run_of(uri, "hospitals")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["number-149"] == 149


def test_mlflows_store_is_made_by_one_cell_at_a_time(tracked, monkeypatch):
    """A double of the package, which takes its time to make the store."""
    at_once, most = [], []

    class Client:
        def __init__(self, uri):
            at_once.append(uri)
            most.append(len(at_once))
            time.sleep(0.05)

        def get_experiment_by_name(self, name):
            return SimpleNamespace(experiment_id="1")

        def create_run(self, experiment, **about):
            at_once.pop()
            return SimpleNamespace(info=SimpleNamespace(run_id="1"))

        def __getattr__(self, name):
            return lambda *_, **__: None

    entities = SimpleNamespace(Metric=Mock(), Param=Mock())
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(MLflow, [tracked] * 3))
    assert most == [1, 1, 1]


# W&B, in a process of its own: what is left of it afterwards is the test

CODE = """
import json, os, sys
from pathlib import Path
import psutil
import wandb
from fda_flower.reporting.trackers import TrackedRun, Tracking

folder = Path(sys.argv[1])
run = TrackedRun(folder, folder.parent, {"seed": 3}, {"torch": "2.9"})
own = wandb.init(mode="offline", dir=folder / "own", project="own", settings=wandb.Settings(silent=True))
record = {"accuracy": 0.5, "sources": {"usps": {"beta": 0.25}}}
for rounds in ((1, 2), (3,)):
    with Tracking(["wandb"], run) as shown:
        for number in rounds:
            shown.record({"round": number, **record})
own.log({"mine": 0.125})
own.finish()
assert "WANDB_ERROR_REPORTING" not in os.environ
print(json.dumps([child.pid for child in psutil.Process().children(recursive=True)]))
"""


@pytest.mark.slow
def test_the_offline_folder_holds_the_run_beside_a_users_own_and_no_process_is_left(tmp_path):
    pytest.importorskip("wandb")
    folder = tmp_path / "runs" / "fedgp-seed3"
    (folder / "own").mkdir(parents=True)
    home = {name: str(tmp_path / name) for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")} | home
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", CODE, folder]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [pid for pid in json.loads(done.stdout) if psutil.pid_exists(pid)]
    written = sorted(Path(folder.parent, "wandb").glob("offline-run-*/run-*.wandb"))
    state = json.loads((folder / "trackers.json").read_text(encoding="utf-8"))
    assert [path.stem for path in written] == [f"run-{state['wandb'][0]}"] * 2, "one run, in two parts"
    assert state["wandb"][1] == 3
    (own,) = (folder / "own").glob("wandb/offline-run-*/run-*.wandb")
    assert b"mine" in own.read_bytes()
    data = written[0].read_bytes()
    for word in (b"fedgp-seed3", b"accuracy", b"beta/usps", b"seed", b"torch"):
        assert word in data
    host = os.uname().nodename.encode()
    for secret in (bytes([len(host)]) + host, str(Path.home()).encode(), str(tmp_path).encode()):
        assert secret not in data
