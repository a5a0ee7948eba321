"""The interval of each metric of a model on a test set, by task.

In 2,000 simulated test sets each, of 3 to 50 cases of a class, 95% intervals of classes hold the truth in at
least 93%; so in 500 each with several samples of a patient. R²'s needs errors without heavy tails: with
Student's of 3 degrees of freedom it holds the truth in 89%. A metric for which no interval does has none: the
calibration error, which is larger in a small test set than in a large one, and RMSE, which single large
errors decide.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fda_flower.metrics.classes import Classified
from fda_flower.metrics.intervals import (
    CONFIDENCE,
    Z,
    quantile,
    share_interval,
    share_size,
    whole_units,
)
from fda_flower.metrics.labels import probabilities_of_labels
from fda_flower.metrics.measuring import measure
from fda_flower.metrics.ranking import auroc_interval, precision_interval, ranked
from fda_flower.metrics.survival import intervals_of_survival
from fda_flower.names.tasks import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Ends = tuple[float, float]
"""The lower and the upper end of an interval."""

FEWEST_UNITS = 50
"""The samples, or patients, from which on a regression's metrics have intervals."""


def intervals_of(
    outputs: "NDArray[Any]",
    y: Any,
    task: Task = "classes",
    units: "NDArray[Any] | None" = None,
) -> dict[str, Ends]:
    """Return the 95% intervals of the metrics that `measure` returns, as far as they have one.

    Parameters
    ----------
    outputs, y : array
        As in `measure`.
    task : str
        What the model predicts.
    units : array, optional
        The unit of each sample, such as a patient, integers, shape ``(n,)``. Default: its own.

    Returns
    -------
    dict
        For classes: ``accuracy``, see `share_interval` and `share_size`; ``balanced-accuracy``, see
        `recall_interval`; ``macro-f1``, see `f1_interval`; ``auroc`` and ``auprc``, the means of the classes'
        ends, which is an interval however the classes depend on one another; ``brier``, see `bounded`. Those
        of several labels are likewise. For a regression: ``r2`` and ``mae``, see `ratio_interval`. For
        survival see `intervals_of_survival`.

    Examples
    --------
    >>> import numpy as np
    >>> outputs = np.log([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    >>> [round(end, 2) for end in intervals_of(outputs, np.array([0, 0, 1, 1]))["auroc"]]
    [0.39, 1.0]
    """
    return INTERVALS[task](outputs, y, _of_several(units)) if task in INTERVALS else {}


def measure_with_intervals(
    outputs: "NDArray[Any]",
    y: Any,
    task: Task = "classes",
    units: "NDArray[Any] | None" = None,
    mask: bool = False,
) -> tuple[dict[str, float], dict[str, Ends]]:
    """Return what `measure` and `intervals_of` return; of classes what both need is computed once."""
    if task != "classes" or not len(y):
        return measure(outputs, y, task, mask), intervals_of(outputs, y, task, units)
    known = Classified(outputs, y)
    return known.metrics(), _of_classes(known, _of_several(units))


def class_intervals(
    outputs: "NDArray[Any]", y: "NDArray[Any]", units: "NDArray[Any] | None" = None
) -> dict[str, Ends]:
    """Return the intervals of the metrics of classes; see `intervals_of`."""
    return _of_classes(Classified(outputs, y), units)


def _of_several(units: "NDArray[Any] | None") -> "NDArray[Any] | None":
    """Return the unit of each sample; None if each is its own."""
    return None if units is None or len(set(units.tolist())) == len(units) else units


def _of_classes(known: Classified, units: "NDArray[Any] | None") -> dict[str, Ends]:
    right, predicted, sides = known.right, known.predicted, known.sides
    ends: dict[str, Ends | None] = {
        "accuracy": share_interval(float(right.mean()), share_size(right, units)),
        "balanced-accuracy": recall_interval(right, sides.values(), units),
        "macro-f1": _mean(f1_interval(predicted == label, side, units) for label, side in sides.items()),
    }
    if known.losses is not None:
        ends |= _of_rankings(known.rankings, list(sides.values()), units)
        ends["brier"] = bounded(known.losses, units)
    return {name: each for name, each in ends.items() if each is not None}


