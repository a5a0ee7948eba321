"""What columns cost against the first one: tables and picture."""

import csv
import io

import pytest

from fda_flower.reporting import REPORTS, markdown, save_figures
from fda_flower.reporting.lost import Lost, numbers, plot_lost, report

SCORES = {
    ("", "FedAvg", "0.2"): (70.0, 72.0),
    ("", "FedAvg", "0.4"): (40.0, 50.0, 10.0),
    ("", "FedGP", "0.2"): (60.0, 61.0),
    ("", "FedGP", "0.4"): (61.0, 62.0),
}
REFUSED = {("", "Krum", "0.2"): "too few clients", ("", "Krum", "0.4"): "too few clients"}


@pytest.fixture
def poisoned(results):
    return results(
        SCORES, rows=("FedAvg", "FedGP", "Krum"), refused=REFUSED, report="lost", figures=("lost",)
    )


def test_lost_points_are_those_of_seeds_that_both_columns_have(poisoned):
    assert Lost(poisoned).lost("", "FedAvg", "0.4") == pytest.approx((30, 22))
    assert Lost(poisoned).lost("", "FedGP", "0.4") == pytest.approx((-1, -1))
    assert Lost(poisoned).lost("", "Krum", "0.4") == ()


def test_the_table_has_the_first_columns_figure_and_the_points_lost(poisoned):
    text = markdown(report(poisoned))
    assert "## Lost against 0.2" in text
    assert "| FedAvg | 71.0 (1.4) | 26.0 (5.7) |" in text
    assert "| FedGP | 60.5 (0.7) | -1.0 (0.0) |" in text
    assert "| Krum | refused | refused |" in text
    assert REPORTS["lost"].markdown(poisoned).endswith(text)
    assert "**Refused:** too few clients." in REPORTS["lost"].markdown(poisoned)


def test_groups_have_a_table_each(results):
    scores = {(group, "FedAvg", column): (50.0,) for group in ("a", "b") for column in ("0.2", "0.4")}
    text = markdown(report(results(scores, groups=("a", "b"))))
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


def test_the_picture_has_a_number_in_each_cell(poisoned, tmp_path):
    (axis,) = plot_lost(poisoned).axes
    assert [text.get_text() for text in axis.texts] == ["26", "-1"]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["FedAvg", "FedGP"]
    assert [path.name for path in save_figures(poisoned, tmp_path)] == ["shift-lost.png"]


def test_a_refused_cell_is_crossed_and_one_not_run_is_empty(results):
    refused = {("", "FedGP", "0.4"): "no"}
    made = results(
        {**{key: (80.0,) for key in [*SCORES][:2]}, ("", "FedGP", "0.2"): (70.0,)},
        refused=refused,
        columns=("0.2", "0.4", "1"),
    )
    (axis,) = plot_lost(made).axes
    assert [text.get_text() for text in axis.texts] == ["0", "", "x", ""]


def test_without_another_column_there_is_nothing_to_see(results):
    made = results({("", "FedAvg", "0.2"): (80.0,)}, columns=("0.2",))
    assert "Nothing is measured beside 0.2 yet" in plot_lost(made).texts[0].get_text()
    assert plot_lost(results()).texts
