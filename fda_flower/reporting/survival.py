"""The picture of predicted survival on a test set: groups of risk with numbers at risk, and calibration."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fda_flower.aggregation.survival import Outcomes, curves_of, risk_of, survival_curve
from fda_flower.reporting.figures import BASELINE, PAGE, PRINT, SIZE, add_about, style

GROUPS = ("low risk", "middle risk", "high risk")
FEWEST = 5
"""A smaller group is not drawn: its curve would be of single patients."""

MARKS = 5
"""Times at which numbers at risk are written."""


@matplotlib.rc_context(PRINT)
def plot_survival(outputs: NDArray[np.floating], outcomes: Outcomes, about: str = "") -> Figure:
    """Plot the Kaplan-Meier curves of three equal groups by predicted risk, and what was predicted of them.

    Parameters
    ----------
    outputs : array
        A network's, for each patient and horizon, shape ``(n, K)``.
    outcomes : Outcomes
        What happened to the patients.
    about : str
        A sentence below the figure.
    """
    curves = curves_of(outputs)
    groups = np.array_split(np.argsort(risk_of(curves), kind="stable"), len(GROUPS))
    drawn = [(i, members) for i, members in enumerate(groups) if len(members) >= FEWEST]
    figure = Figure(figsize=(PAGE, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for i, members in drawn:
        _draw_curve(left, i, outcomes.take(members))
        predicted, observed = curves[members].mean(axis=0), outcomes.take(members).curve
        look = style(i)
        right.plot(predicted, observed, look.marker, color=look.color, label=GROUPS[i])
    _write_at_risk(left, [(i, outcomes.take(members)) for i, members in drawn])
    left.set(
        xlabel="Time; below, the numbers at risk from low to high",
        ylabel="Share without the event",
        ylim=(0, 1.02),
    )
    right.plot([0, 1], [0, 1], **BASELINE)
    right.set(xlabel="Predicted survival at each horizon", ylabel="Observed (Kaplan-Meier)")
    right.set(xlim=(0, 1.02), ylim=(0, 1.02))
    if drawn:
        left.legend(fontsize=SIZE)
    add_about(figure, about)
    return figure


def _draw_curve(axis: Axes, number: int, group: Outcomes) -> None:
    look, last = style(number), float(group.times.max())
    times = np.concatenate([[0.0], np.unique(group.times[group.events]), [last]])
    shares = survival_curve(group.times, group.events, times)
    axis.step(times, shares, where="post", color=look.color, linestyle=look.dash, label=GROUPS[number])


def _write_at_risk(axis: Axes, groups: list[tuple[int, Outcomes]]) -> None:
    """Write below the axis of times how many of each group are followed until then or longer."""
    longest = max((float(group.times.max()) for _, group in groups), default=1.0)
    marks = np.linspace(0, longest, MARKS)
    counts = [[int((group.times >= mark).sum()) for _, group in groups] for mark in marks]
    labels = ["\n".join([f"{mark:.3g}", *map(str, each)]) for mark, each in zip(marks, counts, strict=True)]
    axis.set_xlim(0, longest)
    axis.set_xticks(marks, labels)
