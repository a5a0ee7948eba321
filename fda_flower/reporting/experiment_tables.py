"""The tables of an experiment: what was measured, beside what the paper prints."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fda_flower.reporting.results import Place, Results
from fda_flower.reporting.tables import mean_std

AVERAGE = "Avg"
HEADER = (
    *("group", "row", "column", "seeds", "rounds"),
    *("last5", "last5_std", "best", "best_std", "paper", "difference"),
)

Scores = Mapping[tuple[str, str], Sequence[float]]
"""By row and column: one value a seed."""


def known_scores(results: Results, place: Place, key: str) -> list[float]:
    """``last5`` or ``best`` of the seeds that have it, in percent."""
    return [score for score in results.scores(place, key) if not np.isnan(score)]


def to_markdown(results: Results) -> str:
    """For each group a table of ``last5`` beside the paper's values, and one of ``best``.

    The best mean of each column is bold; what a cut-down run left out is marked.
    """
    counts = sorted({len(known_scores(results, place, "last5")) for place in _places(results)} - {0})
    usual = max(counts, default=0)
    measured = f"{_describe(counts)}, {_number(results.rounds, 'round')}."
    parts = [
        f"# {results.title}",
        f"{results.source}. {measured}" if results.source else measured,
        results.note.strip(),
        *(f"**Cut down:** {cut}" for cut in results.cuts),
    ]
    for group in results.groups:
        if group:
            parts.append(f"## {results.group_axis}: {group}" if results.group_axis else f"## {group}")
        parts += [
            "Target test accuracy (%) over the last 5 rounds: mean (standard deviation) over seeds, then the "
            "paper's value and how far ours is from it.",
            _table(results, _scores(results, group, "last5"), _paper(results, group), usual),
            "The same for the best round on the test set, which is **optimistic**: the test labels chose it.",
            _table(results, _scores(results, group, "best"), {}, usual),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_csv(results: Results) -> str:
    """One line a place, numbers unrounded, empty where nothing is known."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    for place in _places(results):
        last5, best = (known_scores(results, place, key) for key in ("last5", "best"))
        rounds = max((len(cell.history) for cell in results.at(place)), default=None)
        paper = results.paper.get(place)
        difference = np.mean(last5) - paper if last5 and paper is not None else None
        numbers = (*_mean_and_std(last5), *_mean_and_std(best), paper, difference)
        writer.writerow([*place, len(last5), rounds, *numbers])
    return buffer.getvalue()


def _places(results: Results) -> Iterator[Place]:
    for group in results.groups:
        for row in results.rows:
            for column in results.columns:
                yield group, row, column


def _scores(results: Results, group: str, key: str) -> Scores:
    """Of each row and column, and of their average: over the seeds that have all columns."""
    scores = {
        (row, column): known_scores(results, (group, row, column), key)
        for row in results.rows
        for column in results.columns
    }
    for row in results.rows if results.average else ():
        by_column = [
            {cell.seed: cell.score(key) for cell in results.at((group, row, column))}
            for column in results.columns
        ]
        seeds = sorted(set.intersection(*map(set, by_column)))
        means = [float(np.mean([column[seed] for column in by_column])) for seed in seeds]
        scores[row, AVERAGE] = [mean for mean in means if not np.isnan(mean)]
    return scores


def _paper(results: Results, group: str) -> Mapping[tuple[str, str], float]:
    """The paper's values; its average is that of its columns where it prints none."""
    values = {(row, column): value for (where, row, column), value in results.paper.items() if where == group}
    for row in results.rows:
        columns = [values[row, column] for column in results.columns if (row, column) in values]
        if len(columns) == len(results.columns):
            values.setdefault((row, AVERAGE), float(np.mean(columns)))
    return values


def _table(results: Results, scores: Scores, paper: Mapping[tuple[str, str], float], usual: int) -> str:
    columns = [*results.columns, *([AVERAGE] if results.average else [])]
    means = {place: float(np.mean(values)) for place, values in scores.items() if values}
    tops = {column: max(means.get((row, column), 0) for row in results.rows) for column in columns}
    lines = [f"| {' | '.join([results.axis, *columns])} |", f"| --- |{' ---: |' * len(columns)}"]
    for row in results.rows:
        cells = [
            _cell(scores[row, column], tops[column], paper.get((row, column)), usual) for column in columns
        ]
        lines.append(f"| {' | '.join([row, *cells])} |")
    return "\n".join(lines)


def _cell(values: Sequence[float], top: float, paper: float | None, usual: int) -> str:
    """``**71.0 (0.4, 3 seeds)**<br>paper 71.1, -0.1``; the seeds where there are fewer than usual."""
    text = mean_std(values)
    if values and len(values) != usual:
        seeds = _number(len(values), "seed")
        text = f"{text} ({seeds})" if len(values) == 1 else f"{text[:-1]}, {seeds})"
    if values and np.mean(values) == top:
        text = f"**{text}**"
    if paper is None:
        return text
    difference = f", {np.mean(values) - paper:+z.1f}" if values else ""
    return f"{text}<br>paper {paper:.1f}{difference}"


def _describe(counts: Sequence[int]) -> str:
    """How many seeds the cells have, none left out."""
    if len(counts) < 2:
        return _number(counts[0], "seed") if counts else "Nothing measured yet"
    return f"{counts[0]} to {_number(counts[-1], 'seed')} ({counts[-1]} where a cell does not say)"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _mean_and_std(values: Sequence[float]) -> tuple[object, object]:
    return np.mean(values) if values else None, np.std(values, ddof=1) if len(values) > 1 else None
