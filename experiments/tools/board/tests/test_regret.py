"""Regret: worked out by hand for three methods, two cells and two seeds; what holds for all boards."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from fda_board.regret import (
    REGRET,
    Board,
    CellRegret,
    RowRegret,
    by_cell,
    plot_regret,
    report,
    standard_error,
)

from fda_flower.reporting import REPORTS, Design, RecordedRun, Results, markdown
from fda_flower.reporting.tables import Table

EASY, HARD = ("", "easy"), ("", "hard")
HAND = {
    ("A", "easy"): (90.0, 92.0),
    ("B", "easy"): (91.0, 93.0),
    ("C", "easy"): (80.0, 96.0),
    ("A", "hard"): (50.0, 60.0),
    ("B", "hard"): (41.0, 39.0),
    ("C", "hard"): (30.0, 32.0),
}


def history(score, bits=None):
    record = {"accuracy": score / 100, "held": None, "dropped": [], "sources": {}, "seconds": {}}
    if bits is not None:
        record |= {"outcomes": np.packbits(bits).tobytes().hex(), "test-examples": len(bits)}
    return [record]


def board_of(scores, **each):
    """A board from the scores of seeds 0, 1, ... by row and column; None where a seed has no run."""
    runs = {
        ("", row, column): [
            RecordedRun(row, seed, history(score)) for seed, score in enumerate(values) if score is not None
        ]
        for (row, column), values in scores.items()
    }
    rows, columns = (list(dict.fromkeys(labels)) for labels in zip(*scores, strict=True))
    design = Design(name="board", title="A board", axis="Cell", rivals=each.pop("rivals", ()))
    shown = {"rows": rows, "columns": columns, "runs": runs, "rounds": 1}
    return Board(Results(design, **{**shown, **each}))


def rows_of(board, task="Accuracy"):
    return {row.row: row for row in board.rows[task]}


def regrets_of(board):
    return {
        (row.row, cell.cell[1]): cell.regret
        for rows in board.rows.values()
        for row in rows
        for cell in row.cells
    }


# By hand. Means: easy A 91, B 92, C 88; hard A 55, B 40, C 31.


@pytest.mark.parametrize(
    ("rivals", "regrets"), [((), (-1, 1, -4, 15, -15, -24)), (("B", "C"), (-1, 4, -4, 15, 9, -9))]
)
def test_regret_is_to_the_best_other_rival(rivals, regrets):
    board = board_of(HAND, rivals=rivals)
    assert regrets_of(board) == pytest.approx(dict(zip(HAND, regrets, strict=True)))


def test_mean_worst_and_near_of_a_row():
    a, b, c = rows_of(board_of(HAND)).values()
    assert (a.mean, b.mean, c.mean) == pytest.approx((7, -7, -14))
    assert [row.worst.cell for row in (a, b, c)] == [EASY, HARD, HARD]
    assert [row.near for row in (a, b, c)] == [2, 1, 0], "A is exactly one point behind in the easy cell"
    leads = [-1.0, 1.2 - 2.2, -1.01, 2.0]
    row = RowRegret("A", [CellRegret(EASY, "B", {0: 50.0}, {0: lead}) for lead in leads])
    assert 1.2 - 2.2 < -1
    assert row.near == 3


def test_the_standard_error_is_over_seeds_with_the_rivals_that_are_best_by_their_means():
    a, b, c = rows_of(board_of(HAND)).values()
    # A against B twice: (-1 + 9) / 2 and (-1 + 21) / 2. C against B, then A: (-11 - 20) / 2, (3 - 28) / 2,
    # though A is better than B where C is best.
    assert a.standard_error == pytest.approx(abs(4 - 10) / 2)
    assert b.standard_error == pytest.approx(abs((1 - 9) / 2 - (1 - 21) / 2) / 2)
    assert c.standard_error == pytest.approx(abs((-11 - 20) / 2 - (3 - 28) / 2) / 2)
    easy = c.cells[0]
    assert (easy.rival, easy.scores) == ("B", pytest.approx({0: 80, 1: 96}))
    assert easy.leads == pytest.approx({0: -11, 1: 3})
    assert easy.standard_error == pytest.approx(7)
    assert standard_error([]) is standard_error([1.0]) is None


# What is missing


def test_a_cell_without_runs_of_a_row_is_left_out_of_its_mean_and_if_a_rivals_of_all_others():
    scores = {key: values for key, values in HAND.items() if key != ("C", "hard")}
    board = board_of(scores, rivals=("A", "B"))
    assert len(board.tasks["Accuracy"]) == 2
    rows = rows_of(board)
    assert [len(row.cells) for row in rows.values()] == [2, 2, 1]
    assert rows["C"].mean == rows["C"].worst.regret == pytest.approx(-4)
    rows = rows_of(board_of(scores))
    assert [[cell.cell for cell in row.cells] for row in rows.values()] == [[EASY]] * 3


def test_a_seed_counts_where_the_row_and_all_other_rivals_have_it():
    scores = {**HAND, ("A", "easy"): (90.0, None), ("C", "easy"): (80.0, 96.0, 50.0)}
    rows = rows_of(board_of(scores))
    assert [list(row.cells[0].leads) for row in rows.values()] == [[0], [0], [0]]
    assert rows["A"].cells[0].regret == pytest.approx(-1)
    assert rows["A"].cells[0].standard_error is None
    assert rows["A"].standard_error is None, "one seed is common to both cells"
    disjoint = board_of({**HAND, ("A", "easy"): (90.0, None), ("B", "easy"): (None, 93.0)})
    assert [len(row.cells) for row in rows_of(disjoint).values()] == [1, 1, 1]


def test_a_run_whose_target_never_evaluated_does_not_count():
    board = board_of(HAND)
    unknown = RecordedRun("A", 2, [{**history(50)[0], "accuracy": math.nan}])
    place, runs = ("", "A", "easy"), board.results.runs
    assert regrets_of(board_of(HAND, runs={**runs, place: [*runs[place], unknown]})) == regrets_of(board)


def test_a_row_without_rivals_or_cells_has_no_regret():
    board = board_of({("A", "easy"): (50.0,)})
    (row,) = board.rows["Accuracy"]
    assert (row.cells, row.mean, row.worst, row.near) == ([], None, None, 0)
    assert row.standard_error is row.paired_error is board.best_single("Accuracy") is None


# Tasks, groups, ensembles, errors over samples


def test_the_best_single_model_is_no_ensemble_and_has_most_cells():
    scores = {**HAND, ("D", "easy"): (99.0, 99.0), ("E", "easy"): (95.0, 95.0), ("E", "hard"): (70.0, 70.0)}
    board = board_of(scores, rivals=("A", "B", "C"), ensembles={"E"})
    best = board.best_single("Accuracy")
    assert best is not None
    assert best.row == "A", "D is better, but has only the easy cell"
    assert rows_of(board)["E"].mean > best.mean


def test_paired_errors_combine_over_seeds_and_cells(runs_of):
    bits = {"A": [[1, 1, 1, 0], [1, 1, 1, 1]], "B": [[1, 0, 1, 0], [0, 1, 0, 1]]}
    places = {(row, column): () for row in bits for column in ("easy", "hard")}
    runs = {
        ("", row, column): runs_of(row, *(history(sum(outcome) * 25, outcome) for outcome in bits[row]))
        for row, column in places
    }
    row = rows_of(board_of(places, runs=runs))["A"]
    # The differences are 0, 1, 0, 0 and 1, 0, 1, 0: variances 1/4 and 1/3.
    first, second = 100 * math.sqrt(1 / 4 / 4), 100 * math.sqrt(1 / 3 / 4)
    one = math.sqrt((first**2 + second**2) / 2 / 2)
    assert [cell.paired_error for cell in row.cells] == pytest.approx([one, one])
    assert row.paired_error == pytest.approx(math.sqrt(2 * one**2) / 2)
    without = {("", row, "hard"): runs_of(row, history(50), history(50)) for row in bits}
    row = rows_of(board_of(places, runs=runs | without))["A"]
    assert [cell.paired_error is None for cell in row.cells] == [False, True]
    assert row.paired_error is None


# Tables

SHOWN = {
    ("", "FedAvg", "0.2"): (90.0, 92.0),
    ("", "FedGP", "0.2"): (80.0, 84.0),
    ("", "Mix", "0.2"): (91.0, 95.0),
    ("", "FedAvg", "0.4"): (50.0, 50.0),
    ("", "FedGP", "0.4"): (60.0, 62.0),
}
ROWS = ("FedAvg", "FedGP", "Mix")


@pytest.fixture
def board(results):
    """A maker of results with an ensemble that is no rival, and has no run in the second column."""

    def make(scores=SHOWN, **each):
        shown = {"rows": ROWS, "rivals": ROWS[:2], "ensembles": {"Mix"}, "report": "regret"}
        return results(scores, **{**shown, **each})

    return make


def tables_of(parts):
    """The cells of each table of a report in Markdown, by the label of their row."""
    tables = (part for part in parts if isinstance(part, Table))
    return [{line[0]: [str(cell) for cell in line[1:]] for line in (t.header, *t.rows)} for t in tables]


def test_the_report_has_a_summary_and_the_regret_by_cell(board):
    text = markdown(report(board()))
    summary, cells = tables_of(report(board()))
    assert summary["Method"][:6] == ["mean", "se (seeds)", "se (samples)", "worst", "within 1 point", "cells"]
    assert summary["FedAvg"][:6] == ["-1.0", "1.0", "-", "-11.0 (0.4)", "1 of 2", "2 of 2"]
    assert summary["FedGP"][:6] == ["+1.0", "1.0", "-", "-9.0 (0.2)", "1 of 2", "2 of 2"]
    assert summary["Mix †"][:6] == ["**+2.0**", "1.0", "-", "+2.0 (0.2)", "1 of 1", "1 of 2"]
    assert cells == {
        "Method": ["0.2", "0.4"],
        "FedAvg": ["**+9.0 (1.0)**", "-11.0 (1.0)"],
        "FedGP": ["-9.0 (1.0)", "**+11.0 (1.0)**"],
        "Mix †": ["+2.0 (1.0)", "-"],
    }
    for words in (
        "Rivals: FedAvg, FedGP. Seeds: 0, 1.",
        "† marks an ensemble",
        "**FedGP**, mean regret +1.0",
    ):
        assert words in text
    assert REGRET.markdown(board()) == REPORTS["table"].markdown(board()) + "\n" + text


def test_accuracy_and_r2_have_tables_of_their_own(board):
    accuracy, _, r2, cells = tables_of(report(board(metrics={("", "0.4"): "r2"})))
    assert accuracy["FedAvg"][0] == "**+9.0**"
    assert r2["Mix †"][:6] == ["-", "-", "-", "-", "0 of 0", "0 of 1"]
    assert cells["Method"] == ["0.4"]


def test_epochs_are_shown_from_the_fewest_to_the_most(board):
    epochs = {"0.2": {"source": 30, "target": 0}, "0.4": {"source": 30, "target": 50}}
    runs = {
        place: [replace(run, summary={"epochs": epochs[place[2]]}) for run in each]
        for place, each in board().runs.items()
        if place[1] != "FedGP"
    }
    made = board(runs=runs, rivals=("FedAvg", "Mix"))
    summary = tables_of(report(made))[0]
    assert summary["FedAvg"][-2:] == ["30", "0 to 50"]
    assert summary["FedGP"][-2:] == ["-", "-"]
    first, second = (line for line in by_cell(made).records() if line["row"] == "FedAvg")
    assert (first["source_epochs"], first["target_epochs"], second["target_epochs"]) == (30, 0, 50)


def test_the_file_has_every_place_with_unrounded_numbers(board):
    made = board(metrics={("", "0.4"): "r2"}, centralised={"FedGP"})
    first, *others = by_cell(made).records()
    assert first == {
        **{"group": "", "row": "FedAvg", "column": "0.2", "measure": "Accuracy", "rival": "FedGP"},
        **{"regret": pytest.approx(9), "score": pytest.approx(91), "std": pytest.approx(2**0.5), "n": 2},
        **{"se": pytest.approx(1), "se_paired": None, "source_epochs": None, "target_epochs": None},
    }
    assert sorted((e["group"], e["row"], e["column"]) for e in (first, *others)) == sorted(made.places)
    assert [value for value in others[-1].values() if value is not None] == ["", "Mix", "0.4", "R²", 0]


def test_centralised_references_are_marked_and_neither_rivals_nor_the_best(board):
    every = dict.fromkeys([("", row, column) for row in ROWS for column in ("0.2", "0.4")], (90.0, 92.0))
    parts = report(board(rivals=(), ensembles=(), centralised={"FedGP"}, scores=every))
    assert all("FedGP ‡" in table for table in tables_of(parts))
    text = markdown(parts)
    for words in ("Rivals: FedAvg, Mix.", "‡ marks a reference that is no federated method"):
        assert words in text
    assert "Best single-model row: **FedGP**" not in text
    assert "†" not in text
    assert "Rivals: FedGP, Mix." in markdown(report(board(rivals=("FedGP", "Mix"), centralised={"FedGP"})))


def test_groups_are_part_of_a_cells_name(board):
    scores = {(group, *place[1:]): values for place, values in SHOWN.items() for group in ("few", "many")}
    _, cells = tables_of(report(board(scores, groups=("few", "many"))))
    assert cells["Method"] == ["0.2, few", "0.4, few", "0.2, many", "0.4, many"]
    assert cells["FedAvg"] == ["**+9.0 (1.0)**", "-11.0 (1.0)"] * 2


def test_nothing_measured_is_no_error(board):
    parts = report(board({}))
    text = markdown(parts)
    assert "Seeds: none." in text
    assert tables_of(parts)[0]["FedAvg"][:6] == ["-", "-", "-", "-", "0 of 0", "0 of 2"]
    assert "Best single" not in text
    assert {line["regret"] for line in by_cell(board({})).records()} == {None}


# The picture


def points_of(axis, label):
    (line,) = (line for line in axis.get_lines() if line.get_label() == label)
    return sorted(zip(np.round(line.get_xdata(), 9).tolist(), line.get_ydata(), strict=True))


def test_every_cell_mean_and_worst_is_a_point_and_the_best_row_is_first(board):
    values = {"FedAvg": (50.0, 51.0), "FedGP": (80.0, 50.0), "Mix": (81.0,), "Absent": ()}
    scores = {
        ("", row, column): (value,)
        for row, each in values.items()
        for column, value in zip(("0.2", "0.4"), each, strict=False)
    }
    figure = plot_regret(board(scores, rows=tuple(values), centralised={"FedAvg"}))
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["FedGP", "Mix †", "FedAvg ‡"]
    assert points_of(axis, "a cell") == [(-30, 2), (-1, 0), (1, 1), (1, 2), (30, 0)]
    assert points_of(axis, "mean") == [(-14.5, 2), (1, 1), (14.5, 0)]
    assert points_of(axis, "worst") == [(-30, 2), (-1, 0), (1, 1)]
    words = ["+14.5, worst -1.0 (0.4)", "+1.0, worst +1.0 (0.2), 1 of 2 cells", "-14.5, worst -30.0 (0.2)"]
    assert [text.get_text() for text in axis.texts] == words
    low, high = axis.get_xlim()
    assert low < -30 < 30 < high
    assert "; † an ensemble; ‡ centralised" in axis.get_xlabel().replace("\n", " ")


def test_r2_has_a_panel_of_its_own(board):
    figure = plot_regret(board(metrics={("", "0.4"): "r2"}))
    assert [axis.get_title("left") for axis in figure.axes] == ["Accuracy", "R²"]


def test_a_board_of_many_long_names_fits_the_page(results):
    rows = [f"FedDA_Joint, start, {number} epochs" for number in range(20)]
    columns = [f"Office-Caltech10, webcam and others, {number}" for number in range(18)]
    rng = np.random.default_rng(0)
    scores = {("", row, column): tuple(rng.uniform(0, 99, 2)) for row in rows for column in columns}
    figure = plot_regret(results(scores, rows=rows, columns=columns))
    figure.draw_without_rendering()
    width, height = figure.canvas.get_width_height()
    (axis,) = figure.axes
    boxes = [text.get_window_extent() for text in axis.texts]
    assert all(box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1 for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert axis.get_window_extent().width > 0.25 * width
