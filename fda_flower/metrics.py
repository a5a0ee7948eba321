"""The metrics of a model on a test set: names, definitions and number formats.

NumPy is imported only to compute a metric.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, near

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ECE_BINS = 15
CONFIDENCE = 0.95
"""Confidence of an `interval`."""

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

ROUNDING = 1e-6
"""Tolerance of a figure's range."""


@dataclass(frozen=True)
class Metric:
    """A metric that can be the headline of a run.

    Attributes
    ----------
    title : str
        Its name in tables and pictures.
    regression : bool, optional
        Whether it measures a regression (true) or a classification (false); None for both.
    percent : bool
        Whether it is shown in percent; records hold it as a share.
    share : bool
        Whether it is a share of the samples and so has an `interval`.
    lowest, highest : float
        Its range.
    """

    title: str
    regression: bool | None = False
    percent: bool = True
    higher_is_better: bool = True
    share: bool = False
    lowest: float = 0.0
    highest: float = 1.0

    def allows(self, value: float) -> bool:
        """Return whether a value is possible, up to rounding."""
        return self.lowest - ROUNDING <= value <= self.highest + ROUNDING

    @property
    def label(self) -> str:
        """The title with its unit, as in ``accuracy (%)``."""
        return f"{self.title} (%)" if self.percent else self.title

    @property
    def axis(self) -> str:
        """The label of an axis and the title of a table."""
        return f"Target test {self.label}{'' if self.higher_is_better else ', lower is better'}"

    @property
    def decimals(self) -> int:
        """The decimals of a metric in a table."""
        return 1 if self.percent else 3

    def scaled(self, value: float) -> float:
        """Return a recorded value in the unit of tables and pictures."""
        return 100 * value if self.percent else value

    def show(self, value: float) -> str:
        """Return a recorded value as text."""
        return self.write(self.scaled(value))

    def write(self, scaled: float) -> str:
        """Return a value in the unit of tables as text."""
        return f"{scaled:.{self.decimals}f}{'%' if self.percent else ''}"

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values; NaN if none is a number."""
        numbers = [value for value in values if value == value]
        choose = max if self.higher_is_better else min
        return choose(numbers, default=float("nan"))


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", share=True),
    "balanced-accuracy": Metric("balanced accuracy"),
    "macro-f1": Metric("macro-F1"),
    "auroc": Metric("AUROC"),
    "ece": Metric("calibration error", higher_is_better=False),
    "r2": Metric("R²", regression=True, percent=False, lowest=-math.inf),
    "rmse": Metric("RMSE", regression=True, percent=False, higher_is_better=False, highest=math.inf),
    "mae": Metric("MAE", regression=True, percent=False, higher_is_better=False, highest=math.inf),
    # Without a lower end: a user's loss may be negative.
    "loss": Metric(
        "loss", regression=None, percent=False, higher_is_better=False, lowest=-math.inf, highest=math.inf
    ),
}
"""The metrics by their names in a reply, a record and ``--metric``; the first of a task is its default."""


SETS = "sets"
ASKED = 0.9
"""The coverage of the sets that are judged on a test set."""

SET_METRICS: dict[str, Metric] = {
    "asked": Metric("coverage asked for", regression=None),
    "coverage": Metric("coverage", regression=None, share=True),
    "size": Metric("mean size", percent=False, highest=math.inf),
    "single": Metric("sets of one class"),
    "single-right": Metric("right among sets of one class"),
    "width": Metric("mean width", regression=True, percent=False, highest=math.inf),
    "effective": Metric("effective size", regression=None, percent=False, highest=math.inf),
}
"""The metrics of sets by their names in the record's entry `SETS`; in a reply they begin with ``sets-``."""

UNITS, EFFECTIVE = "test-units", "test-effective"
"""In a reply and a record, where several test samples are of one unit, such as a patient: the number of
units, and the `effective_size` for the accuracy, which has no interval without it."""


