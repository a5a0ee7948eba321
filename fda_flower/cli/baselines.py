"""What an evaluation compares a model with, by task."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fda_flower.names.tasks import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fda_flower.aggregation import Outcomes
    from fda_flower.prediction.files import About

    Of = Callable[[About, NDArray[Any], Any, Mapping[str, float]], dict[str, Any]]


def _of_classes(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", metrics: Mapping[str, float]
) -> dict[str, Any]:
    from fda_flower.metrics import confusion, of_most_frequent

    counts = confusion(outputs, y)
    most = int(counts.sum(axis=1).argmax())
    return {"class": (about.class_names or range(most + 1))[most], **of_most_frequent(counts)}


def _of_numbers(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", metrics: Mapping[str, float]
) -> dict[str, Any]:
    from fda_flower.metrics import of_mean

    return dict(of_mean(metrics)) if "r2" in metrics else {}


def _of_labels(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", metrics: Mapping[str, float]
) -> dict[str, Any]:
    from fda_flower.metrics import of_shares

    return dict(of_shares((y > 0).sum(axis=0).tolist(), len(y)))


def _of_curve(
    about: "About", outputs: "NDArray[Any]", y: "Outcomes", metrics: Mapping[str, float]
) -> dict[str, Any]:
    from fda_flower.metrics.survival import of_curve

    return dict(of_curve(y))


BASELINES: "Mapping[Task, Of]" = {
    "classes": _of_classes,
    "regression": _of_numbers,
    "multilabel": _of_labels,
    "survival": _of_curve,
}
"""By task, the figures of what ignores its input, from a model's description, outputs, labels and metrics."""


def baseline_of(
    about: "About", outputs: "NDArray[Any]", y: "NDArray[Any]", metrics: Mapping[str, float]
) -> dict[str, Any]:
    """Return the figures of what ignores its input; of some metrics they are always the same."""
    from fda_flower.metrics import METRICS

    always = {n: METRICS[n].chance for n in metrics if METRICS[n].chance is not None}
    of = BASELINES.get(about.task)
    return {**always, **({} if of is None else of(about, outputs, y, metrics))}
