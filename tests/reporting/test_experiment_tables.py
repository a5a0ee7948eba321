"""The tables of experiments and comparisons, in Markdown and in CSV."""

import math
from dataclasses import replace

import pytest

from fda_flower.reporting import REPORTS, RecordedRun
from fda_flower.reporting.experiment_tables import (
    caption,
    half_width,
    numbers,
    shares_of,
    table_of_scores,
)
from fda_flower.reporting.tables import Table

ACCURACIES = {
    ("", "FedAvg", "0.2"): (50.0, 54.0),
    ("", "FedAvg", "0.4"): (30.0, 40.0),
    ("", "FedGP", "0.2"): (70.0, 72.0),
    ("", "FedGP", "0.4"): (20.0, 30.0),
}
PAPER = {("", "FedAvg", "0.2"): 52.5, ("", "FedGP", "0.2"): 70.0, ("", "FedGP", "0.4"): 26.0}
# 70, 72 and 74 have mean 72 and s = 2; t with 2 degrees of freedom is 4.302653:
# 4.302653 · 2 · √(4/3) = 9.93655.
DRAWS = {("", "FedGP", "0.2"): (70.0, 72.0, 74.0)}


def text_of(results):
    return REPORTS["table"].markdown(results)


def tables_of(results):
    """The tables of a report: for each, its cells in Markdown by label, header included."""
    tables = [part for part in REPORTS["table"].parts(results) if isinstance(part, Table)]
    return [{row[0]: [*map(str, row[1:])] for row in (each.header, *each.rows)} for each in tables]


def lines_of(table):
    """The lines of a table of numbers by group, row and column."""
    return {tuple(row[:3]): dict(zip(table.header, row, strict=True)) for row in table.rows}


def judged(history):
    """The same history, in which labels held out have chosen the second round."""
    for number, record in enumerate(history, 1):
        record |= {"validation": 0.5, "selected": min(number, 2), "selected-by": "target"}
    return history


def test_markdown_is_as_written_here(results):
    made = results(ACCURACIES, paper=PAPER, note="Real data.\n", cuts=("1 of 5 seeds.",))
    text = text_of(made)
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
    assert (
        text_of(replace(made, design=replace(made.design, source=""))).splitlines()[2] == "2 seeds, 2 rounds."
    )


@pytest.mark.parametrize("order", [1, -1])
def test_the_legend_has_the_widest_interval_of_the_smallest_test_set(results, history, runs_of, order):
    def of(accuracy, samples):
        return runs_of("", [each | {"test-examples": samples} for each in history(accuracy)])

    def legend(runs):
        ordered = dict([*runs.items()][::order])
        return next(line for line in text_of(results(runs=ordered)).splitlines() if "%." in line)

    runs = {("", "FedAvg", "0.2"): of(0.003, 1601), ("", "FedGP", "0.2"): of(0.45, 1601)}
    assert legend(runs).endswith("±2.4 points for 1601 test samples at 95%.")
    runs["", "FedGP", "0.4"] = of(0.5, 4000)
    assert legend(runs).endswith(
        "1601 to 4000 test samples; the fewest: ±2.4 points for 1601 test samples at 95%."
    )


def test_the_tables_differ_where_the_best_round_is_not_the_last(results, history, runs_of):
    runs = runs_of("FedGP", history(0.9, 0.5, 0.5, 0.5, 0.5, 0.5))
    last5, best = tables_of(results(runs={("", "FedGP", "0.2"): runs}))
    assert last5["FedGP"] == ["**50.0**", "-"]
    assert best["FedGP"] == ["**90.0**", "-"]


def test_where_nothing_was_run_there_is_a_dash_beside_the_papers_value(results):
    last5, best = tables_of(results({("", "FedAvg", "0.2"): (50.0, 54.0)}, paper=PAPER))
    assert last5["FedGP"] == ["-<br>paper 70.0", "-<br>paper 26.0"]
    assert best["FedGP"] == ["-", "-"]
    nothing = results(average=True)
    assert "Nothing measured yet, 2 rounds." in text_of(nothing)
    assert tables_of(nothing)[0]["FedAvg"] == ["-"] * 3


