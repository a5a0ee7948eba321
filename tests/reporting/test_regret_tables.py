"""The tables of a board, in Markdown and in CSV, which holds all numbers unrounded."""

import csv
import io

import numpy as np
import pytest

from fda_flower.reporting import REPORTS, CellResult, markdown
from fda_flower.reporting.regret import Board, by_cell, by_row, report

SCORES = {
    ("", "FedAvg", "0.2"): (90.0, 92.0),
    ("", "FedGP", "0.2"): (80.0, 84.0),
    ("", "Mix", "0.2"): (91.0, 95.0),
    ("", "FedAvg", "0.4"): (50.0, 50.0),
    ("", "FedGP", "0.4"): (60.0, 62.0),
}
ROWS = ("FedAvg", "FedGP", "Mix")
ALL = {("", row, column): SCORES["", "FedAvg", "0.2"] for row in ROWS for column in ("0.2", "0.4")}


@pytest.fixture
def board(results):
    """A maker of results with an ensemble that is no rival, and has no run in the second column."""

    def make(scores=SCORES, **each):
        shown = {"rows": ROWS, "rivals": ROWS[:2], "ensembles": {"Mix"}, "report": "regret"}
        return results(scores, **{**shown, **each})

    return make


def tables_of(text):
    """Each table in Markdown: its lines by their first cells."""
    tables = []
    for part in text.split("\n\n"):
        if part.startswith("| "):
            lines = [line[2:-2].split(" | ") for line in part.splitlines()]
            tables.append({first: rest for first, *rest in lines})
    return tables


def lines_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def number(text):
    return float(text) if text else None


def test_the_summary_and_the_regret_by_cell(board):
    text = markdown(report(board()))
    summary, by_cell = tables_of(text)
    assert summary["Method"][:6] == ["mean", "se (seeds)", "se (samples)", "worst", "within 1 point", "cells"]
    assert summary["FedAvg"][:6] == ["-1.0", "1.0", "-", "-11.0 (0.4)", "1 of 2", "2 of 2"]
    assert summary["FedGP"][:6] == ["+1.0", "1.0", "-", "-9.0 (0.2)", "1 of 2", "2 of 2"]
    assert summary["Mix †"][:6] == ["**+2.0**", "1.0", "-", "+2.0 (0.2)", "1 of 1", "1 of 2"]
    assert by_cell == {
        "Method": ["0.2", "0.4"],
        "---": ["---:", "---:"],
        "FedAvg": ["**+9.0 (1.0)**", "-11.0 (1.0)"],
        "FedGP": ["-9.0 (1.0)", "**+11.0 (1.0)**"],
        "Mix †": ["+2.0 (1.0)", "-"],
    }


def test_the_text_names_rivals_seeds_and_the_best_single_model(board):
    text = markdown(report(board()))
    assert "Rivals: FedAvg, FedGP. Seeds: 0, 1." in text
    assert "† marks an ensemble" in text
    assert "Best single-model row: **FedGP**, mean regret +1.0 in 2 of 2 cells." in text
    assert "†" not in markdown(report(board(ensembles=())))
    assert "### Accuracy" in text
    assert "R²" not in text


def test_accuracy_and_r2_have_tables_of_their_own(board):
    text = markdown(report(board(metrics={("", "0.4"): "r2"})))
    accuracy, _, r2, by_cell = tables_of(text)
    assert text.index("### Accuracy") < text.index("### R²")
    assert accuracy["FedAvg"][0] == "**+9.0**"
    assert r2["Mix †"][:6] == ["-", "-", "-", "-", "0 of 0", "0 of 1"]
    assert by_cell["Method"] == ["0.4"]


def test_epochs_are_shown_from_the_fewest_to_the_most(board):
    def epochs_of(source, target):
        return {"source": source, "target": target}

    made = board()
    cells = [
        CellResult(c.place, c.seed, c.history, epochs=epochs_of(30, 0 if c.place[2] == "0.2" else 50))
        for c in made.cells
        if c.place[1] != "FedGP"
    ]
    summary = tables_of(markdown(report(board(cells=cells, rivals=("FedAvg", "Mix")))))[0]
    assert summary["FedAvg"][-2:] == ["30", "0 to 50"]
    assert summary["FedGP"][-2:] == ["-", "-"]
    first, second = (e for e in lines_of(by_cell(board(cells=cells)).csv()) if e["row"] == "FedAvg")
    assert (first["source_epochs"], first["target_epochs"], second["target_epochs"]) == ("30", "0", "50")
    (line, *_) = lines_of(by_row(board(cells=cells)).csv())
    assert [line[f"target_epochs_{end}"] for end in ("min", "max")] == ["0", "50"]


