"""The parts of an HTML page, and what they say of records."""

import json
import re
from typing import Any

import pytest

from fda_flower.reporting.figures import style
from fda_flower.reporting.html import Chart, Code, Page, Section, charts, render
from fda_flower.reporting.html.page import settings_table
from fda_flower.reporting.html.results_page import results_page
from fda_flower.reporting.html.run_page import (
    describe_rounds,
    faults,
    presence,
    rounds_table,
    run_page,
    sizes_table,
    weight_series,
)
from fda_flower.reporting.results import RunView
from fda_flower.reporting.tables import Cell, Heading, Table

NASTY = "</script><script>alert(1)</script>"


def page_of(*parts):
    return Page("A page", "digits; seed 0", [Section("Part", parts)])


def part(page, title):
    """The parts of a page's section."""
    return next(section.parts for section in page.sections if section.title == title)


def titles(page):
    return [section.title for section in page.sections]


def figure(chart, name=None):
    return json.loads(chart.figures[name] if name else next(iter(chart.figures.values())))


def column(table, name):
    return [row[table.header.index(name)] for row in table.rows]


def test_a_page_is_one_file_with_the_script_once_and_nothing_to_load():
    drawn = Chart({"a": charts.curves({"A": [[1.0, 2.0]]}, {"A": style(0)}, "y")})
    text = render([page_of(drawn, drawn), page_of(Code(["fda run"]))], "made today")
    assert text.count("plotly.js v") == 1
    ours = text[: text.index("<script>")] + text[text.index("</head>") :]
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", ours)
    assert "made today" in text
    assert len(re.findall(r'data-chart="(\d+)"', text)) == 2
    assert 'data-chart="1"' in text
    assert 'data-chart="2"' in text


def test_names_from_records_are_escaped_everywhere():
    drawn = Chart({NASTY: charts.curves({NASTY: [[1.0]]}, {NASTY: style(0)}, NASTY)}, NASTY)
    parts: list[Any] = [
        drawn,
        Table([NASTY], [[NASTY]], NASTY),
        Table([], [[Cell(NASTY, below=NASTY)]]),
        Heading(NASTY),
        NASTY,
        Code([NASTY]),
    ]
    text = render([Page(NASTY, NASTY, [Section(NASTY, parts)], NASTY)], NASTY)
    assert "<script>alert" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text


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


def test_curves_have_bands_for_few_names_and_gaps_where_rounds_are_unknown():
    nan = float("nan")
    names = [f"m{i}" for i in range(7)]
    drawn = json.loads(charts.curves({"A": [[1.0, 2.0], [3.0, 2.0]]}, {"A": style(0)}, "y"))["data"]
    assert [trace.get("fill") for trace in drawn] == [None, "toself"]
    assert drawn[0]["y"] == [2, 2]
    assert drawn[0]["legendgroup"] == drawn[1]["legendgroup"] == "A"
    many = {name: [[1.0], [2.0]] for name in names}
    assert len(json.loads(charts.curves(many, {n: style(0) for n in names}, "y"))["data"]) == 7
    gap = json.loads(charts.curves({"A": [[1.0, 1.0, nan, nan, nan, 1.0]]}, {"A": style(0)}, "y"))["data"]
    assert gap[0]["y"] == [1, 1, None, 1]


def test_the_axis_holds_all_rounds_also_if_one_alone_was_measured():
    nan = float("nan")
    drawn = json.loads(charts.curves({"A": [[nan, nan, nan, 1.0]]}, {"A": style(0)}, "y"))
    assert drawn["layout"]["xaxis"]["range"] == [0.5, 4.5]
    assert drawn["layout"]["xaxis"]["dtick"] == 1


def test_dots_show_the_papers_values_beside_what_was_measured():
    values = {"A": (70.0, 72.0), "B": (), "C": (50.0,)}
    drawn = json.loads(charts.dots(values, {n: style(0) for n in values}, "x", {"A": 71.5, "B": 3.0}))["data"]
    assert [(trace["y"], trace["x"]) for trace in drawn] == [(["A"], [71]), (["A"], [71.5]), (["C"], [50])]
    assert drawn[1]["marker"]["symbol"] == "circle-open"
    assert drawn[0]["error_x"]["array"] == [pytest.approx(2**0.5)]


@pytest.fixture
def troubled(history, record):
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


