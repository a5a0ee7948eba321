"""The loss of each row in each column against the first column, for example under an attack."""

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fda_flower.reporting.figures import PAGE, PRINT, SIZE, add_about, blank, wrapped
from fda_flower.reporting.results import Place, Results
from fda_flower.reporting.summary import REFUSED
from fda_flower.reporting.tables import Heading, Part, Table, escaped, mean_and_std, mean_std

HEADER = ("group", "row", "column", "n", "score", "lost", "lost_std", "refused")

LINE, ABOVE = 0.2, 1.3
"""Height of a row of the picture, and of the labels above it, in inches."""
MOST = 60.0
"""Points lost from which on a cell of the picture has the darkest colour."""
SHADES = LinearSegmentedColormap.from_list("lost", ["#f7f7f7", "#f4a582", "#b2182b"])


def lost(results: Results, place: Place) -> tuple[float, ...]:
    """Return the points lost against the first column, for each seed that both columns have."""
    clean = results.points((*place[:2], results.columns[0]))
    ours = results.points(place)
    return tuple(clean[seed] - ours[seed] for seed in clean if seed in ours)


def report(results: Results) -> list[Part]:
    """Return a table for each group: the first column's figure, then the loss in each other column."""
    clean = results.columns[0]
    parts: list[Part] = [
        Heading(f"Lost against {clean}"),
        f"{escaped(clean)}: {results.value_label} over the last 5 rounds. The other columns: points lost "
        "against it, mean (standard deviation) over the seeds that both have; a negative number is a gain.",
    ]
    for group in results.groups:
        parts += [Heading(group, 3)] if group else []
        rows = [
            [results.label(row), *(_text(results, (group, row, column)) for column in results.columns)]
            for row in results.rows
        ]
        parts.append(Table([results.design.axis, *results.columns], rows))
    return parts


def numbers(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty."""
    lines = []
    for place in results.places:
        values, scores = lost(results, place), results.scores(place, "last5")
        score = mean_and_std(scores)[0]
        lines.append([*place, len(scores), score, *mean_and_std(values), results.refused.get(place)])
    return Table(HEADER, lines)


def _text(results: Results, place: Place) -> str:
    group, _, column = place
    if place in results.refused:
        return REFUSED
    if column == results.columns[0]:
        return mean_std(results.scores(place, "last5"), results.metric(group, column).decimals)
    return mean_std(lost(results, place))


@matplotlib.rc_context(PRINT)
def plot_lost(results: Results) -> Figure:
    """Plot the points lost in each cell as a map, a panel for each group; "x" is where a method refuses."""
    clean, *columns = results.columns
    found = {place: values for place in results.places if (values := lost(results, place))}
    shown = [row for row in results.rows if any(row == place[1] for place in found)]
    if not shown or not columns:
        return blank(f"Only {clean} is measured so far.")
    figure = Figure(figsize=(PAGE, LINE * len(shown) + ABOVE), layout="constrained")
    axes = figure.subplots(1, len(results.groups), sharey=True, squeeze=False)[0]
    for axis, group in zip(axes, results.groups, strict=True):
        table = np.full((len(shown), len(columns)), np.nan)
        for y, x in np.ndindex(table.shape):
            place = group, shown[y], columns[x]
            table[y, x] = np.mean(found[place]) if place in found else np.nan
            words = f"{table[y, x]:z.0f}" if place in found else "x" * (place in results.refused)
            color = "w" if table[y, x] > 0.7 * MOST else "k"
            axis.text(x, y, words, ha="center", va="center", fontsize=SIZE - 1, color=color)
        axis.imshow(np.ma.masked_invalid(table), SHADES, vmin=0, vmax=MOST, aspect="auto")
        axis.set_xticks(range(len(columns)), columns, rotation=90)
        axis.set_yticks(range(len(shown)), [results.label(row) for row in shown])
        axis.set_title(wrapped(group, 0.7 * PAGE / len(axes)))
        axis.tick_params(length=0)
    figure.supxlabel(f"Points lost against {clean}", fontsize=SIZE)
    add_about(figure, results.about(spread=False))
    return figure
