import csv
import dataclasses
import io

import pytest

from fda_flower.reporting import REPORTS, CellResult
from fda_flower.reporting.experiment_tables import half_width
from fda_flower.reporting.experiment_tables import numbers as numbers_of

ACCURACIES = {
    ("", "FedAvg", "0.2"): (50.0, 54.0),
    ("", "FedAvg", "0.4"): (30.0, 40.0),
    ("", "FedGP", "0.2"): (70.0, 72.0),
    ("", "FedGP", "0.4"): (20.0, 30.0),
}
PAPER = {("", "FedAvg", "0.2"): 52.5, ("", "FedGP", "0.2"): 70.0, ("", "FedGP", "0.4"): 26.0}


def tables_of(text):
    """The tables of a text: for each, its rows by label, header included."""
    tables, table = [], {}
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            label, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            table[label.strip()] = [cell.strip() for cell in cells]
        elif table:
            tables.append(table)
            table = {}
    return tables


def lines_of(text):
    return {tuple(line[:3]): dict(zip(header, line, strict=True)) for header, line in _pairs(text)}


def _pairs(text):
    header, *lines = csv.reader(io.StringIO(text))
    return [(header, line) for line in lines]


def test_markdown_is_as_written_here(results):
    text = REPORTS["table"].markdown(
        results(ACCURACIES, paper=PAPER, note="Real data.\n", cuts=("1 of 5 seeds.",))
    )
    assert text == (
        "# Accuracy under shift\n\n"
        "Somebody et al., Table 1. 2 seeds, 2 rounds.\n\n"
        "Real data.\n\n"
        "**Cut down:** 1 of 5 seeds.\n\n"
        "Target test accuracy (%) over the last 5 rounds: mean (standard deviation) over seeds, then the "
        "paper's value and how far ours is from it.\n\n"
        "| Noise (standard deviation) | 0.2 | 0.4 |\n"
        "| --- | ---: | ---: |\n"
        "| FedAvg | 52.0 (2.8)<br>paper 52.5, -0.5 | **35.0 (7.1)** |\n"
        "| FedGP | **71.0 (1.4)**<br>paper 70.0, +1.0 | 25.0 (7.1)<br>paper 26.0, -1.0 |\n\n"
        "The same for the best round on the test set, which is **optimistic**: the test labels chose it.\n\n"
        "| Noise (standard deviation) | 0.2 | 0.4 |\n"
        "| --- | ---: | ---: |\n"
        "| FedAvg | 52.0 (2.8) | **35.0 (7.1)** |\n"
        "| FedGP | **71.0 (1.4)** | 25.0 (7.1) |\n"
    )


def test_without_a_source_the_line_begins_with_what_was_measured(results):
    made = dataclasses.replace(results(ACCURACIES), source="")
    assert REPORTS["table"].markdown(made).splitlines()[2] == "2 seeds, 2 rounds."


@pytest.mark.parametrize("order", [1, -1])
def test_the_legend_has_the_widest_interval_of_the_smallest_test_set(results, history, order):
    def cell(row, column, accuracy, samples):
        rounds = [made | {"test-examples": samples} for made in history(accuracy)]
        return CellResult(("", row, column), 0, rounds)

    cells = [cell("FedAvg", "0.2", 0.003, 1601), cell("FedGP", "0.2", 0.45, 1601)]
    (legend,) = [
        line for line in REPORTS["table"].markdown(results(cells=cells[::order])).splitlines() if "%." in line
    ]
    assert legend.endswith("±2.4 points for 1601 test samples at 95%.")
    cells.append(cell("FedGP", "0.4", 0.5, 4000))
    (legend,) = [
        line for line in REPORTS["table"].markdown(results(cells=cells[::order])).splitlines() if "%." in line
    ]
    assert legend.endswith("1601 to 4000 test samples; the fewest: ±2.4 points for 1601 test samples at 95%.")


