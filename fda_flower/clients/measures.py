"""The metrics of a client's outputs on its samples, and the ends of their intervals."""

from collections.abc import Callable
from typing import Any, TypeAlias

from numpy.typing import NDArray

from fda_flower.datasets import Samples
from fda_flower.metrics import HIGH, LOW, METRICS, measure, measure_with_intervals

ToLabels: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""Converts a regression's outputs and labels to the labels' unit."""


def metrics_of(
    outputs: NDArray[Any],
    samples: Samples,
    loss: float,
    to_labels: ToLabels | None = None,
    mask: bool = False,
) -> dict[str, float]:
    """Return ``loss`` and the metrics of `fda_flower.metrics.measure`; ``r2`` of infinite outputs is −∞.

    For a regression `to_labels` converts outputs and labels, for all but the `loss`. A `mask` has ``dice``.
    """
    measured = measure(*_as_labels(outputs, samples, to_labels), samples.task, mask)
    return _with_loss(measured, samples, loss)


def metrics_and_limits(
    outputs: NDArray[Any],
    samples: Samples,
    loss: float,
    to_labels: ToLabels | None = None,
    mask: bool = False,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return `metrics_of`, and the ends of their intervals by their names in `fda_flower.metrics.LIMITS`."""
    pair = _as_labels(outputs, samples, to_labels)
    measured, intervals = measure_with_intervals(*pair, samples.task, samples.groups, mask)
    limits = {
        f"{name}{end}": value
        for name, ends in intervals.items()
        if not METRICS[name].share
        for end, value in zip((LOW, HIGH), ends, strict=True)
    }
    return _with_loss(measured, samples, loss), limits


def _with_loss(measured: dict[str, float], samples: Samples, loss: float) -> dict[str, float]:
    infinite = samples.task == "regression" and "r2" not in measured
    return {"loss": loss, **({"r2": 1 - loss} if infinite else {}), **measured}


def _as_labels(
    outputs: NDArray[Any], samples: Samples, to_labels: ToLabels | None
) -> tuple[NDArray[Any], Any]:
    """Return outputs and what they are measured by, of a regression in the labels' unit."""
    if to_labels is None or samples.task != "regression":
        return outputs, samples.truth
    return to_labels(outputs), to_labels(samples.y)
