"""The parts of an HTML page, and what they say of records."""

import html
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from fda_flower.reporting.figures import style, styles_of
from fda_flower.reporting.html import Chart, Code, Page, Section, charts, render, results_page, run_page
from fda_flower.reporting.results import RecordedRun
from fda_flower.reporting.run_tables import settings_table, sizes_table
from fda_flower.reporting.summary import summarise
from fda_flower.reporting.tables import Cell, Heading, Table, escaped

NASTY = "</script><script>alert(1)</script>"
NAN = math.nan


def page_of(*parts):
    return Page("A page", "digits; seed 0", [Section("Part", parts)])


def parts_of(page):
    """By the title of a section, its parts."""
    return {section.title: section.parts for section in page.sections}


def lines_of(figure):
    """By the label of lines, their points."""
    (axis,), found = figure.axes, {}
    for line in axis.lines:
        found.setdefault(line.get_label(), []).extend(map(tuple, line.get_xydata().tolist()))
    return found


def first(chart):
    return next(iter(chart.figures.values()))


def curves(series):
    return charts.curves(series, styles_of([*series]), "y")


def column(table, name):
    return [row[table.header.index(name)] for row in table.rows]


# Rendering


def test_a_page_is_one_file_with_nothing_to_load_and_words_in_its_charts(pictures):
    drawn = Chart({"a": curves({"A": [[1.0, 2.0]]}), "b": curves({"B": [[1.0]]})})
    text = render([page_of(drawn), page_of(Code(["fda run"]))], "made today")
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", text)
    assert "made today" in text
    assert re.findall(r'<div class="chart"( hidden)?><svg', text) == ["", " hidden"]
    assert re.search("<text[^>]*>Round</text>", text)


def test_names_from_records_are_escaped_everywhere(pictures):
    drawn = Chart({NASTY: charts.curves({f"{NASTY} $x$": [[1.0]]}, {f"{NASTY} $x$": style(0)}, NASTY)}, NASTY)
    tables = [Table([NASTY], [[NASTY]], NASTY), Table([], [[Cell(NASTY, below=NASTY)]])]
    parts: list[Any] = [drawn, *tables, Heading(NASTY), NASTY, Code([NASTY])]
    text = render([Page(NASTY, NASTY, [Section(NASTY, parts)], NASTY)], NASTY)
    assert "<script>alert" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert "alert(1)&lt;/script&gt; $x$</text>" in text, "no formula"


def test_a_report_keeps_its_marks_and_no_tags():
    table = Table(
        ["row", "last5"], [["A", Cell("71.0", best=True, below="paper <i>")], ["B", 71.23456], ["C", None]]
    )
    text = render([page_of(Heading("Regret"), "**Cut** by `--only` <i>\n\nSecond", table)], "made")
    for shown in (
        "<h4>Regret</h4>",
        "<p><strong>Cut</strong> by <code>--only</code> &lt;i&gt;</p>\n<p>Second</p>",
        "<td><strong>71.0</strong><br>paper &lt;i&gt;</td>",
        "<td>71.23</td>",
        "<td>C</td><td></td>",
    ):
        assert shown in text


@pytest.mark.parametrize("name", ["**a**", "`a`", "a \\* b", "<i>a", "\\", "a\nb"])
def test_a_name_in_a_paragraph_is_shown_as_it_is(name):
    text = render([page_of(f"**{escaped(name)}** and {escaped(name)}")], "made")
    shown = html.escape(name).replace("\n", " ")
    assert f"<p><strong>{shown}</strong> and {shown}</p>" in text


# Charts


def test_curves_show_all_rounds_though_one_alone_was_measured():
    figure = curves({"A": [[NAN, NAN, NAN, 1.0]]})
    assert {point for points in lines_of(figure).values() for point in points} == {(4, 1)}
    assert figure.axes[0].get_xlim() == (0.5, 4.5)


def test_of_many_sources_a_chart_has_the_mean_and_the_range():
    figure = charts.shares({f"source-{i}": [[i / 100, NAN, 0.5]] for i in range(100)}, "y")
    (name, points), *_ = lines_of(figure).items()
    assert (name, points[0][0], points[-1]) == ("mean of 100 sources", 1, (3, 0.5))
    assert figure.axes[0].get_ylim()[0] == 0
    assert {text.get_text() for text in figure.legends[0].texts} == {name, "lowest to highest"}


