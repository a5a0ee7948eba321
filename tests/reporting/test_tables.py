import csv
import io
import math
from typing import Any

import pytest

from fda_flower.reporting import CellResult, Row, comparison_numbers, comparison_table, make_rows, mean_std


def results_of(runs):
    return {
        label: [CellResult(("", label, ""), seed, history) for seed, history in enumerate(histories)]
        for label, histories in runs.items()
    }


@pytest.fixture
def rows():
    return [
        Row("FedAvg", (50.0, 54.0), (60.0, 62.0), 30),
        Row("FedGP", (70.0, 73.0), (71.0, 75.0), 30),
        Row("Target Only", (65.0,), (90.0,), 20),
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "-"),
        ([77.26], "77.3"),
        ([76.0, 78.0], "77.0 (1.4)"),
        # The deviations are -1, 0, 1: their squares' sum over n - 1 is 1.
        ([1.0, 2.0, 3.0], "2.0 (1.0)"),
        ([50.0, 50.0, 50.0], "50.0 (0.0)"),
        ((0.0, 100.0), "50.0 (70.7)"),
    ],
)
def test_mean_std_is_the_mean_and_the_sample_deviation(values, text):
    assert mean_std(values) == text


def about(*values: float) -> Any:
    return pytest.approx(values)


def test_make_rows_has_a_row_for_each_method_and_a_value_for_each_seed(history):
    runs = {
        "FedAvg": [history(0.1, 0.2), history(0.3, 0.3)],
        "FedGP": [history(0.5, 0.6, 0.4)],
    }
    assert make_rows(results_of(runs)) == [
        Row("FedAvg", about(15.0, 30.0), about(20.0, 30.0), 2, fewest=2),
        Row("FedGP", about(50.0), about(60.0), 3, fewest=3),
    ]


def test_make_rows_leaves_out_runs_that_never_evaluated(history):
    never, sometimes = history(None, None, None, None, None, None), history(0.4, *[None] * 5)
    (row,) = make_rows(results_of({"FedAvg": [never, sometimes, history(0.01)]}))
    assert row == Row("FedAvg", about(1.0), about(40.0, 1.0), 6, fewest=1)


def test_make_rows_of_nothing_is_nothing():
    assert make_rows({}) == []


def test_markdown_is_a_table_whose_best_mean_of_each_column_is_bold(rows):
    assert str(comparison_table(rows)) == (
        "| Method | last5 (%) | best (%) | seeds | rounds |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| FedAvg | 52.0 (2.8) | 61.0 (1.4) | 2 | 30 |\n"
        "| FedGP | **71.5 (2.1)** | 73.0 (2.8) | 2 | 30 |\n"
        "| Target Only | 65.0 | **90.0** | 1 | 20 |\n"
    )


def test_markdown_has_two_bold_cells_if_two_are_equally_good():
    text = str(comparison_table([Row("A", (50.0, 60.0), (70.0,), 1), Row("B", (55.0,), (60.0,), 1)]))
    assert "| A | **55.0 (7.1)** | **70.0** |" in text
    assert "| B | **55.0** | 60.0 |" in text


def test_markdown_of_a_method_without_values_has_dashes_that_are_not_bold():
    text = str(comparison_table([Row("A", (), (), 3), Row("B", (1.0,), (2.0,), 3)]))
    assert "| A | - | - | 0 | 3 |" in text
    assert "| B | **1.0** | **2.0** | 1 | 3 |" in text
    assert str(comparison_table([Row("A", (), (), 3)])).endswith("| A | - | - | 0 | 3 |\n")


def test_every_line_of_the_markdown_has_the_same_number_of_columns(rows):
    assert {line.count("|") for line in str(comparison_table(rows)).splitlines()} == {6}


def test_csv_holds_unrounded_numbers_in_columns_of_their_own(rows):
    header, *lines = csv.reader(io.StringIO(comparison_numbers(rows).csv()))
    assert header == ["method", "last5", "last5_std", "best", "best_std", "seeds", "rounds"]
    assert [line[0] for line in lines] == ["FedAvg", "FedGP", "Target Only"]
    assert [float(value) for value in lines[1][1:]] == pytest.approx(
        [71.5, math.sqrt(4.5), 73.0, math.sqrt(8.0), 2, 30]
    )
    assert lines[2][1:] == ["65.0", "", "90.0", "", "1", "20"]


def test_csv_leaves_unknown_numbers_empty():
    (_, line) = csv.reader(io.StringIO(comparison_numbers([Row("A", (), (), 3)]).csv()))
    assert line == ["A", "", "", "", "", "0", "3"]


def test_the_averaged_models_have_columns_only_if_there_are_any(rows, history):
    averaged = [*rows, Row("FedDA", (50.0,), (60.0,), 30, (76.0, 78.0))]
    header, *_, last = str(comparison_table(averaged)).splitlines()
    assert header == "| Method | last5 (%) | best (%) | last5 average (%) | seeds | rounds |"
    assert last == "| FedDA | 50.0 | 60.0 | **77.0 (1.4)** | 1 | 30 |"
    assert "| FedGP | **71.5 (2.1)** | 73.0 (2.8) | - | 2 | 30 |" in str(comparison_table(averaged))
    names, *_, numbers = csv.reader(io.StringIO(comparison_numbers(averaged).csv()))
    assert names[5:7] == ["last5_average", "last5_average_std"]
    assert [float(value) for value in numbers[5:7]] == [77.0, pytest.approx(math.sqrt(2))]
    with_average = [each | {"accuracy-average": 0.75} for each in history(0.5, 0.25)]
    (row,) = make_rows(results_of({"FedDA": [with_average, history(0.5)]}))
    assert row.average == (75.0,)


def test_csv_quotes_a_label_with_a_comma():
    (_, line) = csv.reader(io.StringIO(comparison_numbers([Row('A, "B"', (1.0,), (2.0,), 3)]).csv()))
    assert line[0] == 'A, "B"'


def test_a_table_has_the_round_chosen_and_how_many_rounds_the_seeds_were_run(history):
    runs = [history(0.1, 0.4, 0.2), history(0.2, 0.3)]
    for record in (record for run in runs for record in run):
        record |= {"validation": 0.5, "selected": 1, "selected-by": "target"}
    rows = make_rows(results_of({"FedAvg": runs, "FedGP": [history(0.5)]}))
    assert str(comparison_table(rows)).splitlines()[2:] == [
        "| FedAvg | 24.2 (1.2) | 35.0 (7.1) | **15.0 (7.1)** | 2 | 2-3 |",
        "| FedGP | **50.0** | **50.0** | - | 1 | 1 |",
    ]
    assert "selected,selected_std" in comparison_numbers(rows).csv()
