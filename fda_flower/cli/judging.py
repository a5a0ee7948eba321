"""What judges a model on labelled samples: its run's metric, its classes, and its curves."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.files import read_json
from fda_flower.names.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fda_flower.aggregation import Outcomes
    from fda_flower.prediction.files import About


def summary_beside(run: Path) -> dict[str, Any]:
    """Return the summary of the run in this folder, or with this chosen model; empty without one."""
    from fda_flower.records.folder import CHOSEN_MODEL
    from fda_flower.reporting.summary import SUMMARY

    path = (run.parent if run.name == CHOSEN_MODEL else run) / SUMMARY
    return dict(read_json(path, "delete it")) if path.exists() else {}


def headline_beside(
    run: Path, about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", metrics: Mapping[str, float]
) -> str:
    """Return the metric of the run in this folder; without its summary, the one that these labels ask for."""
    import numpy as np

    from fda_flower.metrics import rare_headline
    from fda_flower.records.record import default_metric

    said, rare = summary_beside(run).get("metric"), None
    if about.task == "classes":
        rare = rare_headline(np.bincount(y, minlength=outputs.shape[1]).tolist())
    known = (name for name in (said, rare) if isinstance(name, str) and name in metrics)
    return next(known, default_metric(metrics))


def lines_of(
    metrics: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    baseline: Mapping[str, Any],
    task: Task,
) -> dict[str, str]:
    """Return a line for each metric, with its interval and what ignores the samples, as far as known."""
    from fda_flower.metrics import METRICS, full_title

    lines = {}
    for name, value in metrics.items():
        metric, limits = METRICS[name], intervals.get(name)
        besides = [f"95% interval: {' to '.join(map(metric.show, limits))}"] if limits else []
        besides += [f"{metric.baseline}: {metric.show(baseline[name])}"] if name in baseline else []
        ends = f" ({'; '.join(besides)})" if besides else ""
        lines[name] = f"{full_title(name, task)}: {metric.show(value)}{ends}"
    return lines


def _by_class(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", groups: "NDArray[Any] | None"
) -> dict[str, Any]:
    from fda_flower.metrics import by_class, confusion, units_by_class

    counts = confusion(outputs, y)
    units = units_by_class(y, len(counts), groups)
    names = [str(name) for name in about.class_names or range(len(counts))]
    return {
        "confusion": {"classes": names, "counts": counts.tolist()},
        "classes": by_class(counts, names, units["units"].tolist() if units else None),
    }


def _by_label(about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", groups: Any) -> dict[str, Any]:
    from fda_flower.metrics import by_label, figures_of_labels, units_by_label

    units = units_by_label(y, groups)
    known = units["units"].tolist() if units else None
    return {"labels": by_label(figures_of_labels(outputs, y), about.class_names, known)}


CASES: "Mapping[Task, Callable[[About, NDArray[Any], Any, Any], dict[str, Any]]]" = {
    "classes": _by_class,
    "multilabel": _by_label,
    "survival": lambda about, outputs, y, _: {"events": y.count},
}
"""By task, the entries of a summary on an evaluation's cases, from a description, outputs, labels, groups."""


def entries_of(
    about: "About", outputs: "NDArray[Any]", y: Any, groups: "NDArray[Any] | None"
) -> dict[str, Any]:
    """Return the entries of a summary on cases: each class's and label's metrics, or the number of events."""
    return CASES[about.task](about, outputs, y, groups) if about.task in CASES else {}


def draw_curves(
    path: Path, about: "About", outputs: "NDArray[Any]", y: Any, groups: "NDArray[Any] | None"
) -> None:
    """Draw a picture of `CURVES` into a file; `y` is what outputs are compared with."""
    from fda_flower.files import writing
    from fda_flower.reporting.figures import save_figure

    with writing("picture", path):
        save_figure(path, CURVES[about.task](about, outputs, y, groups))


def _of_classes(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", groups: "NDArray[Any] | None"
) -> "Figure":
    """Draw the ROC and calibration curves of each class, or of the rarer of two."""
    import numpy as np

    from fda_flower.prediction.model import probabilities
    from fda_flower.reporting.curves import Curve, plot_curves

    names = [str(name) for name in about.class_names or range(outputs.shape[1])]
    counts, shares = np.bincount(y, minlength=len(names)), probabilities(outputs)
    chosen = [int(counts.argmin())] if len(names) == 2 else np.argsort(counts, kind="stable").tolist()
    curves = {names[i]: Curve(shares[:, i], y == i, groups) for i in chosen if 0 < counts[i] < len(y)}
    return plot_curves(curves, f"{len(y):,} test samples")


def _of_survival(
    about: "About", outputs: "NDArray[Any]", y: "Outcomes", groups: "NDArray[Any] | None"
) -> "Figure":
    """Draw the survival of groups by risk, with numbers at risk, and what was predicted of them."""
    from fda_flower.reporting.survival import plot_survival

    return plot_survival(outputs, y, f"{len(y):,} test samples")


CURVES: "Mapping[Task, Callable[[About, NDArray[Any], Any, NDArray[Any] | None], Figure]]" = {
    "classes": _of_classes,
    "survival": _of_survival,
}
"""By task, the picture of a model on samples, from its description, outputs, labels and groups."""


def check_curves(path: Path | None, about: "About") -> None:
    """Raise a `ConfigError` unless curves can be drawn into a file."""
    if path is None:
        return
    from fda_flower.errors import invalid
    from fda_flower.reporting.figures import FORMATS

    if path.suffix.removeprefix(".") not in FORMATS:
        raise invalid("curves", path, f"give a file that ends with .{', .'.join(FORMATS)}")
    if about.task not in CURVES:
        raise invalid("curves", path, "leave it out", "but only classes and survival have such curves")
