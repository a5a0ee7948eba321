"""The figures of the board's tables: each method's next to the ones of what an analyst would take instead."""

import csv
import lzma
from collections.abc import Mapping
from typing import Any

import numpy as np
from records import references_of

from fda_flower.metrics import METRICS
from fda_flower.reporting.results import CENTRALISED, Place, Results
from fda_flower.reporting.tables import Cell, Heading, Part, Table

OF_CLASSES = ("accuracy", "auroc", "loss", "ece")
FIGURES = (*OF_CLASSES, "r2")
ALONE = "Target alone"
"""The beginning of the name of a reference that needs no data of others; the others are centralised."""

Figures = Mapping[str, float]


def _references(results: Results) -> dict[Place, list[dict[str, float]]]:
    """Return the figures of each reference by place, a dictionary for each seed."""
    figures: dict[Place, list[dict[str, float]]] = {}
    with lzma.open(references_of(results.design.name), "rt", encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            known = {name: float(line[name]) for name in FIGURES if line[name]}
            figures.setdefault((line["group"], line["row"], line["column"]), []).append(known)
    return figures


def figures_of(results: Results) -> dict[Place, tuple[int, Figures]]:
    """Return the number of seeds of each place, and the mean of each figure after the last round."""
    last: dict[Place, list[dict[str, Any]]] = {
        place: [dict(run.history[-1]) for run in results.at(place) if run.history] for place in results.places
    }
    return {
        place: (
            len(seeds),
            {name: float(np.mean([seed[name] for seed in seeds])) for name in FIGURES if name in seeds[0]},
        )
        for place, seeds in (last | _references(results)).items()
        if seeds
    }


def _named(row: str, results: Results) -> str:
    reference = row not in results.rows and not row.startswith(ALONE)
    return f"{row} {CENTRALISED}" if reference else results.label(row)


def report(results: Results) -> list[Part]:
    """Return, for each group, a table of means over the columns with classes, and one of each column."""
    figures = figures_of(results)
    rows = list(dict.fromkeys(row for _, row, _ in figures))
    parts: list[Part] = [
        Heading("Next to what an analyst would take"),
        "After the last round, means over seeds; loss and calibration error are the better the lower. The "
        f"references are scikit-learn's, on the runs' own rows; {CENTRALISED} marks those that need rows of "
        "several sites in one place. Where labels are numbers, logistic regression is ridge regression.",
    ]
    classes = [c for c in results.columns if results.metrics.get((results.groups[0], c)) != "r2"]
    for group in results.groups:
        parts.append(Heading(f"{results.design.group_axis}: {group}", 3))
        parts.append(f"Means over the {len(classes)} tables with classes, and R² of the others:")
        parts.append(_means(results, figures, rows, group, classes))
        parts.append("By table, AUROC (%) and in parentheses the loss:")
        parts.append(_by_column(results, figures, rows, group, classes))
    return parts


def _means(
    results: Results,
    figures: Mapping[Place, tuple[int, Figures]],
    rows: list[str],
    group: str,
    classes: list[str],
) -> Table:
    others = [column for column in results.columns if column not in classes]
    header = ["Method", *(METRICS[name].label for name in OF_CLASSES), *(f"R² {column}" for column in others)]
    lines = []
    for row in rows:
        own = {
            column: figures[group, row, column][1]
            for column in results.columns
            if (group, row, column) in figures
        }
        means = [
            METRICS[name].show(float(np.mean([own[column][name] for column in classes]))).removesuffix("%")
            if all(name in own.get(column, ()) for column in classes)
            else "-"
            for name in OF_CLASSES
        ]
        numbers = [f"{own[column]['r2']:.3f}" if column in own else "-" for column in others]
        lines.append([_named(row, results), *means, *numbers])
    return Table(header, lines)


def _by_column(
    results: Results,
    figures: Mapping[Place, tuple[int, Figures]],
    rows: list[str],
    group: str,
    classes: list[str],
) -> Table:
    known = {
        (row, column): figures[group, row, column][1]
        for row in rows
        for column in classes
        if "auroc" in figures.get((group, row, column), (0, {}))[1]
    }
    best = {
        column: max((each["auroc"] for (_, c), each in known.items() if c == column), default=0.0)
        for column in classes
    }
    lines = [
        [
            _named(row, results),
            *(
                Cell(f"{100 * each['auroc']:.1f} ({each['loss']:.2f})", best=each["auroc"] == best[column])
                if (each := known.get((row, column)))
                else "-"
                for column in classes
            ),
        ]
        for row in rows
    ]
    return Table(["Method", *classes], lines)


def numbers(results: Results) -> Table:
    """Return one line for each place, with each figure's mean over seeds; unknown ones are empty."""
    lines = [
        [*place, count, *(f"{figures[name]:.4g}" if name in figures else None for name in FIGURES)]
        for place, (count, figures) in figures_of(results).items()
    ]
    return Table(["group", "row", "column", "seeds", *FIGURES], lines)