def test_the_csv_of_cells_has_every_place_with_the_same_numbers(board):
    made = board()
    lines = lines_of(by_cell(made).csv())
    assert [(e["group"], e["row"], e["column"]) for e in lines] == made.places
    found = {(row.row, at.cell[1]): at for row in Board(made).rows["Accuracy"] for at in row.cells}
    assert len(found) == len(lines) - 1
    for line in lines:
        at = found.get((line["row"], line["column"]))
        if at is None:
            assert (line["row"], line["column"], line["n"]) == ("Mix", "0.4", "0")
            assert line["regret"] == line["score"] == line["rival"] == ""
            continue
        scores = [*at.scores.values()]
        assert line["rival"] == at.rival
        assert number(line["regret"]) == at.regret
        assert (number(line["score"]), number(line["std"])) == (np.mean(scores), np.std(scores, ddof=1))
        assert (int(line["n"]), number(line["se"])) == (2, at.standard_error)
        assert number(line["se_paired"]) is None


def test_the_csv_of_methods_has_every_row_and_measure_with_the_same_numbers(board):
    made = board(metrics={("", "0.4"): "r2"})
    lines = {(line["measure"], line["row"]): line for line in lines_of(by_row(made).csv())}
    assert list(lines) == [(task, row) for task in ("Accuracy", "R²") for row in ROWS]
    for (task, label), line in lines.items():
        row = next(row for row in Board(made).rows[task] if row.row == label)
        assert (number(line["mean"]), number(line["se"])) == (row.mean, row.standard_error)
        assert (int(line["cells"]), int(line["of"]), int(line["within_1_point"])) == (
            *(len(row.cells), 1),
            row.near,
        )
        assert number(line["worst"]) == (None if row.worst is None else row.worst.regret)
        assert line["worst_column"] == ("" if row.worst is None else row.worst.cell[1])
        assert line["ensemble"] == str(label == "Mix")
        assert line["centralised"] == "False"
    (line,) = [
        line for line in lines_of(by_row(board(centralised={"FedGP"})).csv()) if line["row"] == "FedGP"
    ]
    assert line["centralised"] == "True"


def test_centralised_references_are_marked_and_neither_rivals_nor_the_best(board):
    text = markdown(report(board(rivals=(), ensembles=(), centralised={"FedGP"}, scores=ALL)))
    for table in tables_of(text):
        assert "FedGP ‡" in table
    assert "Rivals: FedAvg, Mix." in text
    assert "‡ marks a reference that is no federated method: centralised, pooled sources." in text
    assert "Best single-model row: **FedGP**" not in text
    assert "Rivals: FedGP, Mix." in markdown(report(board(rivals=("FedGP", "Mix"), centralised={"FedGP"})))


def test_groups_are_part_of_a_cells_name(board):
    scores = {(group, *place[1:]): values for place, values in SCORES.items() for group in ("few", "many")}
    text = markdown(report(board(scores, groups=("few", "many"))))
    assert tables_of(text)[1]["Method"] == ["0.2, few", "0.4, few", "0.2, many", "0.4, many"]


def test_nothing_measured_is_no_error(board):
    text = markdown(report(board({})))
    assert "Seeds: none." in text
    assert tables_of(text)[0]["FedAvg"][:6] == ["-", "-", "-", "-", "0 of 0", "0 of 2"]
    assert "Best single" not in text
    assert {line["regret"] for line in lines_of(by_cell(board({})).csv())} == {""}
    assert {line["mean"] for line in lines_of(by_row(board({})).csv())} == {""}


def test_the_report_of_regrets_begins_with_that_of_scores(board):
    made = board()
    scores, regret = (REPORTS[name].markdown(made) for name in ("table", "regret"))
    assert regret == scores + "\n" + markdown(report(made))
    assert list(REPORTS["table"].tables) == [""]
    assert list(REPORTS["regret"].tables) == ["", "-regret", "-regret-methods"]