def test_dots_show_the_papers_values_beside_what_was_measured():
    values = {"A": (70.0, 72.0), "B": (), "C": (50.0,)}
    figure = charts.dots(values, styles_of([*values]), "x", {"A": 71.5, "B": 3.0})
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["A", "C"]
    points = [point for points in lines_of(figure).values() for point in points]
    assert {(71.0, 0.0), (71.5, 0.0), (50.0, 1.0)} <= {*points}
    assert 3.0 not in {x for x, _ in points}


def test_a_legend_has_every_name():
    figure = curves({"_north": [[1.0, 2.0]], "b": [[1.0]]})
    assert [text.get_text().strip() for text in figure.legends[0].texts] == ["_north", "b"]


# The page of a run


@pytest.fixture
def troubled(history):
    """Five rounds in which a reply is dropped, a node missing, a round held, and an estimate replaced."""
    rounds = history(0.2, 0.3, 0.4, 0.5, 0.6, betas={"a": 0.2, "b": 0.4})
    for each in rounds:
        each["target"] |= {"examples": 50, "steps": 3, "train-loss": 0.5}
        each["sources"]["a"] |= {"examples": 300, "steps": 10, "train-loss": 0.25}
        each |= {"missing": [], "bytes-received": 2_000_000, "loss": 1.5}
    for i in (1, 2):
        rounds[i]["dropped"] = [{"domain": "b", "reason": "late"}]
        del rounds[i]["sources"]["b"]
    rounds[4]["missing"] = [{"domain": "site-7", "reason": "no answer"}]
    rounds[3]["held"] = "no usable reply of the target"
    rounds[3]["target"] = None
    rounds[0]["sources"]["b"]["fallback"] = "too few batches"
    rounds[0]["sources"]["a"]["clipped"] = 0.5
    rounds[4]["evaluation-failed"] = "timeout"
    return rounds


@pytest.fixture
def page(troubled):
    settings = {"dataset": "digits", "shift": "rotate", "method": "fedda-auto", "seed": 3}
    return run_page(
        RecordedRun("FedDA_Auto", 3, troubled, settings, {"device": "cpu"}, 5, True, ["fda run"]), "first"
    )


def test_the_chart_of_who_took_part_grows_with_the_changes_alone():
    figure = charts.presence({str(n): ["took part"] * 1000 for n in range(100)})
    points = lines_of(figure)["took part"]
    assert [x for x, _ in points if x == x] == [1, 1000] * 100


def test_the_page_of_a_run_has_its_curves_weights_and_commands(page):
    assert page.about == "FedDA_Auto; digits, rotate; seed 3"
    assert page.state == "Done: 5 of 5 rounds; target accuracy 60.0%."
    table, chart = parts_of(page)["Results"]
    assert (column(table, "last5, accuracy (%)"), column(table, "best, accuracy (%)")) == (["40.0"], ["60.0"])
    assert column(table, "MB received") == ["10.0"]
    assert list(chart.figures) == ["Target test accuracy (%)", "loss"]
    assert [y for _, y in lines_of(first(chart))["accuracy"]] == pytest.approx([20, 30, 40, 50, 60])
    drawn, trust = parts_of(page)["Weights of the sources"]
    assert [*lines_of(first(drawn))] == ["a", "b"]
    assert trust.rows[0] == ["a", "0.200", "0.200", "0.200", "0.200"]
    assert "fda run" in render([page], "now")


def test_who_took_part_what_went_wrong_and_what_each_round_cost_are_told(page):
    chart, table = parts_of(page)["Who took part"]
    figure = first(chart)
    domains = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    found = {
        name: [(x, domains[int(y)]) for x, y in points if x == x] for name, points in lines_of(figure).items()
    }
    assert found["not used"] == [(2, "b"), (3, "b")]
    assert found["could not take part"] == [(5, "site-7")] * 2
    assert found["took part"][:4] == [(1, "target"), (3, "target"), (5, "target"), (5, "target")]
    assert (4, "target") in found["no reply"]
    assert table.rows == [
        ["target", "target", 4, 0, 0, 12, "0.5", 0],
        ["a", "source", 5, 0, 0, 50, "0.25", 1],
        ["b", "source", 3, 2, 0, 0, "", 0],
        ["site-7", "", 0, 0, 1, 0, "", 0],
    ]
    (table,) = parts_of(page)["Dropped, missing and other trouble"]
    assert table.rows == [
        ["dropped", "b", "late", 2, "2 to 3"],
        ["evaluation failed", "", "timeout", 1, "5"],
        ["fallback", "b", "too few batches", 1, "1"],
        ["held", "", "no usable reply of the target", 1, "4"],
        ["missing", "site-7", "no answer", 1, "5"],
    ]
    (table,) = parts_of(page)["Rounds"]
    assert column(table, "kB received") == ["2000"] * 5
    assert column(table, "seconds, train") == ["1.000"] * 5
    assert column(table, "kind") == ["", "", "", "held", ""]
    assert column(table, "sources") == [2, 1, 1, 2, 2]
    assert column(table, "accuracy (%)")[-1] == "60.0"


