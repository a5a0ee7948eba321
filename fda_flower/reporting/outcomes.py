"""Which test samples a run got right, to compare two runs sample by sample."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fda_flower.records import Record
from fda_flower.reporting.summary import LAST

Outcomes = NDArray[np.float64]
"""For each test sample, the share of rounds in which it was classified correctly; shape ``(n,)``."""


def mean_outcomes(history: Sequence[Record], suffix: str = "") -> Outcomes | None:
    """Return the outcomes over those of the last 5 rounds that recorded them; None if none did.

    A round's ``outcomes`` are the packed bits of its test samples in hexadecimal digits, and
    ``test-examples`` is their number. As for ``last5``, warm-up rounds do not count. `suffix` ends both
    names: ``"-average"`` for the averaged model.
    """
    last = [record for record in history if not record.get("warmup")][-LAST:]
    names = f"outcomes{suffix}", f"test-examples{suffix}"
    rounds = [unpack(*(record[name] for name in names)) for record in last if record.get(names[0])]
    return np.mean(rounds, axis=0) if rounds else None


def unpack(digits: str, count: int) -> NDArray[np.uint8]:
    """Return `count` bits from the hexadecimal digits of `numpy.packbits`.

    Examples
    --------
    >>> unpack("a8", 5).tolist()
    [1, 0, 1, 0, 1]
    """
    return np.unpackbits(np.frombuffer(bytes.fromhex(digits), np.uint8), count=count)


def paired_error(first: Outcomes | None, second: Outcomes | None) -> float | None:
    """Return the standard error of the difference of two accuracies over test samples, in points.

    The difference is taken on each sample, so that its difficulty cancels. None unless there are outcomes of
    the same number of samples, at least two.
    """
    if first is None or second is None or len(first) != len(second) or len(first) < 2:
        return None
    return float(100 * np.std(first - second, ddof=1) / np.sqrt(len(first)))
