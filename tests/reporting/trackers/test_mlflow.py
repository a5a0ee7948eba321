"""Real runs in a real SQLite store, read back with MLflow's client."""

from contextlib import suppress

import pytest

from fda_flower.reporting.trackers import Tracking

mlflow = pytest.importorskip("mlflow")

pytestmark = pytest.mark.slow


def client_of(run):
    return mlflow.MlflowClient(f"sqlite:///{run.store / 'mlflow.db'}")


def test_a_run_is_in_the_store_of_the_output_folder_and_goes_on_there(tracked, record):
    with Tracking(["mlflow"], tracked) as shown:
        shown.record(record(1, 0.25))
    with suppress(KeyboardInterrupt), Tracking(["mlflow"], tracked) as shown:
        shown.record(record(2, 0.5))
        raise KeyboardInterrupt
    client = client_of(tracked)
    experiment = client.get_experiment_by_name("fda-flower")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "fedgp-seed3"
    assert run.info.status == "KILLED"
    assert run.data.params["seed"] == "3"
    assert run.data.params["shift_options"] == "{'angle': 45}"
    assert (run.data.tags["version.torch"], run.data.tags["group"]) == ("2.9", "runs")
    steps = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "accuracy")]
    assert steps == [(1, 0.25), (2, 0.5)]
    assert "beta/h_pital _1_" in run.data.metrics


def test_variables_of_mlflow_win(tracked, record, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mine.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "hospitals")
    with Tracking(["mlflow"], tracked) as shown:
        shown.record(record(1) | {f"number-{i}": i for i in range(150)})
    assert not (tracked.store / "mlflow.db").exists()
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mine.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("hospitals").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["number-149"] == 149


def test_a_server_that_is_not_there_ends_no_run(tracked, record, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with Tracking(["mlflow"], tracked) as shown:
        shown.record(record(1))
        assert shown._trackers == {}
