"""The metrics of a model on a test set: names, tasks and number formats."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fda_flower.errors import ConfigError, near
from fda_flower.names.tasks import TASKS, Task

LOWER = " (lower is better)"

ROUNDING = 1e-6
"""Tolerance of a figure's range."""


@dataclass(frozen=True)
class Metric:
    """A metric that can be the headline of a run.

    Attributes
    ----------
    title : str
        Its name in tables and pictures.
    tasks : tuple of str
        The tasks that it measures; empty for all.
    percent : bool
        Whether it is shown in percent; records hold it as a share.
    share : bool
        Whether it is a share of the samples and so has an `interval`.
    lowest, highest : float
        Its range.
    baseline : str
        What ignores the samples and is compared with, a noun; empty if there is nothing.
    chance : float, optional
        The baseline's value, if it is the same on every test set.
    over_classes : bool
        Whether it is a mean over classes, or labels, in which a rare one counts like the others.
    """

    title: str
    tasks: tuple[Task, ...] = ("classes",)
    percent: bool = True
    higher_is_better: bool = True
    share: bool = False
    lowest: float = 0.0
    highest: float = 1.0
    baseline: str = "most frequent class"
    chance: float | None = None
    over_classes: bool = False

    def measures(self, task: Task) -> bool:
        """Return whether it measures a task."""
        return not self.tasks or task in self.tasks

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

    def show_gain(self, gain: float) -> str:
        """Return a difference of recorded values as text.

        Examples
        --------
        >>> METRICS["auroc"].show_gain(0.07), METRICS["rmse"].show_gain(-0.25)
        ('+7.0 points of AUROC', '-0.250 of RMSE (lower is better)')
        """
        unit = f"{' points' if self.percent else ''} of {self.title}"
        return f"{self.scaled(gain):+z.{self.decimals}f}{unit}{'' if self.higher_is_better else LOWER}"

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values; NaN if none is a number."""
        numbers = [value for value in values if value == value]
        choose = max if self.higher_is_better else min
        return choose(numbers, default=float("nan"))


_OF_NUMBERS: Any = {"tasks": ("regression",), "percent": False, "baseline": "mean of the labels"}

METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", share=True),
    "balanced-accuracy": Metric("balanced accuracy", over_classes=True),
    "macro-f1": Metric("macro-F1", over_classes=True),
    "auroc": Metric("AUROC", ("classes", "multilabel"), baseline="chance", chance=0.5, over_classes=True),
    "c-index": Metric("C-index", ("survival",), baseline="chance", chance=0.5),
    "harrell": Metric("Harrell's C", ("survival",), baseline="chance", chance=0.5),
    "auprc": Metric(
        "average precision", ("classes", "multilabel"), baseline="the labels' frequencies", over_classes=True
    ),
    "brier": Metric(
        "Brier score",
        ("classes", "survival", "multilabel"),
        percent=False,
        higher_is_better=False,
        baseline="the same shares for all",
    ),
    "ece": Metric("calibration error", ("classes", "multilabel"), higher_is_better=False, baseline=""),
    "exact": Metric("all labels right", ("multilabel",), share=True, baseline=""),
    "r2": Metric("R²", lowest=-math.inf, **_OF_NUMBERS),
    "rmse": Metric("RMSE", higher_is_better=False, highest=math.inf, **_OF_NUMBERS),
    "mae": Metric("MAE", higher_is_better=False, highest=math.inf, **_OF_NUMBERS),
    "dice": Metric("Dice", ("regression",), percent=False, baseline=""),
    # Without a lower end: a user's loss may be negative.
    "loss": Metric(
        "loss", (), False, higher_is_better=False, lowest=-math.inf, highest=math.inf, baseline=""
    ),
}
"""The metrics by their names in a reply, a record and ``--metric``; the first of a task is its default."""

QUALIFIED: Mapping[Task, Mapping[str, str]] = {
    "classes": {"auprc": "mean over classes"},
    "multilabel": dict.fromkeys(("auroc", "auprc", "brier", "ece"), "mean over labels"),
    "survival": {"c-index": "Uno's, to the last horizon", "brier": "mean over horizons"},
}
"""By task, what the titles of metrics do not say."""


def full_title(name: str, task: Task) -> str:
    """Return a metric's title with what it is a mean over, unless it says so.

    Examples
    --------
    >>> full_title("auprc", "classes"), full_title("balanced-accuracy", "classes")
    ('average precision (mean over classes)', 'balanced accuracy')
    """
    more = QUALIFIED.get(task, {}).get(name)
    return f"{METRICS[name].title}{f' ({more})' if more else ''}"


SETS = "sets"
"""The entry of a record with the metrics of sets."""

ASKED = 0.9
"""The coverage of the sets that are judged on a test set."""


SET_METRICS: dict[str, Metric] = {
    "asked": Metric("coverage asked for", tasks=()),
    "coverage": Metric("coverage", tasks=(), share=True),
    "size": Metric("mean size", percent=False, highest=math.inf),
    "single": Metric("sets of one class"),
    "single-right": Metric("right among sets of one class"),
    "width": Metric("mean width", tasks=("regression",), percent=False, highest=math.inf),
    "effective": Metric("effective size", tasks=(), percent=False, highest=math.inf),
}
"""The metrics of sets by their names in the record's entry `SETS`; in a reply they begin with ``sets-``."""


