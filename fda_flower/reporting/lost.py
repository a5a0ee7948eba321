"""What each column of an experiment costs a row against the first column, such as an attack against none."""

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fda_flower.reporting.experiment_tables import REFUSED
from fda_flower.reporting.figures import PAGE, PRINT, SIZE, add_about, blank, wrapped
from fda_flower.reporting.results import Results
from fda_flower.reporting.tables import Heading, Part, Table, mean_and_std, mean_std

HEADER = ("group", "row", "column", "n", "score", "lost", "lost_std", "refused")

LINE, ABOVE = 0.2, 1.3
"""Height of a row of the picture, and what its labels take, in inches."""
MOST = 60.0
"""Points lost from which on a cell of the picture has the darkest colour."""
SHADES = LinearSegmentedColormap.from_list("lost", ["#f7f7f7", "#f4a582", "#b2182b"])


@dataclass(frozen=True)
class Lost:
    """What is lost against the first column, in points of the headline (`CellResult.points`)."""

    results: Results

    @property
    def clean(self) -> str:
        """The label of the first column."""
        return self.results.columns[0]

    def points(self, group: str, row: str, column: str) -> dict[int, float]:
        """Return ``last5`` in points by seed."""
        found = {cell.seed: cell.points for cell in self.results.at((group, row, column))}
        return {seed: points for seed, points in found.items() if not np.isnan(points)}

    def lost(self, group: str, row: str, column: str) -> tuple[float, ...]:
        """Return what is lost, for each seed that both columns have."""
        clean, ours = self.points(group, row, self.clean), self.points(group, row, column)
        return tuple(clean[seed] - ours[seed] for seed in clean if seed in ours)


def report(results: Results) -> list[Part]:
    """Return a table for each group: the first column's figure, then what each other one costs."""
    lost = Lost(results)
    parts: list[Part] = [
        Heading(f"Lost against {lost.clean}"),
        f"{lost.clean}: {results.value_label} over the last 5 rounds. The other columns: points lost against "
        "it, mean (standard deviation) over the seeds that both have; a negative number is a gain.",
    ]
    for group in results.groups:
        parts += [Heading(group, 3)] if group else []
        rows = [
            [results.label(row), *(_text(lost, group, row, column) for column in results.columns)]
            for row in results.rows
        ]
        parts.append(Table([results.axis, *results.columns], rows))
    return parts


def numbers(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty."""
    lost, lines = Lost(results), []
    for place in results.places:
        values, scores = lost.lost(*place), results.scores(place, "last5")
        score = mean_and_std(scores)[0]
        lines.append([*place, len(scores), score, *mean_and_std(values), results.refused.get(place)])
    return Table(HEADER, lines)


def _text(lost: Lost, group: str, row: str, column: str) -> str:
    if (group, row, column) in lost.results.refused:
        return REFUSED
    if column == lost.clean:
        return mean_std(
            lost.results.scores((group, row, column), "last5"), lost.results.metric(group, column).decimals
        )
    return mean_std(lost.lost(group, row, column))


@matplotlib.rc_context(PRINT)
def plot_lost(results: Results) -> Figure:
    """Plot the points lost in each cell as a map, a panel for each group; "x" is where a method refuses."""
    lost, columns = Lost(results), results.columns[1:]
    found: Mapping[tuple[str, str, str], tuple[float, ...]] = {
        place: values for place in results.places if (values := lost.lost(*place))
    }
    shown = [row for row in results.rows if any(row == place[1] for place in found)]
    if not shown or not columns:
        return blank(f"Nothing is measured beside {lost.clean} yet.")
    height = LINE * len(shown) + ABOVE
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(results.groups), sharey=True, squeeze=False)[0]
    for axis, group in zip(axes, results.groups, strict=True):
        table = np.full((len(shown), len(columns)), np.nan)
        for y, row in enumerate(shown):
            for x, column in enumerate(columns):
                values = found.get((group, row, column), ())
                if values:
                    table[y, x] = np.mean(values)
                words = f"{table[y, x]:z.0f}" if values else "x" * ((group, row, column) in results.refused)
                dark = table[y, x] > 0.7 * MOST
                axis.text(
                    x, y, words, ha="center", va="center", fontsize=SIZE - 1, color="w" if dark else "k"
                )
        axis.imshow(np.ma.masked_invalid(table), SHADES, vmin=0, vmax=MOST, aspect="auto")
        axis.set_xticks(range(len(columns)), columns, rotation=90)
        axis.set_yticks(range(len(shown)), [results.label(row) for row in shown])
        axis.set_title(wrapped(group, 0.7 * PAGE / len(axes)))
        axis.tick_params(length=0)
    figure.supxlabel(f"Points lost against {lost.clean}", fontsize=SIZE)
    add_about(figure, results.about(spread=False))
    return figure