def _mean(classes: "Any") -> Ends | None:
    """Return the means of the classes' ends; None if a class has no interval."""
    ends = list(classes)
    if None in ends:
        return None
    low, high = (math.fsum(each) / len(ends) for each in zip(*ends, strict=True))
    return low, high


def _of_rankings(
    rankings: Sequence[tuple[float, float]],
    sides: "Sequence[NDArray[np.bool_]]",
    units: "NDArray[Any] | None",
) -> dict[str, Ends | None]:
    """Return the intervals of AUROC, if there are samples outside the classes, and average precision."""
    areas, precisions = zip(*rankings, strict=True)
    sizes = [whole_units(side, units) for side in sides]
    ends = dict[str, Ends | None]()
    if not any(map(math.isnan, areas)):
        outside = (whole_units(~side, units) for side in sides)
        ends["auroc"] = _mean(map(auroc_interval, areas, sizes, outside))
    return {**ends, "auprc": _mean(map(precision_interval, precisions, sizes))}


def recall_interval(right: "NDArray[np.bool_]", sides: "Any", units: "NDArray[Any] | None" = None) -> Ends:
    """Return the interval of the mean recall of classes, given the samples of each.

    Its ends are as far from the mean as ``√Σ_c d_c² / k``, with each of ``k`` classes' distance ``d_c`` to
    Clopper and Pearson's end (MOVER: Zou and Donner, Statistics in Medicine 27, 2008).
    """
    import numpy as np
    from scipy.special import betaincinv

    pairs = [(float(right[side].mean()), whole_units(side, units)) for side in sides]
    share, size = np.array(pairs).T
    hits, tail = share * size, (1 - CONFIDENCE) / 2
    # A share of 0 or 1 is its own end; the functions are defined above 0 alone.
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), size - hits + 1, tail), 0.0)
    rest = size - hits
    high = np.where(rest > 0, betaincinv(hits + 1, np.maximum(rest, 1e-9), 1 - tail), 1.0)
    apart = [float(np.sqrt(np.square(share - end).sum())) / len(pairs) for end in (low, high)]
    mean = float(share.mean())
    return max(mean - apart[0], 0.0), min(mean + apart[1], 1.0)


def f1_interval(
    predicted: "NDArray[np.bool_]", true: "NDArray[np.bool_]", units: "NDArray[Any] | None" = None
) -> Ends | None:
    """Return the interval of a class's F1, ``2J/(1 + J)`` for the share ``J`` that is right of its union.

    The union has the samples that are of the class or predicted so, and ``J`` Wilson's interval.
    """
    union = predicted | true
    ends = share_interval(float((predicted & true)[union].mean()), float(whole_units(union, units)))
    return None if ends is None else (2 * ends[0] / (1 + ends[0]), 2 * ends[1] / (1 + ends[1]))


def bounded(values: "NDArray[Any]", units: "NDArray[Any] | None" = None) -> Ends | None:
    """Return the interval of the mean of values between 0 and 1; None for fewer than two units.

    It is Wilson's for the size that a share with the mean's variance would have. The variance, and for the
    upper end the mean too, are with one unit more whose values are 1: large losses of a rare class may not
    have been drawn.
    """
    import numpy as np

    totals, sizes = unit_sums(units, values, np.ones(len(values)))
    if len(sizes) < 2:
        return None
    mean = float(totals.sum() / sizes.sum())
    one = sizes.mean()
    totals, sizes = np.append(totals, one), np.append(sizes, one)
    worse, count, samples = float(totals.sum() / sizes.sum()), len(sizes), sizes.sum()
    variance = np.square(totals - worse * sizes).sum() * count / (count - 1) / samples**2
    if not variance:
        return None
    size = float(worse * (1 - worse) / variance * (Z / quantile(count - 1)) ** 2)
    low, high = share_interval(mean, size), share_interval(worse, size)
    return None if low is None or high is None else (low[0], high[1])


def unit_sums(units: "NDArray[Any] | None", *values: "NDArray[Any]") -> "tuple[NDArray[np.float64], ...]":
    """Return the sums of values, each with a row for each sample, over each unit."""
    import numpy as np

    if units is None:
        return tuple(np.asarray(each, np.float64) for each in values)
    names, members = np.unique(units, return_inverse=True)
    sums = tuple(np.zeros((len(names), *each.shape[1:])) for each in values)
    for total, each in zip(sums, values, strict=True):
        np.add.at(total, members, each)
    return sums


