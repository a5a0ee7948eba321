"""Figure 5 of the FedGP paper: the best rule by shift and number of labels, as predicted and as measured."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fda_flower.aggregation.theory import delta_errors, predicted_best_rule
from fda_flower.reporting import RecordedRun, Results
from fda_flower.reporting.figures import PRINT, SIZE, add_legend, panels, set_categories
from fda_flower.reporting.summary import PARAMETERS
from fda_flower.runs.methods import METHODS

BETA = 0.5
INITIAL = "At initialisation"
"""Label of the row whose estimates make the prediction, if there is such a row."""
ESTIMATES = ("sigma2", "d2", "tau2-d2")
RULES = {METHODS[name].label: name for name in ("source-only", "target-only", "fedda", "fedgp")}
LETTERS = "STDG"
SHADES = ("#fde725", "#5ec0d0", "#2a788e", "#440154")
"""From light to dark, to differ in greyscale."""


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
    height, about = max(1.4, 0.5 + 0.2 * len(results.groups)), results.about(spread=False)
    figure, axes = panels([*maps], results.design.axis, results.design.group_axis, about=about, height=height)
    names = [*RULES]
    for axis, best in zip(axes, maps.values(), strict=True):
        table = np.full((len(results.groups), len(results.columns)), np.nan)
        for (y, group), (x, column) in product(enumerate(results.groups), enumerate(results.columns)):
            rule = best(group, column)
            if rule is not None:
                table[y, x] = i = names.index(rule)
                white = "white" if i >= 2 else "black"
                axis.text(x, y, LETTERS[i], ha="center", va="center", color=white, fontsize=SIZE)
        cells = np.ma.masked_invalid(table)
        axis.imshow(cells, ListedColormap(SHADES), vmin=0, vmax=3, origin="lower", aspect="auto")
        set_categories(axis, results.columns)
        axis.set_yticks(range(len(results.groups)), results.groups)
    keys = zip(SHADES, names, LETTERS, strict=True)
    add_legend(figure, [], more=[Patch(facecolor=c, label=f"{name} ({letter})") for c, name, letter in keys])
    return figure


def rule_of(row: str) -> str | None:
    """Return the rule that a row runs: its label starts with the rule's name."""
    return next((name for name in RULES if row.startswith(name)), None)


def predict(results: Results, group: str, column: str) -> str | None:
    """Return the rule with the smallest Delta error, from the mean estimates of the first round with any.

    The row `INITIAL` provides the estimates or, if it is missing, all rows.
    """
    runs = results.at((group, INITIAL, column)) or results.column(group, column)
    estimates = [(run, entry) for run in runs for entry in _first_estimates(run)]
    if not estimates:
        return None
    values = np.array([[entry.get(key) for key in ESTIMATES] for _, entry in estimates], dtype=float)
    sigma2, d2, tau2_d2 = np.ma.masked_invalid(values).mean(axis=0).filled(np.nan).tolist()
    errors = delta_errors(BETA, sigma2, d2, tau2_d2, estimates[0][0].summary[PARAMETERS])
    return METHODS[predicted_best_rule(errors)].label


def _first_estimates(run: RecordedRun) -> Sequence[Mapping[str, float]]:
    """Return each source's entry in the record of the first round with estimates."""
    rounds = (record["sources"].values() for record in run.history)
    found = ([entry for entry in entries if entry.get("sigma2") is not None] for entries in rounds)
    return next(filter(None, found), [])


def find_best(results: Results, rows: Sequence[str], group: str, column: str) -> str | None:
    """Return the rule of the row with the best ``last5`` at a place; None if no row was run."""
    means = [
        (float(np.mean([*points.values()])), rule)
        for row in rows
        if (rule := rule_of(row)) and (points := results.points((group, row, column)))
    ]
    return max(means, key=itemgetter(0), default=(0.0, None))[1]
