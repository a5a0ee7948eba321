"""Rounds as metrics of a run in MLflow."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from fda_flower.reporting.trackers.tracking import PROJECT, TrackedRun

AT_ONCE = 100
"""What MLflow takes of parameters in one call; it takes more of metrics."""
Item = TypeVar("Item")


class MLflow:
    """Keeps a run in ``mlflow.db`` of its store, or where MLFLOW_TRACKING_URI says.

    The experiment is MLFLOW_EXPERIMENT_NAME or ``fda-flower``. Settings are parameters, versions are tags.
    """

    def __init__(self, run: TrackedRun) -> None:
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._client = MlflowClient(
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.store / 'mlflow.db'}"
        )
        if run.id is None:
            self.id = self._create(run)
        else:
            self.id = run.id
            self._client.update_run(self.id, status="RUNNING")

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Log a round's numbers at its step."""
        now = int(1000 * time.time())
        metrics = [Metric(_allowed(key), value, now, number) for key, value in values.items()]
        for some in _parts(metrics):
            self._client.log_batch(self.id, metrics=some)

    def close(self, finished: bool) -> None:
        """Set the run's status."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")

    def _create(self, run: TrackedRun) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        versions = {f"version.{key}": text for key, text in run.versions.items()}
        tags = {"group": run.store.name, **versions}
        created: str = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        for some in _parts([Param(key, str(value)) for key, value in run.settings.items()]):
            self._client.log_batch(created, params=some)
        return created


def _parts(items: list[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while part := list(islice(rest, AT_ONCE)):
        yield part


def _allowed(key: str) -> str:
    """Return a name without characters that MLflow refuses."""
    return re.sub(r"[^\w\-. :/]", "_", key, flags=re.ASCII)