def test_samples_are_what_the_replies_and_the_records_say(troubled):
    troubled[0]["test-examples"] = 90
    troubled[1]["sizes"] = {"target": {"labelled": 50, "validation": 10}, "c": {"train": 7}}
    table = sizes_table(troubled)
    assert table.header == ["domain", "role", "train", "labelled", "validation", "test"]
    assert table.rows == [
        ["target", "target", 50, 50, 10, 90],
        ["a", "source", 300, "", "", ""],
        ["c", "", 7, "", "", ""],
    ]
    for record in troubled:
        record["target"] = None  # of a method that trains the sources alone
    troubled[1]["sizes"] = {"t": {"train": 7}}
    assert [row[:2] for row in sizes_table(troubled).rows] == [["a", "source"], ["t", "target"]]


def test_every_count_of_test_samples_says_of_how_many_patients_they_are():
    sizes = {"t": {"test": 16, "test-units": 8}}
    rounds = [
        {"target": {"domain": "t"}, "sources": {}, "test-examples": 16, "test-units": 8, **more}
        for more in ({"sizes": sizes}, {})
    ]
    assert sizes_table(rounds).rows == [["t", "target", "16 of 8 patients"]]


def test_the_page_of_a_run_that_has_not_begun_or_had_no_trouble_says_so(history):
    page = run_page(RecordedRun("FedAvg", 0, [], rounds=30, done=False), "new")
    assert page.state == "Not done: 0 of 30 rounds; no round is done yet."
    assert not {"Who took part", "Samples", "Rounds"} & parts_of(page).keys()
    (said,) = parts_of(page)["Dropped, missing and other trouble"]
    assert "every reply was used" in said
    assert "no round is done yet" in render([page], "now")


def test_a_regression_shows_the_figures_that_its_records_have(history):
    records = [each | {"r2": 0.5} for each in history(None, None)]
    records[0]["sources"]["a"] = {"domain": "a"}
    page = parts_of(run_page(RecordedRun("FedAvg", 0, records), "r"))
    assert list(page["Results"][1].figures) == ["r2"]
    assert "Weights of the sources" not in page, "the method weighs none"
    page = parts_of(run_page(RecordedRun("FedAvg", 0, records, metric="r2"), "r"))
    assert column(page["Rounds"][0], "R²") == ["0.500"] * 2


def test_the_members_of_a_mixture_have_their_weights_by_round_if_there_are_several(history):
    def shown():
        return parts_of(run_page(RecordedRun("Mixture", 0, records), "m")).get("Members of the mixture")

    records = history(0.5, 0.6, 0.7)
    records[1]["mixture"] = {"members": {}}
    assert shown() is None
    members = {"target": {"weight": 0.25, "test": 0.5}, "blend": {"left-out": "too few"}}
    records[2]["mixture"] = {"members": members}
    chart, table = shown()
    assert [bar.get_width() for bar in first(chart).axes[0].patches] == [0.25]
    assert table.rows == [["target", "0.25", "0.5", ""], ["blend", "", "", "too few"]]
    records[0]["mixture"] = {"members": {"target": {"weight": 0.75}}}
    chart, _ = shown()
    assert lines_of(first(chart))["target"] == [(1, 0.75), (3, 0.25)]


def test_settings_that_are_not_the_default_come_first():
    first, every, notes = settings_table(
        {"dataset": "mnist", "rounds": 30, "outcomes": True, "shift_options": {"std": 0.4}, "later": 1},
        {"rounds": 30, "versions": {"torch": "2"}},
    )
    assert column(first, "setting") == ["dataset", "outcomes", "shift-options", "later"]
    assert column(first, "value") == ["mnist", "yes", "std=0.4", "1"]
    assert len(every.rows) == 5
    assert notes.rows == [["rounds", "30"], ["torch", "2"]]
    assert settings_table({}, {}) == []