def test_a_run_that_never_evaluated_is_no_seed(results, history, runs_of):
    runs = {
        ("", "FedAvg", "0.2"): runs_of("FedAvg", history(None, None), history(0.5, 0.5)),
        ("", "FedAvg", "0.4"): runs_of("FedAvg", []),
    }
    made = results(runs=runs, average=True)
    assert tables_of(made)[0]["FedAvg"] == ["**50.0**", "-", "-"]
    assert lines_of(numbers(made))["", "FedAvg", "0.2"]["seeds"] == 1


def test_cells_with_fewer_seeds_than_others_say_so(results):
    seeds = {
        ("FedAvg", "0.2"): (50.0, 52.0, 54.0),
        ("FedAvg", "0.4"): (50.0, 54.0),
        ("FedGP", "0.2"): (60.0,),
    }
    made = results({("", *place): values for place, values in seeds.items()})
    assert "1 to 3 seeds (3 where a cell does not say), 2 rounds." in text_of(made)
    last5, _ = tables_of(made)
    assert last5["FedAvg"] == ["52.0 (2.0)", "**52.0 (2.8, 2 seeds)**"]
    assert last5["FedGP"] == ["**60.0 (1 seed)**", "-"]


def test_the_average_is_of_each_seed_that_has_all_columns(results, history):
    accuracies = {"0.2": {0: 0.5, 1: 0.7, 2: 0.9}, "0.4": {1: 0.5, 2: 0.8}}
    runs = {
        ("", "FedAvg", column): [RecordedRun("FedAvg", seed, history(v, v)) for seed, v in values.items()]
        for column, values in accuracies.items()
    }
    last5, best = tables_of(results(runs=runs, average=True))
    assert last5["Noise (standard deviation)"] == ["0.2", "0.4", "Avg"]
    # Seeds 1 and 2: (70 + 50) / 2 and (90 + 80) / 2.
    assert last5["FedAvg"][2] == best["FedAvg"][2] == "**72.5 (17.7, 2 seeds)**"
    assert last5["FedGP"][2] == "-"


def test_the_papers_average_is_its_own_or_that_of_its_columns(results):
    paper = {**PAPER, ("", "FedAvg", "0.4"): 30.0, ("", "FedAvg", "Avg"): 41.0}
    last5, _ = tables_of(results(ACCURACIES, paper=paper, average=True))
    assert last5["FedAvg"][2].endswith("<br>paper 41.0, +2.5")
    assert last5["FedGP"][2].endswith("<br>paper 48.0, +0.0")
    del paper["", "FedAvg", "0.2"], paper["", "FedAvg", "Avg"]
    assert tables_of(results(ACCURACIES, paper=paper, average=True))[0]["FedAvg"][2] == "43.5 (4.9)"


def test_each_group_has_tables_of_its_own_with_bold_cells_of_its_own(results):
    scores = {("50", "FedAvg", "0.2"): (50.0,), ("100", "FedGP", "0.2"): (20.0,)}
    made = results(scores, groups=("50", "100"), group_axis="Samples")
    headings = [line for line in text_of(made).splitlines() if line.startswith("## ")]
    assert headings == ["## Samples: 50", "## Samples: 100"]
    first, _, second, _ = tables_of(made)
    assert (first["FedAvg"], first["FedGP"]) == (["**50.0**", "-"], ["-", "-"])
    assert (second["FedAvg"], second["FedGP"]) == (["-", "-"], ["**20.0**", "-"])


