"""Cross-validation on the target's labels: a run for each fold, before the run with all labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.datasets.validation import HeldOut
from fda_flower.experiments.runners import RunOutput, RunRequest
from fda_flower.records import Record
from fda_flower.selection import VALIDATION

FOLDER = "validation"
"""Holds the folds' runs, in the folder of the run with all labels."""


def fold_configs(config: RunConfig) -> list[RunConfig]:
    """Return the run of each fold of a run with ``cv:K``; each trains on the labels of the others."""
    held_out = config.held_out
    assert held_out is not None
    folds = [HeldOut(folds=held_out.folds, fold=i + 1) for i in range(held_out.folds)]
    return [replace(config, validation=str(fold), patience=None) for fold in folds]


def cross_validate(request: RunRequest, runner: Callable[[RunRequest], RunOutput]) -> dict[int, float]:
    """Run each fold, and return the mean of their figures by round, which choose a round of the whole run.

    The folds' records and checkpoints are in ``validation/fold-1`` and so on. `request.on_round` gets
    their records with ``fold`` beside.
    """
    histories = []
    for number, config in enumerate(fold_configs(request.config), 1):
        folder = None if request.output is None else request.output / FOLDER / f"fold-{number}"
        on_round = request.on_round and _with_fold(request.on_round, number)
        history, _ = runner(replace(request, config=config, output=folder, on_round=on_round))
        histories.append(history)
    return mean_by_round(histories)


def mean_by_round(histories: Sequence[Sequence[Mapping[str, object]]]) -> dict[int, float]:
    """Return the mean figure of each round that all folds have judged.

    Examples
    --------
    >>> mean_by_round([[{"validation": 0.5}, {"validation": 0.75}], [{}, {"validation": 0.25}]])
    {2: 0.5}
    """
    rounds = zip(*histories, strict=True)
    figures = [[record.get(VALIDATION) for record in records] for records in rounds]
    return {
        number: float(np.mean(np.array(values, np.float64)))
        for number, values in enumerate(figures, 1)
        if None not in values
    }


def _with_fold(on_round: Callable[[Record], None], number: int) -> Callable[[Record], None]:
    return lambda record: on_round({**record, "fold": number})
