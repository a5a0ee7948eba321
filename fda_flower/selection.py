"""The round that validation chooses, and when a run stops: from records of rounds, by no test label."""

from collections.abc import Mapping, Sequence
from typing import Any

VALIDATION, SELECTED, BY = "validation", "selected", "selected-by"
"""Fields of a round's record: its figure on the samples held out, the round chosen so far, and whose samples
they are."""

Records = Sequence[Mapping[str, Any]]


def choose(
    history: Records, number: int, value: float, *, by: str, higher_is_better: bool = True
) -> dict[str, Any]:
    """Return the fields of the record of a round with a figure; of equal figures, the earlier is chosen.

    Parameters
    ----------
    history : sequence of records
        Of the rounds before.
    number : int
        The round.
    value : float
        Its figure.
    by : str
        Whose samples are held out.
    higher_is_better : bool
        Whether a larger figure is better.

    Examples
    --------
    >>> first = choose([], 1, 0.5, by="target")
    >>> choose([first], 2, 0.5, by="target")
    {'validation': 0.5, 'selected': 1, 'selected-by': 'target'}
    """
    sign, before = 1 if higher_is_better else -1, chosen_round(history)
    improved = before is None or sign * value > sign * history[before - 1][VALIDATION]
    return {VALIDATION: value, SELECTED: number if improved else before, BY: by}


def chosen_round(history: Records) -> int | None:
    """Return the round that the samples held out have chosen; None without them.

    A centralised reference that reports the chosen round's model in every record leaves nothing to choose:
    its records have no ``selected-by``.
    """
    return next((record[SELECTED] for record in reversed(history) if BY in record), None)


def has_stopped(history: Records, patience: int | None) -> bool:
    """Return whether the figure has not improved in as many rounds as the patience lasts.

    Rounds without a figure do not count.

    Examples
    --------
    >>> records = [choose([], 1, 0.5, by="target")]
    >>> records.append(choose(records, 2, 0.4, by="target"))
    >>> has_stopped(records, 1), has_stopped(records, 2)
    (True, False)
    """
    chosen = chosen_round(history)
    if patience is None or chosen is None:
        return False
    return sum(VALIDATION in record for record in history[chosen:]) >= patience


def has_ended(history: Records, rounds: int, patience: int | None) -> bool:
    """Return whether a run has no round to go: all are done, or its patience has stopped it."""
    return len(history) >= rounds or has_stopped(history, patience)