def test_the_numbers_have_a_line_for_each_place_with_unrounded_numbers_and_nothing_for_unknown_ones(results):
    made = lines_of(numbers(results(ACCURACIES, paper=PAPER)))
    assert list(made) == [("", row, column) for row in ("FedAvg", "FedGP") for column in ("0.2", "0.4")]
    line = made["", "FedAvg", "0.2"]
    assert list(line)[3:8] == ["seeds", "rounds", "last5", "last5_std", "best"]
    assert list(line)[8:] == ["best_std", "paper", "difference", "interval", "inside"]
    *known, interval, inside = list(line.values())[3:]
    assert interval is inside is None
    assert known == pytest.approx([2, 2, 52.0, 8**0.5, 52.0, 8**0.5, 52.5, -0.5], abs=1e-12)
    made = lines_of(numbers(results({("", "FedAvg", "0.4"): (50.0,)}, paper=PAPER)))
    assert list(made["", "FedAvg", "0.4"].values())[3:] == [1, 2, 50, None, 50, *[None] * 5]
    assert list(made["", "FedGP", "0.2"].values())[3:] == [0, *[None] * 5, 70, *[None] * 3]


@pytest.mark.parametrize(
    ("paper", "verdict"),
    [(81.9, "-9.9, inside"), (82.0, "-10.0, outside"), (62.1, "+9.9, inside"), (62.0, "+10.0, outside")],
)
def test_a_paper_value_is_inside_the_interval_of_one_further_draw_or_outside(results, paper, verdict):
    made = results(DRAWS, paper={("", "FedGP", "0.2"): paper})
    assert tables_of(made)[0]["FedGP"][0] == f"**72.0 (2.0)**<br>paper {paper:.1f}, {verdict}"
    assert "whether the paper's value is inside the 95% prediction interval of one further" in text_of(made)
    line = lines_of(numbers(made))["", "FedGP", "0.2"]
    assert line["interval"] == pytest.approx(9.93655, abs=1e-5)
    assert line["inside"] is verdict.endswith("inside")


def test_five_draws_by_hand_and_fewer_than_three_have_no_interval(results):
    # 2, 4, 4, 4, 6: s = √2, and t with 4 degrees of freedom is 2.776445.
    assert half_width([2, 4, 4, 4, 6]) == pytest.approx(2.776445 * 2**0.5 * (6 / 5) ** 0.5, rel=1e-6)
    assert half_width([]) is half_width([70.0, 72.0]) is None
    for made in (results({("", "FedGP", "0.2"): (70.0, 72.0)}, paper=PAPER), results(DRAWS)):
        assert "inside" not in text_of(made)
        assert "outside" not in text_of(made)
        assert lines_of(numbers(made))["", "FedGP", "0.2"]["inside"] is None


def test_marked_rows_have_their_marks_and_the_text_says_what_they_mean(results):
    made = results(ACCURACIES, ensembles={"FedAvg"}, centralised={"FedAvg", "FedGP"}, note="A note.")
    assert all({"FedAvg † ‡", "FedGP ‡"} < table.keys() for table in tables_of(made))
    assert (
        "A note.\n\n† marks an ensemble of several models. "
        "‡ marks a reference that is no federated method: centralised, pooled sources.\n\n"
    ) in text_of(made)
    made = results(ACCURACIES, centralised={"FedGP"})
    assert "†" not in text_of(made)
    lines = lines_of(numbers(made)).items()
    assert {key[1]: line["centralised"] for key, line in lines} == {"FedAvg": False, "FedGP": True}


def test_the_averaged_model_and_the_round_chosen_have_columns_and_a_table_only_if_there_are_any(
    results, history, runs_of
):
    averaged = [{**each, "accuracy-average": 0.75} for each in history(0.5, 0.5)]
    made = results(
        runs={
            ("", "FedAvg", "0.2"): runs_of("FedAvg", averaged),
            ("", "FedGP", "0.2"): runs_of("FedGP", judged(history(0.9, 0.5, 0.8))),
        }
    )
    _, _, selected = tables_of(made)
    assert (selected["FedGP"], selected["FedAvg"]) == (["**50.0**", "-"], ["-", "-"])
    lines = lines_of(numbers(made))
    assert lines["", "FedAvg", "0.2"]["last5_average"] == 75
    assert lines["", "FedGP", "0.2"]["selected"] == 50
    assert lines["", "FedGP", "0.2"]["last5_average"] is lines["", "FedAvg", "0.2"]["selected"] is None
    plain = results(ACCURACIES)
    assert len(tables_of(plain)) == 2
    assert not {"selected", "last5_average", "centralised"} & set(numbers(plain).header)