def metric_names(regression: bool) -> list[str]:
    """Return the names of a task's metrics, the default headline first."""
    return [name for name, metric in METRICS.items() if metric.regression in (None, regression)]


def headline_metric(name: str | None, *, regression: bool) -> str:
    """Return a run's headline, by default the task's; raise a `ConfigError` if the task lacks the metric."""
    names = metric_names(regression)
    if name is not None and name not in names:
        task = "a regression" if regression else "classes"
        hint, remedy = near(name, names), f"choose one of {', '.join(names)}"
        said = f"unknown metric '{name}' for {task}{hint}"
        raise ConfigError(said, thing="metric", value=name, remedy=remedy)
    return name or names[0]


def measure(outputs: "NDArray[Any]", y: "NDArray[Any]", *, regression: bool) -> dict[str, float]:
    """Return the metrics of a model on samples, by their names in `METRICS`, without the loss.

    For classes, `outputs` are logits or log-probabilities, ``(n, classes)``, and `y` integers, ``(n,)``. The
    metrics are ``accuracy``; ``balanced-accuracy``, the mean recall; ``macro-f1``, the mean F1; ``auroc``,
    the mean area under the ROC curves of one class against the rest; ``ece``, see `calibration_error`. Means
    are over the classes with samples; with fewer than two there is no ``auroc``. If an output is not finite,
    ``auroc`` and ``ece`` are missing.

    In a `regression`, both are numbers, ``(n, outputs)``; `y` may be ``(n,)``. The metrics are ``r2``,
    ``1 − Σ(y − f(x))² / Σ(y − ȳ)²`` over all outputs, or, if all labels are equal, 1 for an exact model and
    else 0; ``rmse``; ``mae``. If an output is not finite, all are missing.

    Raise a `ConfigError` if there are no samples.

    Examples
    --------
    >>> import numpy as np
    >>> metrics = measure(np.array([[2.0, 1], [3, 0], [1, 2]]), np.array([0, 1, 1]), regression=False)
    >>> round(metrics["accuracy"], 3), metrics["balanced-accuracy"]
    (0.667, 0.75)
    """
    import numpy as np

    if not len(y):
        raise ConfigError("there are no samples to measure: give at least one", thing="samples", value=0)
    if regression:
        return _measure_numbers(outputs.astype(np.float64), y.reshape(outputs.shape).astype(np.float64))

    # One row per class: NumPy is ten times as fast along rows of samples.
    rows, predicted = np.ascontiguousarray(outputs.T), outputs.argmax(axis=1)
    right, counts = predicted == y, _counts(y, predicted, outputs.shape[1])
    present = counts.sum(axis=1) > 0
    metrics = {"accuracy": int(right.sum()) / len(y), **_means_over_classes(counts)}
    if np.isfinite(rows).all():
        probabilities = rows.astype(np.float64) - rows.max(axis=0)
        np.exp(probabilities, out=probabilities)
        probabilities /= probabilities.sum(axis=0)
        if present.sum() > 1:
            areas = [_auroc(probabilities[label], y == label) for label in np.flatnonzero(present)]
            metrics["auroc"] = float(np.mean(areas))
        metrics["ece"] = calibration_error(probabilities.max(axis=0), right)
    return metrics


def of_most_frequent(counts: "NDArray[Any]") -> dict[str, float]:
    """Return the metrics of the model that always predicts the most frequent class of the test set.

    It is the best model that ignores its input. Its ``ece`` and loss depend on its confidence, and are left
    out. `counts` is any model's `confusion` matrix on a test set that is not empty.

    Examples
    --------
    >>> import numpy as np
    >>> of_most_frequent(np.array([[8, 2], [14, 21]]))["accuracy"]  # 35 of 45 are of the second class
    0.7777777777777778
    """
    import numpy as np

    support = counts.sum(axis=1, dtype=np.float64)
    constant = np.zeros((len(support), len(support)))
    constant[:, support.argmax()] = support
    metrics = {"accuracy": float(support.max() / support.sum()), **_means_over_classes(constant)}
    return metrics | ({"auroc": 0.5} if np.count_nonzero(support) > 1 else {})


