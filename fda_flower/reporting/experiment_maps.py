"""Maps of the best rule for each setting: as the theory predicts it, and as measured."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fda_flower.aggregation.theory import predicted_best_rule
from fda_flower.methods import METHODS
from fda_flower.reporting.panels import PRINT, SIZE, add_legend, panels, set_categories
from fda_flower.reporting.results import CellResult, Results

BETA = 0.5
INITIAL = "At initialisation"
"""Label of the row from which the prediction is made, if there is such a row."""
ESTIMATES = ("sigma2", "d2", "tau2-d2")

RULES = {METHODS[name].label: name for name in ("source-only", "target-only", "fedda", "fedgp")}
LETTERS = "STDG"
COLORS = ("#fde725", "#5ec0d0", "#2a788e", "#440154")
"""From light to dark, so that they also differ in greyscale."""


@matplotlib.rc_context(PRINT)
def plot_best_rule(results: Results) -> Figure:
    """Plot the best rule by column and group: predicted, with fixed β, and with estimated β."""
    fixed = [row for row in results.rows if "_Auto" not in row]
    auto = [row for row in results.rows if row not in fixed or rule_of(row) in ("Source Only", "Target Only")]
    maps: Mapping[str, Callable[[str, str], str | None]] = {
        f"(a) Predicted, β = {BETA}": partial(predict, results),
        "(b) Measured, β fixed": partial(find_best, results, fixed),
        "(c) Measured, β estimated": partial(find_best, results, auto),
    }
    height = max(1.4, 0.5 + 0.2 * len(results.groups))
    figure, axes = panels(
        list(maps), results.axis, results.group_axis, about=results.about(spread=False), height=height
    )
    names = list(RULES)
    for axis, best in zip(axes, maps.values(), strict=True):
        table = np.full((len(results.groups), len(results.columns)), np.nan)
        for y, group in enumerate(results.groups):
            for x, column in enumerate(results.columns):
                rule = best(group, column)
                if rule is not None:
                    i = names.index(rule)
                    table[y, x] = i
                    white = "white" if i >= 2 else "black"
                    axis.text(x, y, LETTERS[i], ha="center", va="center", color=white, fontsize=SIZE)
        cells = np.ma.masked_invalid(table)
        axis.imshow(cells, ListedColormap(COLORS), vmin=0, vmax=3, origin="lower", aspect="auto")
        set_categories(axis, results.columns)
        axis.set_yticks(range(len(results.groups)), results.groups)
    keys = zip(COLORS, names, LETTERS, strict=True)
    add_legend(figure, axes, [], [Patch(facecolor=c, label=f"{name} ({letter})") for c, name, letter in keys])
    return figure


def rule_of(row: str) -> str | None:
    """Return the rule that a row runs, by the start of its label."""
    return next((name for name in RULES if row.startswith(name)), None)


def predict(results: Results, group: str, column: str) -> str | None:
    """Return the rule with the smallest Delta error, by the mean estimates of the first round that has any.

    The estimates are those of the row `INITIAL` or, without it, of all rows.
    """
    cells = [cell for cell in results.cells if (cell.place[0], cell.place[2]) == (group, column)]
    cells = [cell for cell in cells if cell.place[1] == INITIAL] or cells
    found = [(cell, entry) for cell in cells if cell.parameters for entry in first_estimates(cell)]
    if not found:
        return None
    values = np.array([[entry.get(key) for key in ESTIMATES] for _, entry in found], dtype=float)
    sigma2, d2, tau2_d2 = np.ma.masked_invalid(values).mean(axis=0).filled(np.nan).tolist()
    rule = predicted_best_rule(BETA, sigma2, d2, tau2_d2, found[0][0].parameters)
    return METHODS[rule].label


def first_estimates(cell: CellResult) -> Sequence[Mapping[str, float]]:
    """Return each source's entry in the record of the first round with estimates."""
    rounds = (
        [entry for entry in record["sources"].values() if entry.get("sigma2") is not None]
        for record in cell.history
    )
    return next((entries for entries in rounds if entries), [])


def find_best(results: Results, rows: Sequence[str], group: str, column: str) -> str | None:
    """Return the rule of the row with the best ``last5`` at a place, if any was run."""
    sign = 1 if results.metric(group, column).higher_is_better else -1
    means = [
        (sign * float(np.mean(values)), rule)
        for row in rows
        if (rule := rule_of(row)) and (values := results.scores((group, row, column), "last5"))
    ]
    return max(means, key=itemgetter(0), default=(0.0, None))[1]