def test_the_tables_differ_where_the_best_round_is_not_the_last(results, history):
    cell = CellResult(("", "FedGP", "0.2"), 0, history(0.9, 0.5, 0.5, 0.5, 0.5, 0.5))
    last5, best = tables_of(REPORTS["table"].markdown(results(cells=[cell])))
    assert last5["FedGP"] == ["**50.0**", "-"]
    assert best["FedGP"] == ["**90.0**", "-"]


def test_where_nothing_was_run_there_is_a_dash_beside_the_papers_value(results):
    text = REPORTS["table"].markdown(results({("", "FedAvg", "0.2"): (50.0, 54.0)}, paper=PAPER))
    last5, best = tables_of(text)
    assert last5["FedGP"] == ["-<br>paper 70.0", "-<br>paper 26.0"]
    assert best["FedGP"] == ["-", "-"]


@pytest.mark.parametrize("average", [False, True])
def test_results_without_any_cell_make_a_table(results, average):
    text = REPORTS["table"].markdown(results(average=average))
    assert "Nothing measured yet, 2 rounds." in text
    assert tables_of(text)[0]["FedAvg"] == ["-"] * (3 if average else 2)


def test_a_run_that_never_evaluated_is_no_seed(results, history):
    cells = [
        CellResult(("", "FedAvg", "0.2"), 0, history(None, None)),
        CellResult(("", "FedAvg", "0.2"), 1, history(0.5, 0.5)),
        CellResult(("", "FedAvg", "0.4"), 0, []),
    ]
    made = results(cells=cells, average=True)
    assert tables_of(REPORTS["table"].markdown(made))[0]["FedAvg"] == ["**50.0**", "-", "-"]
    assert lines_of(numbers_of(made).csv())["", "FedAvg", "0.2"]["seeds"] == "1"


def test_the_averaged_models_have_columns_of_the_csv_file_only_if_there_are_any(results, history):
    averaged = [{**each, "accuracy-average": 0.75} for each in history(0.5, 0.5)]
    made = results(
        cells=[
            CellResult(("", "FedAvg", "0.2"), 0, averaged),
            CellResult(("", "FedGP", "0.2"), 0, history(0.5)),
        ]
    )
    lines = lines_of(numbers_of(made).csv())
    assert lines["", "FedAvg", "0.2"]["last5_average"] == "75.0"
    assert lines["", "FedGP", "0.2"]["last5_average"] == lines["", "FedGP", "0.4"]["last5_average"] == ""
    assert "average" not in numbers_of(results(ACCURACIES)).csv().splitlines()[0]


def test_cells_with_fewer_seeds_than_others_say_so(results):
    text = REPORTS["table"].markdown(
        results(
            {
                ("", "FedAvg", "0.2"): (50.0, 52.0, 54.0),
                ("", "FedAvg", "0.4"): (50.0, 54.0),
                ("", "FedGP", "0.2"): (60.0,),
            }
        )
    )
    assert "1 to 3 seeds (3 where a cell does not say), 2 rounds." in text
    last5, _ = tables_of(text)
    assert last5["FedAvg"] == ["52.0 (2.0)", "**52.0 (2.8, 2 seeds)**"]
    assert last5["FedGP"] == ["**60.0 (1 seed)**", "-"]


def test_the_average_is_of_each_seed_that_has_all_columns(results, history):
    accuracies = {("", "FedAvg", "0.2"): {0: 0.5, 1: 0.7, 2: 0.9}, ("", "FedAvg", "0.4"): {1: 0.5, 2: 0.8}}
    cells = [
        CellResult(place, seed, history(value))
        for place, values in accuracies.items()
        for seed, value in values.items()
    ]
    last5, best = tables_of(REPORTS["table"].markdown(results(cells=cells, average=True)))
    assert last5["Noise (standard deviation)"] == ["0.2", "0.4", "Avg"]
    # Seeds 1 and 2: (70 + 50) / 2 and (90 + 80) / 2.
    assert last5["FedAvg"][2] == best["FedAvg"][2] == "**72.5 (17.7, 2 seeds)**"
    assert last5["FedGP"][2] == "-"