def number_intervals(
    outputs: "NDArray[Any]", y: "NDArray[Any]", units: "NDArray[Any] | None" = None
) -> dict[str, Ends]:
    """Return the intervals of the metrics of a regression; see `intervals_of`."""
    import numpy as np

    outputs, y = outputs.astype(np.float64), y.reshape(outputs.shape).astype(np.float64)
    if not np.isfinite(outputs).all():
        return {}
    errors, rest = y - outputs, y - y.mean(axis=0)
    values = np.square(errors).sum(axis=1), np.square(rest).sum(axis=1), np.abs(errors).mean(axis=1)
    squares, spread, absolute, sums, sizes = unit_sums(units, *values, rest, np.ones(len(y)))
    if len(sizes) < FEWEST_UNITS or not (squares.any() and spread.any()):
        return {}

    def around_mean(take: "Callable[[NDArray[Any]], NDArray[Any]]") -> "NDArray[Any]":
        return np.asarray(take(spread) - np.square(take(sums)).sum(axis=-1) / take(sizes))

    low, high = ratio_interval(squares, around_mean, spread)
    return {
        "r2": (1 - high, 1 - low),
        "mae": ratio_interval(absolute, lambda take: take(sizes), sizes),
    }


def ratio_interval(
    upper: "NDArray[np.float64]",
    lower: "Callable[[Callable[[NDArray[Any]], NDArray[Any]]], NDArray[Any]]",
    weights: "NDArray[np.float64]",
) -> Ends:
    """Return the interval of ``Σ_g u_g / L`` over units, leaving each out in turn.

    It is symmetric for the logarithm, ``± t √V`` with Student's quantile and the jackknife's variance. The
    high end is with the unit of the largest ``u_g`` once more, the low end with that of the largest weight,
    if this is wider: single units decide such a ratio, and may not have been drawn.

    Parameters
    ----------
    upper : array
        ``u_g``, shape ``(G,)``.
    lower : callable
        Returns ``L`` from a function that sums an array over units.
    weights : array
        What ``L`` sums up, shape ``(G,)``.
    """
    import numpy as np

    def end(side: int, *more: int) -> float:
        chosen = np.append(np.arange(len(upper)), np.array(more, np.int64))
        count = len(chosen)

        def left_out(values: "NDArray[Any]") -> "NDArray[Any]":
            return np.asarray(values[chosen].sum(axis=0) - values[chosen])

        logarithms = np.log(left_out(upper) / lower(left_out))
        variance = np.square(logarithms - logarithms.mean()).sum() * (count - 1) / count
        ratio = upper[chosen].sum() / lower(lambda values: values[chosen].sum(axis=0))
        return float(np.log(ratio) + side * quantile(count - 1) * np.sqrt(variance))

    high = max(end(1), end(1, int(upper.argmax())))
    return math.exp(min(end(-1), end(-1, int(weights.argmax())))), math.exp(high)


def label_intervals(
    outputs: "NDArray[Any]", y: "NDArray[Any]", units: "NDArray[Any] | None" = None
) -> dict[str, Ends]:
    """Return the intervals of the metrics of several labels; see `intervals_of`."""
    import numpy as np

    if not np.isfinite(outputs).all():
        return {}
    p, held = probabilities_of_labels(outputs), np.asarray(y) > 0
    right = ((outputs > 0) == held).all(axis=1)
    ends = {"exact": share_interval(float(right.mean()), share_size(right, units))}
    known = np.flatnonzero(held.any(axis=0) & ~held.all(axis=0))
    if len(known):
        sides = [held[:, label] for label in known]
        rankings = [ranked(p[:, label], side) for label, side in zip(known, sides, strict=True)]
        ends |= _of_rankings(rankings, sides, units)
        ends["brier"] = bounded(np.square(p - held)[:, known].mean(axis=1), units)
    return {name: each for name, each in ends.items() if each is not None}


INTERVALS: Mapping[Task, "Callable[..., dict[str, Ends]]"] = {
    "classes": class_intervals,
    "regression": number_intervals,
    "multilabel": label_intervals,
    "survival": intervals_of_survival,
}
"""By task, what computes the intervals of outputs, labels and units."""