def of_mean(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of the model that always predicts the mean of the test labels.

    `figures` are any model's on the same labels. R² is 0, and RMSE is their ``RMSE / √(1 − R²)``.

    Examples
    --------
    >>> of_mean({"r2": 0.75, "rmse": 1.0, "mae": 0.8})
    {'r2': 0.0, 'rmse': 2.0}
    """
    r2, rmse = metrics["r2"], metrics.get("rmse")
    return {"r2": 0.0} | ({"rmse": rmse / math.sqrt(1 - r2)} if rmse and r2 < 1 else {})


def _means_over_classes(counts: "NDArray[Any]") -> dict[str, float]:
    """Return a confusion matrix's metrics that are means over the classes with samples."""
    import numpy as np

    _, recall, f1, support = _scores(counts)
    present = support > 0
    return {
        "balanced-accuracy": float(np.mean(recall[present])),
        "macro-f1": float(np.mean(f1[present])),
    }


def _auroc(scores: "NDArray[np.float64]", positive: "NDArray[np.bool_]") -> float:
    """Return a class's ``(Σ_positive r − p(p+1)/2) / (p (n − p))`` (Hanley and McNeil, Radiology 143, 1982).

    It ranks only the positive samples, in a fraction of scikit-learn's time.
    """
    import numpy as np

    own, ordered = np.sort(scores[positive]), np.sort(scores)
    # Twice the mean of the ranks that equal scores share.
    ranks = np.searchsorted(ordered, own) + np.searchsorted(ordered, own, "right") + 1
    count = len(own)
    return float((ranks.sum() / 2 - count * (count + 1) / 2) / (count * (len(scores) - count)))


def _scores(counts: "NDArray[Any]") -> "tuple[NDArray[np.float64], ...]":
    """Return each class's precision, recall, F1 (0 without samples) and support, as scikit-learn does."""
    import numpy as np

    right, true, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    parts = ((right, predicted), (right, true), (2 * right, true + predicted))
    return (*(part / np.maximum(whole, 1) for part, whole in parts), true)


def _measure_numbers(outputs: "NDArray[np.float64]", y: "NDArray[np.float64]") -> dict[str, float]:
    import numpy as np

    if not np.isfinite(outputs).all():
        return {}
    errors, spread = np.square(y - outputs), float(np.square(y - y.mean(axis=0)).sum())
    return {
        "r2": 1 - float(errors.sum()) / spread if spread else float(not errors.any()),
        "rmse": float(np.sqrt(np.mean(errors.mean(axis=0)))),
        "mae": float(np.mean(np.abs(y - outputs).mean(axis=0))),
    }


def calibration_error(confidence: "NDArray[Any]", right: "NDArray[np.bool_]") -> float:
    """Return ``ECE = Σ_b |B_b|/n |acc(B_b) − conf(B_b)|`` over 15 bins of equal width.

    ``B_b`` are the samples whose largest probability, `confidence`, is in ``((b−1)/15, b/15]``, ``acc`` their
    accuracy, by `right`, and ``conf`` the mean of these probabilities (Guo, Pleiss, Sun and Weinberger, On
    Calibration of Modern Neural Networks, ICML 2017, equation 3). Both arrays have shape ``(n,)``.
    """
    import numpy as np

    bins = np.digitize(confidence, np.arange(1, ECE_BINS) / ECE_BINS, right=True)
    return float(np.abs(np.bincount(bins, weights=right - confidence)).sum() / len(right))


def confusion(outputs: "NDArray[Any]", y: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the confusion matrix: true classes in rows, predicted ones in columns.

    `outputs` are logits or probabilities, ``(n, classes)``, and `y` the true classes, ``(n,)``.
    """
    return _counts(y, outputs.argmax(axis=1), outputs.shape[1])


def _counts(y: "NDArray[Any]", predicted: "NDArray[Any]", classes: int) -> "NDArray[np.int64]":
    import numpy as np

    places = y.astype(np.int64) * classes + predicted
    return np.bincount(places, minlength=classes**2).reshape(classes, classes)


def by_class(
    counts: "NDArray[np.int64]", names: Sequence[str] | None = None
) -> dict[str, dict[str, float | int]]:
    """Return ``precision``, ``recall``, ``f1`` and ``support`` of each class from its `confusion` matrix.

    A metric without samples is 0. The default names are the classes' numbers.
    """
    names = [str(label) for label in range(len(counts))] if names is None else names
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
        for name, p, r, f, n in zip(names, *_scores(counts), strict=True)
    }


def measure_sets(
    sets: "NDArray[np.bool_]", y: "NDArray[Any]", units: "NDArray[Any] | None" = None
) -> dict[str, float]:
    """Return the metrics of sets of classes, by their names in `SET_METRICS`.

    `sets` says of each class whether it is in a sample's set, ``(n, C)``; `y` are the classes, ``(n,)``, and
    `units` the samples' units, ``(n,)``.

    Examples
    --------
    >>> import numpy as np
    >>> sets = np.array([[True, False], [True, True], [False, False], [True, False]])
    >>> [*measure_sets(sets, np.array([0, 1, 1, 1])).values()]
    [0.5, 1.0, 0.5, 0.5]
    """
    held, sizes = sets[range(len(y)), y], sets.sum(axis=1)
    single = sizes == 1
    metrics = {"coverage": held.mean(), "size": sizes.mean(), "single": single.mean()}
    metrics |= {"single-right": held[single].mean()} if single.any() else {}
    return {name: float(value) for name, value in metrics.items()} | _effective(held, units)


def measure_intervals(
    low: "NDArray[Any]", high: "NDArray[Any]", y: "NDArray[Any]", units: "NDArray[Any] | None" = None
) -> dict[str, float]:
    """Return the metrics of a regression's intervals, each array of shape ``(n, C)``; `units`, ``(n,)``."""
    held = (low <= y) & (y <= high)
    metrics = {"coverage": float(held.mean()), "width": float((high - low).mean())}
    return metrics | _effective(held.mean(axis=1), units)


def _effective(held: "NDArray[Any]", units: "NDArray[Any] | None") -> dict[str, float]:
    size = effective_size(held, units)
    return {"effective": size} if isinstance(size, float) else {}


def effective_size(values: "NDArray[Any]", units: "NDArray[Any] | None" = None) -> float | None:
    """Return how many independent samples tell as much of a mean as these samples of units.

    It is Kish's effective sample size for the spread over units, ``s² / v`` with the samples' variance ``s²``
    and ``v = G/(G−1) Σ_g (S_g − m n_g)² / n²``, for the sum ``S_g`` of a unit's ``n_g`` samples and the mean
    ``m``. It is less by ``(z/t)²``, with the quantile ``t`` of Student's distribution with ``G − 1`` degrees
    of freedom, as few units do not know their own spread, and at most n (Korn and Graubard, Survey
    Methodology 24, 1998). Where all samples are equal, as if all are right, no spread is seen, and a unit
    counts as one sample.

    In simulations with 4 to 50 units Wilson's interval for this size holds the truth in 91% to 99%, the
    percentile interval of a bootstrap over units in 23% to 95%: it takes a few units that are all right for
    proof.

    Parameters
    ----------
    values : array
        A number of each sample, such as whether it is right, shape ``(n,)``.
    units : array, optional
        The unit of each sample, such as a patient, integers, shape ``(n,)``. Default: its own.

    Returns
    -------
    float, optional
        n, an integer, if no unit has several samples; None for a single unit of several.

    Examples
    --------
    >>> import numpy as np
    >>> right, patients = np.array([1, 1, 0, 0, 1, 1]), np.array([1, 1, 2, 2, 3, 3])
    >>> effective_size(right), round(effective_size(right, patients), 3)
    (6, 0.415)
    """
    import numpy as np
    from scipy.special import stdtrit

    samples = len(values)
    if units is None:
        return samples
    numbers, members = np.unique(units, return_inverse=True)
    if (count := len(numbers)) == samples or count < 2:
        return samples if count == samples else None
    # In an order that does not follow from the order of the samples.
    order = np.lexsort((values, members))
    values, members = values[order].astype(np.float64), members[order]
    correction = (_Z / float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))) ** 2
    if values.min() == values.max():
        return count * correction
    rest = values - values.mean()
    apart = np.square(np.bincount(members, weights=rest)).sum() * count / (count - 1)
    alone = np.square(rest).sum() * samples
    return float(samples) if apart * samples <= alone * correction else float(alone / apart * correction)


