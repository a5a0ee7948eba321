"""ROC and calibration curves of classes, from outputs that do not leave the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fda_flower.metrics import FEW_CASES, METRICS, share_interval
from fda_flower.metrics.intervals import whole_units
from fda_flower.metrics.ranking import area_under_roc, auroc_interval
from fda_flower.reporting.figures import BASELINE, PRINT, add_about, add_legend, blank, panels, styles_of

BINS, LEAST = 10, 10
"""The most bins of a calibration curve, and the fewest samples in one."""

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The probabilities of a class, which samples are of it, both ``(n,)``, and their units, if any.

    Some samples are of the class, and some are not.
    """

    probabilities: NDArray[Any]
    positive: NDArray[np.bool_]
    units: NDArray[Any] | None = None

    @cached_property
    def roc(self) -> tuple[Points, Points]:
        """The shares of the others and of the class from each probability on, from 0 to 1.

        Samples with one probability are a single step.
        """
        order = np.argsort(-self.probabilities, kind="stable")
        last = np.append(np.flatnonzero(np.diff(self.probabilities[order])), len(order) - 1)
        right = np.cumsum(self.positive[order])[last]
        wrong = last + 1 - right
        return np.append(0.0, wrong / wrong[-1]), np.append(0.0, right / right[-1])

    @cached_property
    def area(self) -> tuple[float, tuple[float, float]]:
        """The area under the ROC curve, and its 95% interval."""
        value = area_under_roc(self.probabilities, self.positive)
        sizes = (whole_units(side, self.units) for side in (self.positive, ~self.positive))
        return value, auroc_interval(value, *sizes)

    @cached_property
    def calibration(self) -> list[tuple[float, float, tuple[float, float] | None]]:
        """The mean probability of each bin, the share that is of the class, and its 95% interval.

        Bins have the same number of samples; several samples of a unit have no interval.
        """
        order = np.argsort(self.probabilities, kind="stable")
        bins = np.array_split(order, max(1, min(BINS, len(order) // LEAST)))
        shares = [(float(self.probabilities[b].mean()), float(self.positive[b].mean()), len(b)) for b in bins]
        single = self.units is None
        return [(p, share, share_interval(share, n) if single else None) for p, share, n in shares]

    def label(self, name: str) -> str:
        """Return the class with its area, interval and cases for a legend."""
        (value, ends), count, metric = self.area, int(self.positive.sum()), METRICS["auroc"]
        few = ", few" if count < FEW_CASES else ""
        between = " to ".join(map(metric.show, ends))
        return f"{name} ({count:,}{few}): AUROC {metric.show(value)} ({between})"


@matplotlib.rc_context(PRINT)
def plot_curves(curves: Mapping[str, Curve], about: str = "") -> Figure:
    """Plot the ROC curve of each class, with its area and cases, and how its probabilities are calibrated."""
    if not curves:
        return blank("The test set has samples of a single class: it has no curves.")
    figure, (left, right) = panels(["ROC", "Calibration"], "", share_y=False, height=2.8)
    styles = styles_of([*curves])
    for name, curve in curves.items():
        look: Any = {"color": styles[name].color, "linestyle": styles[name].dash}
        left.plot(*curve.roc, label=curve.label(name), **look)
        mean, shares, ends = zip(*curve.calibration, strict=True)
        sure = [pair or (share, share) for pair, share in zip(ends, shares, strict=True)]
        bars = np.abs(np.subtract(sure, np.array(shares)[:, None])).T
        right.errorbar(mean, shares, bars, marker=styles[name].marker, capsize=2, elinewidth=0.8, **look)
    most = min(1.0, max(right.get_xlim()[1], right.get_ylim()[1]))
    for axis, x, y in (
        (left, "1 − specificity", "Sensitivity"),
        (right, "Probability of the class", "Share that is of the class"),
    ):
        axis.plot([0, 1], [0, 1], **BASELINE)
        axis.set(xlabel=x, ylabel=y)
        axis.grid(alpha=0.3, linewidth=0.5)
    right.set(xlim=(0, most), ylim=(0, most))
    add_legend(figure, [left])
    add_about(figure, f"{about}; vertical lines are 95% intervals")
    return figure