def test_who_took_part_is_a_square_a_round_with_the_reason_of_what_was_not_used(troubled):
    (chart,) = presence(troubled)
    found = {trace["name"]: (trace["x"], trace["y"], trace["customdata"]) for trace in figure(chart)["data"]}
    assert found["not used"] == ([2, 3], ["b", "b"], ["late", "late"])
    assert found["could not take part"] == ([5], ["site-7"], ["no answer"])
    assert (4, "target") in zip(*found["no reply"][:2], strict=True)
    (table,) = describe_rounds(troubled)
    assert column(table, "domain") == ["target", "a", "b", "site-7"]
    assert column(table, "role") == ["target", "source", "source", ""]
    assert column(table, "took part") == [4, 5, 3, 0]
    assert column(table, "not used") == [0, 0, 2, 0]
    assert column(table, "could not") == [0, 0, 0, 1]
    assert column(table, "steps") == [12, 50, 0, 0]
    assert column(table, "last train loss") == ["0.5", "0.25", "", ""]
    assert column(table, "clipped") == [0, 1, 0, 0]


def test_faults_are_grouped_by_reason_with_their_rounds(troubled):
    table = faults(troubled)
    assert table.rows == [
        ["dropped", "b", "late", 2, "2 to 3"],
        ["evaluation failed", "", "timeout", 1, "5"],
        ["fallback", "b", "too few batches", 1, "1"],
        ["held", "", "no usable reply of the target", 1, "4"],
        ["missing", "site-7", "no answer", 1, "5"],
    ]


def test_without_trouble_this_is_said(history):
    said = faults(history(0.1))
    assert isinstance(said, str)
    assert "every reply was used" in said
    assert presence([]) == []
    assert describe_rounds([]) == []


def test_a_line_a_round_tells_bytes_and_seconds(troubled):
    table = rounds_table(troubled, "accuracy")
    assert column(table, "kB received") == ["2000"] * 5
    assert column(table, "seconds, train") == ["1.000"] * 5
    assert column(table, "kind") == ["", "", "", "held", ""]
    assert column(table, "sources") == [2, 1, 1, 2, 2]
    assert column(table, "accuracy (%)")[-1] == "60.0"
    troubled[1]["r2"] = 0.25
    assert column(rounds_table(troubled[1:2], "r2"), "R²") == ["0.250"]


def test_samples_are_what_the_replies_and_the_records_say(troubled):
    troubled[0]["test-examples"] = 90
    troubled[1]["sizes"] = {"target": {"labelled": 50, "validation": 10}, "c": {"train": 7}}
    table = sizes_table(troubled)
    assert table.header == ["domain", "role", "trained on", "test", "labelled", "validation", "train"]
    assert table.rows == [
        ["target", "target", 50, 90, 50, 10, ""],
        ["a", "source", 300, "", "", "", ""],
        ["c", "", "", "", "", "", 7],
    ]


def test_the_domain_that_never_trains_is_the_target(troubled):
    for record in troubled:
        record["target"] = None
    troubled[1]["sizes"] = {"t": {"train": 7}}
    assert [row[:2] for row in sizes_table(troubled).rows] == [["a", "source"], ["t", "target"]]


def test_the_page_of_a_run_has_its_curves_weights_and_what_went_wrong(troubled):
    settings = {"dataset": "digits", "shift": "rotate", "method": "fedda-auto", "seed": 3}
    page = run_page(
        RunView("FedDA_Auto", 3, troubled, settings, {"device": "cpu"}, 5, True, ["fda run"]), "first"
    )
    assert page.about == "FedDA_Auto; digits, rotate; seed 3"
    assert page.state == "Done: 5 of 5 rounds; target accuracy 60.0%."
    assert titles(page) == [
        *(
            "Results",
            "Weights of the sources",
            "Who took part",
            "Dropped, missing and other trouble",
            "Samples",
        ),
        *("Rounds", "Settings", "Repeat it"),
    ]
    table, chart = part(page, "Results")
    assert (column(table, "last5, accuracy (%)"), column(table, "best, accuracy (%)")) == (["40.0"], ["60.0"])
    assert column(table, "MB received") == ["10.0"]
    assert list(chart.figures) == ["Target test accuracy (%)", "loss"]
    assert figure(chart)["data"][0]["y"] == pytest.approx([20, 30, 40, 50, 60])
    weights, trust = part(page, "Weights of the sources")
    assert [trace["name"] for trace in figure(weights)["data"]] == ["a", "b"]
    assert trust.rows[0] == ["a", "0.200", "0.200", "0.200", "0.200"]
    assert "fda run" in render([page], "now")


def test_the_page_of_a_run_that_has_not_begun_says_so():
    page = run_page(RunView("FedAvg", 0, [], rounds=30, done=False), "new")
    assert page.state == "Not done: 0 of 30 rounds; no round is done yet."
    assert "no round is done yet" in render([page], "now")