# Comparisons


@pytest.fixture
def compared(results, history, runs_of):
    """A maker of a comparison from the accuracies of each run in percent, by label, a history each."""

    def make(figures):
        runs = {
            ("", label, ""): runs_of(
                label, *(history(*(v if v is None else v / 100 for v in run)) for run in each)
            )
            for label, each in figures.items()
        }
        return results(runs=runs, rows=list(figures), columns=[""], axis="")

    return make


def test_the_best_means_of_each_column_are_bold_and_what_is_unknown_is_a_dash(compared):
    never, once = [None] * 6, [40, *[None] * 5]
    runs = {"A": [never], "B": [[50, 70], [60, 66, 54]], "C": [[60, 60]], "D": [once, [1]], "E, F": [[68]]}
    made = compared(runs)
    assert str(table_of_scores(made)) == (
        "| Method | last5 (%) | best (%) | seeds | rounds |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| A | - | - | 0 | 6 |\n"
        "| B | 60.0 (0.0) | **68.0 (2.8)** | 2 | 2-3 |\n"
        "| C | 60.0 | 60.0 | 1 | 2 |\n"
        "| D | 1.0 | 20.5 (27.6) | 1 | 1-6 |\n"
        "| E, F | **68.0** | **68.0** | 1 | 1 |\n"
    )
    table = numbers(made)
    assert table.header == ["method", "last5", "last5_std", "best", "best_std", "seeds", "rounds"]
    assert table.rows[0] == ["A", None, None, None, None, 0, 6]
    assert table.rows[1][1:] == pytest.approx([60, 0, 68, math.sqrt(8), 2, 3])
    assert table.csv().splitlines()[5] == '"E, F",68,,68,,1,1'


def test_a_comparison_has_columns_of_the_averaged_model_and_the_round_chosen_if_there_are_any(compared):
    made = compared({"FedAvg": [[10, 40, 20], [20, 30]], "FedGP": [[50, 50]]})
    for run in made.at(("", "FedAvg", "")):
        for record in run.history:
            record |= {"validation": 0.5, "selected": 1, "selected-by": "target"}
    for record in made.at(("", "FedGP", ""))[0].history:
        record["accuracy-average"] = 0.75
    header, _, *lines = str(table_of_scores(made)).splitlines()
    assert header == "| Method | last5 (%) | best (%) | selected (%) | last5 average (%) | seeds | rounds |"
    assert lines == [
        "| FedAvg | 24.2 (1.2) | 35.0 (7.1) | **15.0 (7.1)** | - | 2 | 2-3 |",
        "| FedGP | **50.0** | **50.0** | - | **75.0** | 1 | 2 |",
    ]
    table = numbers(made)
    assert table.header[5:9] == ["selected", "selected_std", "last5_average", "last5_average_std"]
    assert table.rows[-1][5:9] == [None, None, 75, None]


def test_a_comparison_ends_with_the_most_frequent_class_and_has_what_is_fair_to_rare_ones(compared, uneven):
    made = uneven(compared({"Target Only": [[60], [50]], "FedGP": [[70, 80], [50, 70]], "FedAvg": [[90]]}))
    header, _, alone, fedgp, fedavg, constant = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in str(table_of_scores(made)).splitlines()
    )
    found = [dict(zip(header, line, strict=True)) for line in (alone, fedgp, fedavg, constant)]
    assert [line["last5 (%)"] for line in found] == ["55.0 (7.1)", "67.5 (10.6)", "**90.0**", "75.0 (0.0)"]
    assert [line["AUROC (%)"] for line in found] == ["**62.5 (0.0)**"] * 2 + ["**62.5**", "50.0 (0.0)"]
    assert constant[0] == "most frequent class"
    assert [line["points over Target Only"] for line in found] == ["-", "12.5 (3.5)", "30.0", "-"]