def test_the_papers_average_is_its_own_or_that_of_its_columns(results):
    paper = {**PAPER, ("", "FedAvg", "0.4"): 30.0, ("", "FedAvg", "Avg"): 41.0}
    last5, _ = tables_of(REPORTS["table"].markdown(results(ACCURACIES, paper=paper, average=True)))
    assert last5["FedAvg"][2].endswith("<br>paper 41.0, +2.5")
    assert last5["FedGP"][2].endswith("<br>paper 48.0, +0.0")
    del paper["", "FedAvg", "0.2"], paper["", "FedAvg", "Avg"]
    last5, _ = tables_of(REPORTS["table"].markdown(results(ACCURACIES, paper=paper, average=True)))
    assert last5["FedAvg"][2] == "43.5 (4.9)"


def test_each_group_has_tables_of_its_own_with_bold_cells_of_its_own(results):
    text = REPORTS["table"].markdown(
        results(
            {("50", "FedAvg", "0.2"): (50.0,), ("100", "FedGP", "0.2"): (20.0,)},
            groups=("50", "100"),
            group_axis="Samples",
        )
    )
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Samples: 50",
        "## Samples: 100",
    ]
    first, _, second, _ = tables_of(text)
    assert (first["FedAvg"], first["FedGP"]) == (["**50.0**", "-"], ["-", "-"])
    assert (second["FedAvg"], second["FedGP"]) == (["-", "-"], ["**20.0**", "-"])


def test_csv_has_a_line_for_each_place_with_unrounded_numbers(results):
    made = lines_of(numbers_of(results(ACCURACIES, paper=PAPER)).csv())
    assert list(made) == [("", row, column) for row in ("FedAvg", "FedGP") for column in ("0.2", "0.4")]
    line = made["", "FedAvg", "0.2"]
    assert list(line)[:6] == ["group", "row", "column", "seeds", "rounds", "last5"]
    assert list(line)[6:] == ["last5_std", "best", "best_std", "paper", "difference", "interval", "inside"]
    *known, interval, inside = list(line.values())[3:]
    assert (interval, inside) == ("", "")
    numbers = [float(value) for value in known]
    assert numbers == pytest.approx([2, 2, 52.0, 8**0.5, 52.0, 8**0.5, 52.5, -0.5], abs=1e-12)


def test_csv_leaves_unknown_numbers_empty(results):
    made = lines_of(numbers_of(results({("", "FedAvg", "0.4"): (50.0,)}, paper=PAPER)).csv())
    assert list(made["", "FedAvg", "0.4"].values())[3:] == ["1", "2", "50.0", "", "50.0", *[""] * 5]
    assert list(made["", "FedGP", "0.2"].values())[3:] == ["0", "", "", "", "", "", "70.0", *[""] * 3]


# 70, 72 and 74 have mean 72 and s = 2; t with 2 degrees of freedom is 4.302653:
# 4.302653 · 2 · √(4/3) = 9.93655.
DRAWS = {("", "FedGP", "0.2"): (70.0, 72.0, 74.0)}


@pytest.mark.parametrize(
    ("paper", "verdict"),
    [
        (81.9, "-9.9, inside"),
        (82.0, "-10.0, outside"),
        (62.1, "+9.9, inside"),
        (62.0, "+10.0, outside"),
        (72.0, "+0.0, inside"),
    ],
)
def test_a_paper_value_is_inside_the_interval_of_one_further_draw_or_outside(results, paper, verdict):
    made = results(DRAWS, paper={("", "FedGP", "0.2"): paper})
    text = REPORTS["table"].markdown(made)
    assert tables_of(text)[0]["FedGP"][0] == f"**72.0 (2.0)**<br>paper {paper:.1f}, {verdict}"
    assert "whether the paper's value is inside the 95% prediction interval of one further seed" in text
    line = lines_of(numbers_of(made).csv())["", "FedGP", "0.2"]
    assert float(line["interval"]) == pytest.approx(9.93655, abs=1e-5)
    assert line["inside"] == str(verdict.endswith("inside"))