def test_a_regression_shows_the_figures_that_its_records_have(history):
    records = history(None, None)
    for each in records:
        each["r2"] = 0.5
    _, chart = part(run_page(RunView("FedAvg", 0, records), "r"), "Results")
    assert list(chart.figures) == ["r2"]


def test_the_members_of_a_mixture_have_their_weights_by_round_if_there_are_several(history):
    records = history(0.5, 0.6, 0.7)
    members = {"target": {"weight": 0.25, "test": 0.5}, "blend": {"left-out": "too few"}}
    records[2]["mixture"] = {"members": members}
    (table,) = part(run_page(RunView("Mixture", 0, records), "m"), "Members of the mixture")
    assert table.rows == [["target", "0.25", "0.5", ""], ["blend", "", "", "too few"]]
    records[0]["mixture"] = {"members": {"target": {"weight": 0.75}}}
    chart, _ = part(run_page(RunView("Mixture", 0, records), "m"), "Members of the mixture")
    assert figure(chart)["data"][0]["x"] == [1, 3]
    assert figure(chart)["data"][0]["y"] == [0.75, 0.25]


def test_a_mixture_whose_target_reports_no_members_has_no_section_of_them(history):
    records = history(0.5)
    records[0]["mixture"] = {"members": {}}
    assert "Members of the mixture" not in titles(run_page(RunView("Mixture", 0, records), "m"))


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


def view_of(cell, **more):
    return RunView(cell.place[1], cell.seed, cell.history, {"dataset": "digits", "seed": cell.seed}, **more)


def test_the_page_of_a_table_of_runs_has_a_chart_for_each_place(results, history):
    accuracies = {("", "FedAvg", "0.2"): (50.0, 54.0), ("", "FedGP", "0.4"): (20.0,)}
    made = results(accuracies, paper={("", "FedAvg", "0.2"): 60.0}, data=["digits"])
    made.cells[0].history[0]["sources"]["a"] = {"domain": "a", "beta": 0.5, "fallback": "few"}
    made.cells[0].history[1]["mixture"] = {"members": {"target": {"weight": 0.25}, "b": {"left-out": "x"}}}
    views = {f"run {i}": view_of(cell, notes={"machine": "x86"}) for i, cell in enumerate(made.cells)}
    numbers = Table(["row", "last5"], [["FedAvg", 52.0]])
    page = results_page(made, ["Seeds: 2."], {"All numbers": numbers}, views, ["fda experiment x"], "3 done")
    assert (page.title, page.state) == ("Accuracy under shift", "3 done")
    assert page.about == "digits; seeds 0, 1 (fewer in some cells); mean ± std over seeds"
    assert part(page, "Results") == [
        "Seeds: 2.",
        Table(numbers.header, numbers.rows, "All numbers", folded=True),
    ]
    (dots,), (curves,) = part(page, "Mean over seeds"), part(page, "By round")
    assert list(dots.figures) == list(curves.figures) == ["Noise: 0.2", "Noise: 0.4"]
    assert [trace["x"] for trace in figure(dots)["data"]] == [[52], [60]]
    (weights,) = part(page, "Weights of the sources")
    assert list(weights.figures) == ["Noise: 0.2, FedAvg"]
    (members,) = part(page, "Members of the mixture")
    assert members.rows == [["Noise: 0.2, FedAvg", "target", "0.250", 1]]
    (runs,) = part(page, "Runs")
    assert column(runs, "rounds") == [2, 2, 2]
    short, lines = part(page, "Dropped, missing and other trouble")
    assert short.rows == [["fallback", "few", 1]]
    assert lines.rows == [["run 0", "fallback", "a", "few", 1, "1"]]
    tables = part(page, "Settings")
    assert [table.title for table in tables] == [
        *("All 1 settings", "Versions and machine", "In which settings the runs differ")
    ]
    differ = tables[-1]
    assert column(differ, "seed") == ["0", "1", "0"]
    assert "fda experiment x" in render([page], "now")


def test_the_page_of_an_experiment_without_a_run_can_be_drawn(results):
    page = results_page(results(), "# T\n\nNothing", {}, {}, ["fda experiment x"])
    assert page.about == "Nothing measured yet"
    assert "Nothing" in render([page], "now")


def test_weights_are_those_of_any_method_that_has_them(history):
    fixed = history(0.5, betas={"a": 0.5}, estimated=False)
    assert weight_series([fixed, history(0.5)]) == {"a": [[0.5], [pytest.approx(float("nan"), nan_ok=True)]]}
    assert weight_series([history(0.5)]) == {}
