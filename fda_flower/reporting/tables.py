"""Tables of results: mean (std) over seeds."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """A method's results, accuracies in percent, one value a seed."""

    label: str
    last5: tuple[float, ...]
    best: tuple[float, ...]
    rounds: int

    @property
    def cells(self) -> tuple[str, str]:
        """``last5`` and ``best`` as ``mean (std)``."""
        return mean_std(self.last5), mean_std(self.best)


def mean_std(values: Sequence[float]) -> str:
    """``"77.3 (1.2)"``; the sample standard deviation, left out for one value.

    Examples
    --------
    >>> mean_std([76.0, 78.0])
    '77.0 (1.4)'
    """
    if not values:
        return "-"
    mean = f"{np.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({np.std(values, ddof=1):.1f})"


def make_rows(summaries: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """Rows from the summaries of each method's runs, one a seed."""
    return [
        Row(
            label,
            tuple(s["last5"] for s in runs if s["last5"] is not None),
            tuple(s["best"] for s in runs if s["best"] is not None),
            max(s["rounds"] for s in runs),
        )
        for label, runs in summaries.items()
    ]


def to_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table; the best mean of each column is bold."""
    tops = [max((np.mean(v) for v in column if v), default=np.nan) for column in _columns(rows)]
    lines = [
        "| Method | last5 (%) | best (%) | seeds | rounds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            f"**{cell}**" if values and np.mean(values) == top else cell
            for cell, values, top in zip(row.cells, (row.last5, row.best), tops, strict=True)
        ]
        lines.append(f"| {row.label} | {' | '.join(cells)} | {len(row.last5)} | {row.rounds} |")
    return "\n".join(lines) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """The same table with its numbers apart."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["method", "last5", "last5_std", "best", "best_std", "seeds", "rounds"])
    for row in rows:
        numbers: list[object] = []
        for values in (row.last5, row.best):
            numbers.append(np.mean(values) if values else "")
            numbers.append(np.std(values, ddof=1) if len(values) > 1 else "")
        writer.writerow([row.label, *numbers, len(row.last5), row.rounds])
    return buffer.getvalue()


def _columns(rows: Sequence[Row]) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    return [row.last5 for row in rows], [row.best for row in rows]