def test_five_draws_by_hand():
    # 2, 4, 4, 4, 6: s = √2, and t with 4 degrees of freedom is 2.776445.
    assert half_width([2, 4, 4, 4, 6]) == pytest.approx(2.776445 * 2**0.5 * (6 / 5) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("values", [(), (70.0,), (70.0, 72.0)])
def test_two_draws_have_no_interval(results, values):
    assert half_width(values) is None
    text = REPORTS["table"].markdown(results({("", "FedGP", "0.2"): values}, paper=PAPER))
    assert "inside" not in text
    assert "outside" not in text


def test_without_paper_values_nothing_is_said_of_an_interval(results):
    text = REPORTS["table"].markdown(results(DRAWS))
    assert "inside" not in text
    line = lines_of(numbers_of(results(DRAWS)).csv())["", "FedGP", "0.2"]
    assert float(line["interval"]) == pytest.approx(9.93655, abs=1e-5)
    assert line["inside"] == ""


def test_the_average_is_inside_or_outside_too(results):
    draws = DRAWS | {("", "FedGP", "0.4"): (50.0, 52.0, 54.0)}
    # Means of 60, 62 and 64 over the columns.
    paper = {("", "FedGP", "Avg"): 72.5}
    last5, _ = tables_of(REPORTS["table"].markdown(results(draws, paper=paper, average=True)))
    assert last5["FedGP"][2] == "**62.0 (2.0)**<br>paper 72.5, -10.5, outside"


def test_marked_rows_have_their_marks_and_the_text_says_what_they_mean(results):
    made = results(ACCURACIES, ensembles={"FedAvg"}, centralised={"FedAvg", "FedGP"}, note="A note.")
    text = REPORTS["table"].markdown(made)
    for table in tables_of(text):
        assert {"FedAvg † ‡", "FedGP ‡"} < table.keys()
    assert (
        "A note.\n\n† marks an ensemble of several models. "
        "‡ marks a reference that is no federated method: centralised, pooled sources.\n\n"
    ) in text
    assert "†" not in REPORTS["table"].markdown(results(ACCURACIES, centralised={"FedGP"}))
    assert "‡" not in REPORTS["table"].markdown(results(ACCURACIES))


def test_the_csv_has_a_column_for_centralised_references_if_there_are_any(results):
    lines = lines_of(numbers_of(results(ACCURACIES, centralised={"FedGP"})).csv())
    assert {key[1]: line["centralised"] for key, line in lines.items()} == {
        **{"FedAvg": "False", "FedGP": "True"}
    }
    assert "centralised" not in numbers_of(results(ACCURACIES)).csv()


def judged(history):
    """The same history, in which labels held out have chosen the second round."""
    for number, record in enumerate(history, 1):
        record |= {"validation": 0.5, "selected": min(number, 2), "selected-by": "target"}
    return history


def test_the_round_that_labels_held_out_have_chosen_has_a_table_and_columns_if_there_is_any(results, history):
    cells = [
        CellResult(("", "FedGP", "0.2"), 0, judged(history(0.9, 0.5, 0.8))),
        CellResult(("", "FedAvg", "0.2"), 0, history(0.1, 0.2, 0.3)),
    ]
    made = results(cells=cells)
    *_, selected = tables_of(REPORTS["table"].markdown(made))
    assert len(tables_of(REPORTS["table"].markdown(made))) == 3
    assert selected["FedGP"] == ["**50.0**", "-"]
    assert selected["FedAvg"] == ["-", "-"]
    lines = lines_of(numbers_of(made).csv())
    assert lines["", "FedGP", "0.2"]["selected"] == "50.0"
    assert lines["", "FedAvg", "0.2"]["selected"] == ""
    assert "selected" not in numbers_of(results(cells=cells[1:])).csv()