def paired_interval(
    differences: "NDArray[np.float64]", units: "NDArray[Any] | None" = None
) -> tuple[float, float] | None:
    """Return the 95% interval of the mean of differences, shape ``(n,)``; None for fewer than two units.

    `units` are as in `effective_size`, the number that divides the variance.
    """
    import numpy as np

    size = effective_size(differences, units)
    if size is None or len(differences) < 2:
        return None
    of_units = isinstance(size, float)  # of which each has a spread of its own, in the size
    differences = np.sort(differences) if of_units else differences
    half = _Z * float(np.std(differences, ddof=0 if of_units else 1)) / math.sqrt(size)
    mean = float(np.mean(differences))
    return mean - half, mean + half


def paired_shares(
    first: "NDArray[np.bool_]", second: "NDArray[np.bool_]", units: "NDArray[Any] | None" = None
) -> tuple[float, float] | None:
    """Return the 95% interval of the share of `second` less that of `first`, on the same samples.

    The interval is Bonett and Price's (Journal of Educational and Behavioral Statistics 37, 2012), which is
    never empty, even if the two agree on all samples; with `units` for the `effective_size` of the
    difference. None for fewer than two samples or units.

    Examples
    --------
    >>> import numpy as np
    >>> first, second = np.repeat([True, False], 5), np.repeat([True, False], [8, 2])
    >>> [round(end, 3) for end in paired_shares(first, second)]
    [-0.087, 0.587]
    """
    import numpy as np

    samples, size = len(first), effective_size(second.astype(np.int64) - first, units)
    if size is None or samples < 2:
        return None
    gained, lost = (
        (int((one & ~other).sum()) * (size / samples) + 1) / (size + 2)
        for one, other in ((second, first), (first, second))
    )
    middle = gained - lost
    half = _Z * math.sqrt((gained + lost - middle**2) / (size + 2))
    return max(middle - half, -1.0), min(middle + half, 1.0)


def interval(name: str, value: float, samples: float | None) -> tuple[float, float] | None:
    """Return the 95% interval of a metric that follows from the number of test samples.

    For shares it is Wilson's (`share_interval`). Other metrics have none, because it would depend on more
    than their value and the number of samples.
    """
    return share_interval(value, samples) if METRICS[name].share else None


def share_interval(value: float, samples: float | None) -> tuple[float, float] | None:
    """Return Wilson's 95% interval of a share of samples; None for none, or an unknown number.

    A number of samples that is a float is an `effective_size`, in which the right ones need not be whole
    (Wilson, Journal of the American Statistical Association 22, 1927; Franco, Little, Louis and Slud, Journal
    of Survey Statistics and Methodology 7, 2019, for samples of units).
    """
    if not samples or samples < 0 or not 0 <= value <= 1:
        return None
    right, z = value * samples if isinstance(samples, float) else round(value * samples), _Z
    middle = (right + z * z / 2) / (samples + z * z)
    half = z / (samples + z * z) * math.sqrt(right * (samples - right) / samples + z * z / 4)
    # At a share of 0 or 1 rounding would miss the bound.
    return max(0.0, middle - half) if right else 0.0, min(1.0, middle + half) if right < samples else 1.0