UNITS = "test-units"
"""In a reply and a record the number of units, such as patients, if several test samples are of one."""

EFFECTIVE = "test-effective"
"""In these cases the `share_size` for the accuracy, which has no interval without it."""


LOW = "-low"
"""What the name of a metric's interval's low end ends with in a reply."""

HIGH = "-high"
"""What the name of its high end ends with."""

LIMITS = {f"{name}{end}": name for name in METRICS for end in (LOW, HIGH)}
"""The ends of the metrics' intervals, by their names in a reply. A share has none there: its interval follows
from the number of samples."""

INTERVALS = "intervals"
"""Entry of a record with the lower and the upper end by metric."""


def intervals_in(metrics: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the intervals whose ends are among the metrics of a reply, as in a record.

    Examples
    --------
    >>> intervals_in({"auroc": 0.8, "auroc-low": 0.7, "auroc-high": 0.9})
    {'auroc': [0.7, 0.9]}
    """
    names = [name for name in METRICS if f"{name}{LOW}" in metrics and f"{name}{HIGH}" in metrics]
    return {name: [metrics[f"{name}{end}"] for end in (LOW, HIGH)] for name in names}


def metric_names(task: Task) -> list[str]:
    """Return the names of a task's metrics, the default headline first."""
    return [name for name, metric in METRICS.items() if metric.measures(task)]


def headline_metric(name: str | None, task: Task) -> str:
    """Return a run's headline, by default the task's; raise a `ConfigError` if the task lacks the metric."""
    names = metric_names(task)
    if name is not None and name not in names:
        hint, remedy = near(name, names), f"choose one of {', '.join(names)}"
        said = f"unknown metric '{name}' for {TASKS[task]}{hint}"
        raise ConfigError(said, thing="metric", value=name, remedy=remedy)
    return name or names[0]


FEW_CASES = 10
"""Test cases of a class below which no ranking by `Metric.over_classes` is worth much."""


def few_cases(support: Mapping[str, int]) -> dict[str, int]:
    """Return the classes with few test cases, given the number of each; those without any are left out.

    Examples
    --------
    >>> few_cases({"well": 386, "ill": 9, "unknown": 0})
    {'ill': 9}
    """
    return {name: number for name, number in support.items() if 0 < number < FEW_CASES}


RARE = 0.1
"""The share of the labels below which the rarer of two classes makes AUROC the headline."""


def rare_headline(counts: Sequence[float]) -> str | None:
    """Return the headline that a rare class asks for, by the number of labels of each class; else None.

    Where nine of ten labels are of the other class, naming it always is right nine times of ten, and an
    accuracy says little. More than two classes have none: of ten, each has a tenth.

    Examples
    --------
    >>> rare_headline([386, 14]), rare_headline([350, 50]), rare_headline([390, 5, 5])
    ('auroc', None, None)
    """
    return "auroc" if len(counts) == 2 and min(counts) < RARE * sum(counts) else None
