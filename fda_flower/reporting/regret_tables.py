"""The tables of a board: each method's regret, over all cells and by cell."""

from collections.abc import Sequence

from fda_flower.reporting.regret import (
    NEAR,
    ROLES,
    Board,
    BoardCell,
    CellRegret,
    RowRegret,
)
from fda_flower.reporting.results import Results
from fda_flower.reporting.tables import Cell, Heading, Part, Table, marked, mean_and_std, top

CELLS = (
    *("group", "row", "column", "measure", "rival", "regret", "score", "std", "n", "se", "se_paired"),
    *(f"{role}_epochs" for role in ROLES),
)
ROWS = (
    *("row", "ensemble", "centralised", "measure", "cells", "of", "mean", "se", "se_paired"),
    *("worst", "worst_group", "worst_column", "within_1_point"),
    *(f"{role}_epochs_{end}" for role in ROLES for end in ("min", "max")),
)


def report(results: Results) -> list[Part]:
    """Return, for accuracy and for R², a table of each method over all cells, and one of each cell."""
    board = Board(results)
    parts: list[Part] = [Heading("Regret"), _explain(board)]
    for task, rows in board.rows.items():
        cells, best = board.tasks[task], board.best_single(task)
        parts += [Heading(task, 3), _summary(board, rows, cells)]
        if best is not None:
            parts.append(
                f"Best single-model row: **{best.row}**, mean regret {best.mean:+z.1f} in {len(best.cells)} "
                f"of {len(cells)} cells."
            )
        parts += [
            "By cell, with the standard error over seeds; the best regret of each is bold.",
            _by_cell(board, rows, cells),
        ]
    return parts


def by_cell(results: Results) -> Table:
    """Return one line for each place, with unrounded numbers; unknown ones are empty."""
    board = Board(results)
    lines = []
    for task, rows in board.rows.items():
        for row in rows:
            found = {at.cell: at for at in row.cells}
            for cell in board.tasks[task]:
                epochs = board.epochs(row.row, [cell])
                own = [epochs[role][1] if role in epochs else None for role in ROLES]
                lines.append([cell[0], row.row, cell[1], task, *_numbers(found.get(cell)), *own])
    return Table(CELLS, lines)


def by_row(results: Results) -> Table:
    """Return one line for each row and measure, with unrounded numbers; unknown ones are empty."""
    board, lines = Board(results), []
    for task, rows in board.rows.items():
        for row in rows:
            worst = (None, None, None) if row.worst is None else (row.worst.regret, *row.worst.cell)
            ends = [end for role in ROLES for end in row.epochs.get(role, (None, None))]
            means = row.mean, row.standard_error, row.paired_error
            counts = len(row.cells), len(board.tasks[task])
            marks = row.row in results.ensembles, row.row in results.centralised
            lines.append([row.row, *marks, task, *counts, *means, *worst, row.near, *ends])
    return Table(ROWS, lines)


def cell_label(cell: BoardCell) -> str:
    """Return a cell's label: its column, and its group if there is one."""
    return ", ".join(filter(None, (cell[1], cell[0])))


def _explain(board: Board) -> str:
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in board.results.cells}))
    sentences = [
        "How far a method's mean over seeds is above (+) or below (-) that of the best *other* rival in the "
        f"same cell, in points. Rivals: {', '.join(board.rivals)}. Seeds: {seeds or 'none'}.",
        "A cell without runs of the method or of another rival is left out of the method's mean.",
        "Standard errors are over seeds and, paired, over test samples.",
        "Epochs are those of a whole run, in all cells.",
    ]
    if not all(metric.percent for metric in board.results.shown):
        sentences.append("A point is a hundredth of the figure, such as 0.01 of R².")
    return " ".join(filter(None, (*sentences, board.results.marks)))


def _summary(board: Board, rows: Sequence[RowRegret], cells: Sequence[BoardCell]) -> Table:
    best = top([row.mean] for row in rows if row.mean is not None)
    lines = [
        [
            board.results.label(row.row),
            "-" if row.mean is None else marked(f"{row.mean:+z.1f}", [row.mean], best),
            *map(_error, (row.standard_error, row.paired_error)),
            "-" if row.worst is None else f"{row.worst.regret:+z.1f} ({cell_label(row.worst.cell)})",
            f"{row.near} of {len(row.cells)}",
            f"{len(row.cells)} of {len(cells)}",
            *(_span(row.epochs.get(role)) for role in ROLES),
        ]
        for row in rows
    ]
    header = ("Method", "mean", "se (seeds)", "se (samples)", "worst", f"within {NEAR:g} point", "cells")
    return Table([*header, "epochs of a source", "epochs of the target"], lines)


def _by_cell(board: Board, rows: Sequence[RowRegret], cells: Sequence[BoardCell]) -> Table:
    found = {(row.row, cell.cell): cell for row in rows for cell in row.cells}
    tops = {cell: top([at.regret] for (_, where), at in found.items() if where == cell) for cell in cells}
    lines = [
        [board.results.label(row.row), *(_text(found.get((row.row, c)), tops[c]) for c in cells)]
        for row in rows
    ]
    return Table(["Method", *map(cell_label, cells)], lines)


def _text(found: CellRegret | None, best: float) -> Cell | str:
    """Return ``+1.2 (0.4)``: a regret, and its standard error over seeds if it has one."""
    if found is None:
        return "-"
    error = "" if found.standard_error is None else f" ({found.standard_error:.1f})"
    return marked(f"{found.regret:+z.1f}{error}", [found.regret], best)


def _numbers(found: CellRegret | None) -> list[object]:
    """Return ``rival`` to ``se_paired`` of a line of `CELLS`."""
    if found is None:
        return [None, None, None, None, 0, None, None]
    scores = [*found.scores.values()]
    errors = found.standard_error, found.paired_error
    return [found.rival, found.regret, *mean_and_std(scores), len(scores), *errors]


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1f}"


def _span(ends: tuple[int, int] | None) -> str:
    return "-" if ends is None else " to ".join(map(str, sorted(set(ends))))
