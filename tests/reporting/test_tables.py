import csv
import io
import math

import pytest

from fda_flower.reporting import CellResult, Results, mean_std
from fda_flower.reporting.experiment_tables import comparison_numbers, comparison_table


@pytest.fixture
def compared(history):
    """A maker of a comparison from the accuracies of each run in percent, by label, a history each."""

    def make(runs):
        cells = [
            CellResult(
                ("", label, ""), seed, history(*(None if value is None else value / 100 for value in run))
            )
            for label, histories in runs.items()
            for seed, run in enumerate(histories)
        ]
        return Results("c", "c", "", "", "", list(runs), [""], cells, 2)

    return make


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


def test_the_best_means_of_each_column_are_bold_and_what_is_unknown_is_a_dash(compared):
    never, once = [None] * 6, [40, *[None] * 5]
    runs = {"A": [never], "B": [[50, 70], [60, 66, 54]], "C": [[60, 60]], "D": [once, [1]], "E, F": [[68]]}
    results = compared(runs)
    assert str(comparison_table(results)) == (
        "| Method | last5 (%) | best (%) | seeds | rounds |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| A | - | - | 0 | 6 |\n"
        "| B | 60.0 (0.0) | **68.0 (2.8)** | 2 | 2-3 |\n"
        "| C | 60.0 | 60.0 | 1 | 2 |\n"
        "| D | 1.0 | 20.5 (27.6) | 1 | 1-6 |\n"
        "| E, F | **68.0** | **68.0** | 1 | 1 |\n"
    )
    header, *lines = csv.reader(io.StringIO(comparison_numbers(results).csv()))
    assert header == ["method", "last5", "last5_std", "best", "best_std", "seeds", "rounds"]
    assert lines[0] == ["A", "", "", "", "", "0", "6"]
    assert [float(value) for value in lines[1][1:]] == pytest.approx([60, 0, 68, math.sqrt(8), 2, 3])
    assert lines[4] == ["E, F", "68.0", "", "68.0", "", "1", "1"]


def test_the_averaged_models_and_the_round_chosen_have_columns_only_if_there_are_any(compared):
    results = compared({"FedAvg": [[10, 40, 20], [20, 30]], "FedGP": [[50, 50]]})
    for cell in results.cells[:2]:
        for record in cell.history:
            record |= {"validation": 0.5, "selected": 1, "selected-by": "target"}
    for record in results.cells[2].history:
        record["accuracy-average"] = 0.75
    header, _, *lines = str(comparison_table(results)).splitlines()
    assert header == "| Method | last5 (%) | best (%) | selected (%) | last5 average (%) | seeds | rounds |"
    assert lines == [
        "| FedAvg | 24.2 (1.2) | 35.0 (7.1) | **15.0 (7.1)** | - | 2 | 2-3 |",
        "| FedGP | **50.0** | **50.0** | - | **75.0** | 1 | 2 |",
    ]
    names, *_, numbers = csv.reader(io.StringIO(comparison_numbers(results).csv()))
    assert names[5:9] == ["selected", "selected_std", "last5_average", "last5_average_std"]
    assert numbers[5:9] == ["", "", "75.0", ""]
