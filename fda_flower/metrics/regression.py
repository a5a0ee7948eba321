"""Metrics of a regression."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


def dice(outputs: "NDArray[Any]", y: "NDArray[Any]") -> float:
    """Return the mean over samples of ``2 |P ∩ Y| / (|P| + |Y|)``, 1 where both are empty.

    ``P`` are the pixels with outputs above 0.5, and ``Y`` the ones of the mask, each ``(n, pixels)`` (Dice,
    "Measures of the amount of ecologic association between species", Ecology 26, 1945).

    Examples
    --------
    >>> import numpy as np
    >>> dice(np.array([[0.9, 0.8, 0.1], [0.2, 0.1, 0.3]]), np.array([[1, 0, 0], [0, 0, 0]]))
    0.8333333333333333
    """
    import numpy as np

    predicted, truth = outputs > 0.5, y.reshape(outputs.shape) > 0.5
    both, sizes = 2.0 * (predicted & truth).sum(axis=1), predicted.sum(axis=1) + truth.sum(axis=1)
    return float(np.divide(both, sizes, out=np.ones(len(both)), where=sizes > 0).mean())


def measure_numbers(outputs: "NDArray[Any]", y: "NDArray[Any]") -> dict[str, float]:
    """Return the metrics of a regression; see `fda_flower.metrics.measure`."""
    import numpy as np

    outputs, y = outputs.astype(np.float64), y.reshape(outputs.shape).astype(np.float64)
    if not np.isfinite(outputs).all():
        return {}
    errors, spread = np.square(y - outputs), float(np.square(y - y.mean(axis=0)).sum())
    return {
        "r2": 1 - float(errors.sum()) / spread if spread else float(not errors.any()),
        "rmse": float(np.sqrt(np.mean(errors.mean(axis=0)))),
        "mae": float(np.mean(np.abs(y - outputs).mean(axis=0))),
    }
