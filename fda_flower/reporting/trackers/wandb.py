"""Rounds as the history of a run in Weights & Biases."""

import os
from collections.abc import Mapping

import wandb

from fda_flower.reporting.trackers.tracking import PROJECT, TrackedRun


class WandB:
    """Keeps a run in the folder ``wandb`` of its store, for ``wandb sync``, or where WANDB_MODE says.

    The project is WANDB_PROJECT or ``fda-flower``, the group is the store. Neither code, output, host nor
    the machine's load is kept.
    """

    def __init__(self, run: TrackedRun) -> None:
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