def test_no_ranking_rests_on_a_class_of_nine_cases_without_a_word(compared, uneven):
    made = uneven(compared({"FedGP": [[70]], "FedAvg": [[90]]}))
    assert "Few test cases" not in caption(made)
    for run in made.all_runs:
        record = run.history[-1]
        record["confusion"] |= {"counts": [[5, 4], [15, 16]]}
        record["intervals"] = {"auroc": [0.5, 0.75]}
    by_auroc, own = made.judged_by("auroc"), made.judged_by("accuracy")
    for judged, marked in (
        (own, ["balanced accuracy (%)*", "AUROC (%)*"]),
        (by_auroc, ["last5 (%)*", "best (%)*"]),
    ):
        assert [name for name in table_of_scores(judged).header if "*" in name] == marked
        assert "Few test cases (well 9)" in caption(judged)
    assert "few test cases: well 9" in by_auroc.about()
    assert "the 95% intervals of its runs lie between 50.0% and 75.0%" in caption(by_auroc)


def test_what_sources_bring_is_told_by_labels_held_out_if_all_runs_held_some_out(compared):
    made = compared({"Target Only": [[60]], "FedGP": [[70]]})
    for run, value in zip(made.all_runs, (0.5, 0.75), strict=True):
        run.history[0].update({"validation": value, "selected": 1, "selected-by": "target"})
    table = table_of_scores(made)
    assert table.header[-1] == "points over Target Only, labels held out"
    assert [line[-1] for line in table.rows] == ["-", "25.0"]


def test_the_tables_of_an_experiment_end_with_it_where_a_column_knows_it(results, uneven):
    made = results(ACCURACIES)
    assert "most frequent class" not in REPORTS["table"].markdown(made)
    made = uneven(made)
    for run in made.column("", "0.4"):
        del run.history[-1]["confusion"]
    assert "| most frequent class | 75.0 (0.0) | - |" in REPORTS["table"].markdown(made)


def test_columns_of_mostly_one_class_have_a_table_of_balanced_accuracies(results, uneven):
    made = uneven(results(ACCURACIES, paper=PAPER, average=True))
    for place, runs in made.runs.items():
        for run in runs if place != ("", "FedGP", "0.4") else ():
            run.history[-1]["balanced-accuracy"] = 0.6
    *_, balanced = tables_of(made)
    assert balanced == {
        made.design.axis: ["0.2"],
        "FedAvg": ["**60.0 (0.0)**"],
        "FedGP": ["**60.0 (0.0)**"],
        "most frequent class": ["50.0 (0.0)"],
    }


def test_runs_that_are_evaluated_once_have_no_best_round(results, history, runs_of):
    made = results(runs={("", "FedGP", "0.2"): runs_of("FedGP", history(None, 0.7))})
    assert len(tables_of(made)) == 1
    assert "optimistic" not in text_of(made)


def test_rows_in_json_have_shares_where_tables_have_percent(results, compared):
    first = shares_of(made := results(ACCURACIES, paper=PAPER), numbers(made))[0]
    assert (first["row"], first["column"], first["seeds"], first["rounds"]) == ("FedAvg", "0.2", 2, 2)
    shown = [first[name] for name in ("last5", "best", "last5_std", "paper", "difference")]
    assert shown == pytest.approx([0.52, 0.52, math.sqrt(8) / 100, 0.525, -0.005])
    (row,) = shares_of(made := compared({"FedAvg": [[40, 60]]}), numbers(made))
    assert row == {"method": "FedAvg", "last5": 0.5, "best": 0.6, "seeds": 1, "rounds": 2} | dict.fromkeys(
        ("last5_std", "best_std")
    )
    errors = replace(made, metrics={("", ""): "rmse"})
    assert shares_of(errors, Table(["method", "last5"], [["FedAvg", 2.5]])) == [
        {"method": "FedAvg", "last5": 2.5}
    ]
