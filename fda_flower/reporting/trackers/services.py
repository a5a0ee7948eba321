"""The trackers themselves; each imports its package when it begins."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from fda_flower.files import locked
from fda_flower.reporting.trackers.tracking import PROJECT, TrackedRun

AT_ONCE = 100
"""The most parameters that MLflow takes in one call; it takes more metrics."""


class MLflow:
    """Keeps a run in ``mlflow.db`` of its store, or where MLFLOW_TRACKING_URI says.

    The experiment is MLFLOW_EXPERIMENT_NAME or ``fda-flower``. Settings are parameters, versions are tags.
    """

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.store / 'mlflow.db'}"
        with locked(run.store / ".mlflow.lock"):  # MLflow makes its tables, without a lock of its own
            self._client = MlflowClient(store)
            self.id = self._create(run) if run.id is None else run.id
        self._client.update_run(self.id, status="RUNNING")

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Log a round's numbers at its step, under names without characters that MLflow refuses."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        names = {key: re.sub(r"[^\w\-. :/]", "_", key, flags=re.ASCII) for key in values}
        for some in _parts(values):
            metrics = [Metric(names[key], value, now, number) for key, value in some]
            self._client.log_batch(self.id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Set the run's status."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")

    def _create(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        tags = {"group": run.store.name, **{f"version.{key}": text for key, text in run.versions.items()}}
        created: str = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        for some in _parts(run.settings):
            self._client.log_batch(created, params=[Param(key, str(value)) for key, value in some])
        return created


def _parts(values: Mapping[str, Any]) -> Iterator[list[tuple[str, Any]]]:
    items = list(values.items())
    return (items[i : i + AT_ONCE] for i in range(0, len(items), AT_ONCE))


class WandB:
    """Keeps a run in the folder ``wandb`` of its store, for ``wandb sync``, or where WANDB_MODE says.

    The project is WANDB_PROJECT or ``fda-flower``, the group is the store. Neither code, output, host nor
    the machine's load is kept.
    """

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            mode=None if "WANDB_MODE" in os.environ else "offline",
            dir=run.store,
            name=run.name,
            group=run.store.name,
            id=run.id,
            resume=None if run.id is None else "allow",
            config={**run.settings, "versions": dict(run.versions)},
            reinit="create_new",
            settings=wandb.Settings(
                host="",
                console="off",
                silent=True,
                disable_code=True,
                disable_git=True,
                x_disable_meta=True,
                x_save_requirements=False,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )
        self.id = self._run.id

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Log a round's numbers at its step."""
        self._run.log(dict(values), step=number)

    def close(self, finished: bool) -> None:
        """Finish the run; W&B's process, which other runs may use, ends with this one."""
        self._run.finish(exit_code=0 if finished else 1)


class TensorBoard:
    """Writes a round's numbers as scalars into the run's folder, at the round's step."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.id = run.name
        self._writer = EventFileWriter(str(run.folder))

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Write a round; it can be read at once."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=number, summary=Summary(value=scalars)))
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file, and end the thread that writes it."""
        self._writer.close()
