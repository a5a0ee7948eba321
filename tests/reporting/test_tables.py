"""Tables and headings in Markdown: a name from outside is shown as it is."""

import html

import pytest
from markdown_it import MarkdownIt

from fda_flower.reporting.tables import Cell, Heading, Markdown, Table, latex, markdown

NAMES = [
    *("a | b", "a \\| b", "a\\", "*a*", "**a**", "_a_", "__a__", "a_b_c", "~~a~~", "`a`", "<b>a</b>"),
    *("[a](b)", "![a](b)", "&lt;", "&#42;", "# a", "a #", "FedDA_Auto", "-", "-1.5", "1. a", "C:\\[1]"),
]


def rendered(text):
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_of_markdown_sees_the_name(name):
    shown = html.escape(name, quote=False)
    assert rendered(str(Heading(name))) == f"<h1>{shown}</h1>\n".replace("h1", "h2")
    table = Table([name, f"β of {name}"], [[name, Cell(name, best=True, below=name)]])
    text = rendered(str(table)).replace("&quot;", '"')
    assert f"<th>{shown}</th>" in text
    assert f">β of {shown}</th>" in text
    assert f"<td>{shown}</td>" in text
    assert f"><strong>{shown}</strong><br>{shown}</td>" in text


def test_a_line_feed_breaks_no_table_and_no_heading():
    table = Table(["a\nb"], [["c\r\nd"], ["e\u2028f"]])
    assert str(table).splitlines() == ["| a b |", "| --- |", "| c d |", "| e f |"]
    assert markdown([Heading("a\nb", 1)]) == "# a b\n"


def test_a_cell_that_is_markdown_already_stays():
    assert str(Table(["a"], [[Markdown("[b](c.md)")]])).splitlines()[-1] == "| [b](c.md) |"


def test_csv_has_the_digits_that_the_standard_deviation_deserves():
    header = ["row", "a", "a_std", "paper"]
    rows = [["x", 74.37037, 1.11849, 2 / 3], ["y", 51.24, 23.8, None], ["z", 0.123456789, None, 70]]
    lines = Table(header, rows).csv().splitlines()[1:]
    assert lines == ["x,74.4,1.1,0.666667", "y,51.2,23.8,", "z,0.123457,,70"]
    assert Table(["rate"], [[1 / 3]]).csv() == f"rate\n{1 / 3}\n", "settings keep all digits"
    assert Table(["=a"], [["@SUM(1)"], [-0.5]]).csv() == "'=a\n'@SUM(1)\n-0.5\n", "no formulas"


def test_latex_has_the_tables_and_escapes_what_latex_reads_in_another_way():
    table = Table(
        ["A_b", "100%"], [[r"†\~", Cell("1.0", best=True, below="paper 2, -1")], ["μ = -5, 0-1", None]]
    )
    assert latex([Heading("A", 2), "text & more", table]).splitlines() == [
        "% A",
        "",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"A\_b & 100\% \\",
        r"\midrule",
        r"$^\dagger$\textbackslash{}\textasciitilde{} & \textbf{1.0; paper 2, $-$1} \\",
        r"$\mu$ = $-$5, 0-1 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
