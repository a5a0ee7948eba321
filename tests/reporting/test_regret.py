"""Regret: worked out by hand for three methods, two cells and two seeds; what holds for all boards."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.reporting import CellResult, Results
from fda_flower.reporting.regret import Board, CellRegret, RowRegret, standard_error

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
    cells = [
        CellResult(("", row, column), seed, history(score))
        for (row, column), values in scores.items()
        for seed, score in enumerate(values)
        if score is not None
    ]
    rows, columns = (list(dict.fromkeys(labels)) for labels in zip(*scores, strict=True))
    shown = {"name": "board", "title": "A board", "source": "", "note": "", "axis": "Cell", "rounds": 1}
    return Board(Results(**{**shown, "rows": rows, "columns": columns, "cells": cells, **each}))


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


def test_regret_is_to_the_best_other_method():
    assert regrets_of(board_of(HAND)) == pytest.approx(
        {
            ("A", "easy"): -1,
            ("B", "easy"): +1,
            ("C", "easy"): -4,
            ("A", "hard"): +15,
            ("B", "hard"): -15,
            ("C", "hard"): -24,
        }
    )


def test_mean_worst_and_near_of_a_row():
    a, b, c = rows_of(board_of(HAND)).values()
    assert (a.mean, b.mean, c.mean) == pytest.approx((7, -7, -14))
    assert [row.worst.cell for row in (a, b, c)] == [EASY, HARD, HARD]
    assert [row.near for row in (a, b, c)] == [2, 1, 0], "A is exactly one point behind in the easy cell"


def test_the_standard_error_is_over_seeds_with_the_rivals_that_are_best_by_their_means():
    a, b, c = rows_of(board_of(HAND)).values()
    # A against B twice: (-1 + 9) / 2 and (-1 + 21) / 2. C against B, then A: (-11 - 20) / 2, (3 - 28) / 2,
    # though A is better than B where C is best.
    assert a.standard_error == pytest.approx(abs(4 - 10) / 2)
    assert b.standard_error == pytest.approx(abs((1 - 9) / 2 - (1 - 21) / 2) / 2)
    assert c.standard_error == pytest.approx(abs((-11 - 20) / 2 - (3 - 28) / 2) / 2)
    easy = c.cells[0]
    assert (easy.rival, easy.scores, easy.leads) == (
        "B",
        pytest.approx({0: 80, 1: 96}),
        pytest.approx({0: -11, 1: 3}),
    )
    assert easy.standard_error == pytest.approx(7)


def test_only_rivals_are_compared_with():
    board = board_of(HAND, rivals=("B", "C"))
    assert board.rivals == ("B", "C")
    assert regrets_of(board) == pytest.approx(
        {
            ("A", "easy"): -1,
            ("B", "easy"): +4,
            ("C", "easy"): -4,
            ("A", "hard"): +15,
            ("B", "hard"): +9,
            ("C", "hard"): -9,
        }
    )


# What is missing


def test_a_cell_without_runs_of_a_row_is_left_out_of_its_mean():
    scores = {key: values for key, values in HAND.items() if key != ("C", "hard")}
    board = board_of(scores, rivals=("A", "B"))
    assert len(board.tasks["Accuracy"]) == 2
    rows = rows_of(board)
    assert [len(row.cells) for row in rows.values()] == [2, 2, 1]
    assert rows["C"].mean == rows["C"].worst.regret == pytest.approx(-4)


def test_a_cell_without_runs_of_a_rival_is_left_out_of_the_means_of_all_others():
    rows = rows_of(board_of({key: values for key, values in HAND.items() if key != ("C", "hard")}))
    assert [[cell.cell for cell in row.cells] for row in rows.values()] == [[EASY]] * 3


def test_a_seed_counts_where_the_row_and_all_other_rivals_have_it():
    scores = {**HAND, ("A", "easy"): (90.0, None), ("C", "easy"): (80.0, 96.0, 50.0)}
    easy = {row.row: row.cells[0] for row in rows_of(board_of(scores)).values()}
    assert [list(cell.leads) for cell in easy.values()] == [[0], [0], [0]]
    assert easy["A"].regret == pytest.approx(-1)
    assert easy["A"].standard_error is None
    rows = rows_of(board_of(scores))
    assert rows["A"].standard_error is None, "one seed is common to both cells"
    disjoint = board_of({**HAND, ("A", "easy"): (90.0, None), ("B", "easy"): (None, 93.0)})
    assert [len(row.cells) for row in rows_of(disjoint).values()] == [1, 1, 1]


def test_a_run_whose_target_never_evaluated_does_not_count():
    board = board_of(HAND)
    unknown = CellResult(("", "A", "easy"), 2, [{**history(50)[0], "accuracy": math.nan}])
    cells = [*board.results.cells, unknown]
    assert regrets_of(board_of(HAND, cells=cells)) == regrets_of(board)


def test_a_row_without_rivals_or_cells_has_no_regret():
    (row,) = board_of({("A", "easy"): (50.0,)}).rows["Accuracy"]
    assert (row.cells, row.mean, row.worst, row.near) == ([], None, None, 0)
    assert row.standard_error is row.paired_error is None
    assert board_of({("A", "easy"): (50.0,)}).best_single("Accuracy") is None


# Tasks, groups, ensembles, epochs


def test_r2_is_kept_apart():
    board = board_of(HAND, metrics={HARD: "r2"})
    assert board.tasks == {"Accuracy": [EASY], "R²": [HARD]}
    assert rows_of(board)["A"].mean == pytest.approx(-1)
    assert rows_of(board, "R²")["A"].mean == pytest.approx(15)
    assert list(board_of(HAND, metrics={EASY: "r2", HARD: "r2"}).tasks) == ["R²"]


def test_groups_multiply_the_cells():
    cells = [
        CellResult((group, row, "easy"), 0, history(score))
        for group, row, score in (("few", "A", 50), ("few", "B", 40), ("many", "A", 80), ("many", "B", 81))
    ]
    board = board_of({("A", "easy"): (), ("B", "easy"): ()}, cells=cells, groups=("few", "many"))
    assert board.tasks == {"Accuracy": [("few", "easy"), ("many", "easy")]}
    assert [cell.regret for cell in rows_of(board)["A"].cells] == pytest.approx([10, -1])


def test_the_best_single_model_is_no_ensemble_and_has_most_cells():
    scores = {**HAND, ("D", "easy"): (99.0, 99.0), ("E", "easy"): (95.0, 95.0), ("E", "hard"): (70.0, 70.0)}
    board = board_of(scores, rivals=("A", "B", "C"), ensembles={"E"})
    best = board.best_single("Accuracy")
    assert best is not None
    assert best.row == "A", "D is better, but has only the easy cell"
    assert {row.row: row.mean for row in board.rows["Accuracy"]}["E"] > best.mean


def test_epochs_are_those_of_a_rows_runs():
    cells = [
        CellResult(("", "A", "easy"), 0, history(1), epochs={"source": 30, "target": 30}),
        CellResult(("", "A", "hard"), 0, history(1), epochs={"source": 10, "target": 30}),
        CellResult(("", "B", "easy"), 0, history(1)),
    ]
    rows = rows_of(board_of(HAND, cells=cells))
    assert rows["A"].epochs == {"source": (10, 30), "target": (30, 30)}
    assert rows["B"].epochs == {}


# Errors over samples


def test_paired_errors_combine_over_seeds_and_cells():
    bits = {"A": [[1, 1, 1, 0], [1, 1, 1, 1]], "B": [[1, 0, 1, 0], [0, 1, 0, 1]]}
    cells = [
        CellResult(("", row, column), seed, history(sum(outcome) * 25, outcome))
        for column in ("easy", "hard")
        for row, outcomes in bits.items()
        for seed, outcome in enumerate(outcomes)
    ]
    row = rows_of(board_of({(r, c): () for r in bits for c in ("easy", "hard")}, cells=cells))["A"]
    # The differences are 0, 1, 0, 0 and 1, 0, 1, 0: variances 1/4 and 1/3.
    first, second = 100 * math.sqrt(1 / 4 / 4), 100 * math.sqrt(1 / 3 / 4)
    one = math.sqrt((first**2 + second**2) / 2 / 2)
    assert [cell.paired_error for cell in row.cells] == pytest.approx([one, one])
    assert row.paired_error == pytest.approx(math.sqrt(2 * one**2) / 2)
    without = [CellResult(c.place, c.seed, history(50)) if c.place[2] == "hard" else c for c in cells]
    row = rows_of(board_of({(r, c): () for r in bits for c in ("easy", "hard")}, cells=without))["A"]
    assert [cell.paired_error is None for cell in row.cells] == [False, True]
    assert row.paired_error is None


def test_a_standard_error_needs_two_values():
    assert standard_error([]) is standard_error([1.0]) is None
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)


def test_a_row_is_near_the_best_up_to_a_point_with_rounding():
    leads = [-1.0, 1.2 - 2.2, -1.01, 2.0]
    row = RowRegret("A", [CellRegret(EASY, "B", {0: 50.0}, {0: lead}) for lead in leads])
    assert 1.2 - 2.2 < -1
    assert row.near == 3


# What holds for all boards

SCORES = st.lists(
    st.lists(st.integers(0, 1000).map(lambda n: n / 10), min_size=8, max_size=8), min_size=2, max_size=5
)
"""For each row, two cells with four seeds each."""


def from_lists(rows):
    columns = ("easy", "hard")
    return board_of(
        {(f"m{i}", c): row[4 * k : 4 * k + 4] for i, row in enumerate(rows) for k, c in enumerate(columns)}
    )


@given(SCORES)
def test_a_row_that_is_never_best_changes_no_regret_of_others(rows):
    worst = [min(row[i] for row in rows) - 1 for i in range(8)]
    before, after = (regrets_of(from_lists(each)) for each in (rows, [*rows, worst]))
    assert {key: after[key] for key in before} == before


@given(SCORES)
def test_the_best_rivals_regret_is_its_lead_over_the_second_and_the_others_are_behind(rows):
    board = from_lists(rows)
    found = regrets_of(board)
    for k, column in enumerate(("easy", "hard")):
        means = [float(np.mean(row[4 * k : 4 * k + 4])) for row in rows]
        second, best = sorted(means)[-2:]
        own = [found[f"m{i}", column] for i in range(len(rows))]
        assert max(own) == pytest.approx(best - second, abs=1e-9)
        assert own == pytest.approx([m - (second if m == best else best) for m in means], abs=1e-9)


@given(SCORES, st.randoms(use_true_random=False))
def test_neither_the_order_of_runs_nor_that_of_rows_matters(rows, random):
    board = from_lists(rows)
    cells, names = list(board.results.cells), list(board.results.rows)
    random.shuffle(cells)
    random.shuffle(names)
    shuffled = Board(replace(board.results, cells=cells, rows=names))
    assert regrets_of(shuffled) == pytest.approx(regrets_of(board), abs=1e-9)
