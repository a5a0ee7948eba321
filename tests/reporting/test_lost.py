"""What columns cost against the first one: tables and picture."""

import csv
import io

import pytest

from fda_flower.reporting import REPORTS
from fda_flower.reporting.lost import numbers, plot_lost

SCORES = {
    ("", "FedAvg", "0.2"): (70.0, 72.0),
    ("", "FedAvg", "0.4"): (40.0, 50.0, 10.0),
    ("", "FedGP", "0.2"): (60.0, 61.0),
    ("", "FedGP", "0.4"): (61.0, 62.0),
}
REFUSED = {("", "Krum", column): "too few clients" for column in ("0.2", "0.4")}


@pytest.fixture
def poisoned(results):
    return results(SCORES, rows=("FedAvg", "FedGP", "Krum"), refused=REFUSED)


def test_the_table_has_the_first_columns_figure_and_the_points_lost_by_seeds_that_both_have(poisoned):
    text = REPORTS["lost"].markdown(poisoned)
    _, lost = text.split("## Lost against 0.2")
    assert "| FedAvg | 71.0 (1.4) | 26.0 (5.7) |" in lost
    assert "| FedGP | 60.5 (0.7) | -1.0 (0.0) |" in lost
    assert "| Krum | refused | refused |" in lost
    assert "**Refused:** too few clients." in text


def test_groups_have_a_table_each(results):
    scores = {(group, "FedAvg", column): (50.0,) for group in ("a", "b") for column in ("0.2", "0.4")}
    text = REPORTS["lost"].markdown(results(scores, groups=("a", "b")))
    assert [line for line in text.splitlines() if line.startswith("###")] == ["### a", "### b"]


def test_all_numbers_are_in_the_csv(poisoned):
    lines = list(csv.DictReader(io.StringIO(numbers(poisoned).csv())))
    assert len(lines) == 6
    found = {(line["row"], line["column"]): line for line in lines}
    assert float(found["FedAvg", "0.4"]["lost"]) == pytest.approx(26)
    assert found["FedAvg", "0.4"]["n"] == "3"
    assert found["Krum", "0.2"] == {
        **dict.fromkeys(("group", "score", "lost", "lost_std"), ""),
        **{"row": "Krum", "column": "0.2", "n": "0", "refused": "too few clients"},
    }


def test_the_picture_has_a_number_in_each_cell_a_cross_where_refused_and_nothing_where_not_run(results):
    made = results(
        {**SCORES, ("", "FedGP", "1"): (60.0,)},
        refused={("", "FedAvg", "1"): "no"},
        columns=("0.2", "0.4", "1", "2"),
    )
    (axis,) = plot_lost(made).axes
    assert [text.get_text() for text in axis.texts] == ["26", "x", "", "-1", "0", ""]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["FedAvg", "FedGP"]


def test_without_another_column_there_is_nothing_to_see(results):
    made = results({("", "FedAvg", "0.2"): (80.0,)}, columns=("0.2",))
    assert not plot_lost(made).axes
    assert not plot_lost(results()).axes
