"""Metrics of sets of classes, and of intervals of a regression."""

from typing import TYPE_CHECKING, Any

from fda_flower.metrics.intervals import share_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    size = share_size(held, units)
    return {"effective": size} if isinstance(size, float) else {}
