"""A warning where FedGP cannot move, read from the rounds' records."""

from collections.abc import Mapping, Sequence
from logging import WARNING
from statistics import median
from typing import Any

from flwr.common import log

ROUNDS = 3
RATIO = 1 / 20


def warn_if_stuck(records: Sequence[Mapping[str, Any]]) -> None:
    """Warn in the round that is the first at the end of `ROUNDS` slow ones in a row.

    FedGP's step is a mean of the target's update and its projections, none of which is longer. A round is
    slow if the norm of the target's update is below `RATIO` of the median of the sources' norms.

    Parameters
    ----------
    records : Sequence
        The records of all rounds up to the current one, also those before a resume.
    """
    slow = [_is_slow(record) for record in records]
    rows = [all(slow[end - ROUNDS : end]) for end in range(ROUNDS, len(slow) + 1)]
    if rows and rows[-1] and not any(rows[:-1]):
        log(
            WARNING,
            "The target's update is shorter than a twentieth of the sources' for %d rounds. FedGP's step is "
            "never longer than the target's: warm-up rounds, more local epochs at the target, or FedDA",
            ROUNDS,
        )


def _is_slow(record: Mapping[str, Any]) -> bool:
    own = (record.get("target") or {}).get("norm")
    norms = [entry.get("norm") for entry in record.get("sources", {}).values()]
    return None not in (own, *norms) and bool(norms) and own < RATIO * median(norms)