# The page of a table of runs


def test_the_page_of_a_table_of_runs_has_a_chart_for_each_place(results):
    accuracies = {("", "FedAvg", "0.2"): (50.0, 54.0), ("", "FedGP", "0.4"): (20.0,)}
    made = results(accuracies, paper={("", "FedAvg", "0.2"): 60.0}, data=["digits"])
    records = made.all_runs[0].history
    records[0]["sources"]["a"] = {"domain": "a", "beta": 0.5, "fallback": "few"}
    records[1]["mixture"] = {"members": {"target": {"weight": 0.25}, "b": {"left-out": "x"}}}
    runs = {
        f"run {i}": replace(run, settings={"dataset": "digits", "seed": run.seed}, notes={"machine": "x"})
        for i, run in enumerate(made.all_runs)
    }
    numbers = Table(["row", "last5"], [["FedAvg", 52.0]])
    page = results_page(made, ["Seeds: 2."], {"All numbers": numbers}, runs, ["fda experiment x"], "3 done")
    assert (page.title, page.state) == ("Accuracy under shift", "3 done")
    assert page.about == "digits; seeds 0, 1 (fewer in some cells); mean ± std over seeds"
    found = parts_of(page)
    assert found["Results"] == ["Seeds: 2.", Table(numbers.header, numbers.rows, "All numbers", folded=True)]
    (dots,), (drawn,) = found["Mean over seeds"], found["By round"]
    assert list(dots.figures) == list(drawn.figures) == ["Noise: 0.2", "Noise: 0.4"]
    assert {52.0, 60.0} <= {x for points in lines_of(first(dots)).values() for x, _ in points}
    assert list(found["Weights of the sources"][0].figures) == ["Noise: 0.2, FedAvg"]
    assert found["Members of the mixture"][0].rows == [["Noise: 0.2, FedAvg", "target", "0.250", 1]]
    assert column(found["Runs"][0], "rounds") == [2, 2, 2]
    short, lines = found["Dropped, missing and other trouble"]
    assert short.rows == [["fallback", "few", 1]]
    assert lines.rows == [["run 0", "fallback", "a", "few", 1, "1"]]
    *_, notes, differ = found["Settings"]
    assert notes.rows == [["machine", "x"]]
    assert column(differ, "seed") == ["0", "1", "0"]
    assert "fda experiment x" in render([page], "now")


def test_runs_share_a_row_of_samples_where_their_numbers_agree(results, history):
    def run(**sources):
        (record,) = history(0.5)
        sizes = {"a": {"train": 300, "test": 9}, "t": {"train": 50, "test": 8}}
        return RecordedRun("FedAvg", 0, [record | {"sizes": sizes, "sources": sources, "target": None}])

    runs = {"trains": run(a={"domain": "a", "examples": 300}), "does not": run()}
    (table,) = parts_of(results_page(results(), [], {}, runs, []))["Samples"]
    assert column(table, "domain") == ["a", "t"]
    assert column(table, "role") == ["source", "target"]


def test_the_page_of_an_experiment_without_a_run_can_be_drawn(results):
    page = results_page(results(), ["Nothing"], {}, {}, ["fda experiment x"])
    assert page.about == "Nothing measured yet"
    assert "Nothing" in render([page], "now")


def test_pages_have_the_most_frequent_class_as_a_line_and_in_words(results, uneven):
    made = uneven(results({("", "FedAvg", "0.2"): (50.0,)}))
    (run,) = made.all_runs
    found = parts_of(results_page(made, [], {}, {}, []))
    label = "most frequent class, 40 test samples"
    for section in ("Mean over seeds", "By round"):
        assert 75.0 in {number for point in lines_of(first(found[section][0]))[label] for number in point}
    run = replace(run, summary=summarise(run.history))
    table, judged, fair, *_, chart = parts_of(run_page(run, "x"))["Results"]
    assert table.records()[0]["most frequent class, accuracy (%)"] == "75.0"
    assert judged.startswith("Not better than")
    assert "AUROC 62.5% (50.0%)" in fair
    assert label in lines_of(first(chart))
