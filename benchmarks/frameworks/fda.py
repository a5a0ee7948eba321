"""fda's own FedAvg, in its engines.

One of the clients is the run's target, with as many samples and the same training as the others; the noise of
the target's shift is 0, so that there is none. It evaluates on all test images, and computes all its figures
of them, not the accuracy alone: there is no setting to leave them out.
"""

from typing import Any

from fda_flower.records.record import Record
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.config import RunConfig
from frameworks.pairing import Pairing
from frameworks.task import BATCH_SIZE, EPOCHS, LEARNING_RATE, WORKERS, Task


def config_of(task: Task) -> RunConfig:
    """Return a task as a run."""
    return RunConfig(
        dataset="fashion-mnist",
        data_dir=task.data_dir,
        shift="noise",
        shift_options={"std": 0.0},
        sources=task.clients - 1,
        source_samples=task.samples,
        target_samples=task.samples,
        method="fedavg",
        model=task.network,
        optimizer="sgd",
        learning_rate=LEARNING_RATE,
        batch_size=BATCH_SIZE,
        target_batch_size=BATCH_SIZE,
        epochs=EPOCHS,
        rounds=task.all_rounds,
        evaluate_every=1,
        device=task.device,
    )


def run(task: Task, pairing: Pairing, **how: Any) -> None:
    """Run a task in an engine."""

    def on_round(record: Record) -> None:
        pairing.round_done(record["accuracy"])

    run_config(config_of(task), Execution(on_round=on_round, **how))


def run_local(task: Task, pairing: Pairing) -> None:
    """Run it in this process."""
    run(task, pairing)


def run_workers(task: Task, pairing: Pairing) -> None:
    """Run it in worker processes without Ray."""
    run(task, pairing, workers=WORKERS)


def run_ray(task: Task, pairing: Pairing) -> None:
    """Run it through Flower's simulation on Ray."""
    run(task, pairing, engine="ray", workers=WORKERS)
