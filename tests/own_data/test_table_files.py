"""How files of tables are found in a folder, and become rows of text with their lines."""

import random
import sys
from contextlib import suppress
from datetime import date, datetime
from zipfile import ZipFile

import pytest
from naming import names

from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError
from fda_flower.own_data import csv_rows
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table_files import files_of, left_out, read_table, tables_in
from fda_flower.own_data.table_options import complete

ROWS = "age,bp,label\n50,120,1\n60,130,0\n70,140,1\n"


def put(folder, name, text=ROWS, encoding="utf-8"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return folder / name


def refused(path, says="", remedy="", **options):
    """Check that a file is refused, with a place and a remedy."""
    with pytest.raises(ConfigError, match=says, check=names("data file", path, remedy)):
        read_table(path, Reading(**options))


# Which files


@pytest.mark.parametrize(
    "name", ["west.CSV", "west.Csv", "west.TSV", "west.XLSX", "west.txt", "west.TXT", "west.SAV"]
)
def test_a_suffix_counts_in_either_case(tmp_path, name):
    path = put(tmp_path, name)
    assert tables_in(tmp_path) == [path]
    assert files_of(tmp_path, "west") == {"": path}
    assert files_of(tmp_path, "West") == {}


def test_tables_of_all_suffixes_count_and_texts_only_alone(tmp_path):
    paths = [put(tmp_path, name) for name in ("a.csv", "b.tsv", "c.xlsx", "readme.txt")]
    assert tables_in(tmp_path) == paths[:3]
    assert files_of(tmp_path, "readme") == {"": paths[3]}, "if it is named"
    put(tmp_path, "a.txt")
    assert files_of(tmp_path, "a") == {"": paths[0]}


@pytest.mark.parametrize("columns", ["age,bp,label", "label;bp;age", '"bp","age","label"'])
def test_a_text_with_the_columns_of_the_tables_is_not_left_out(tmp_path, columns):
    for folder in (tmp_path, tmp_path / "train", tmp_path / "test"):
        put(folder, "a.tsv", ROWS.replace(",", "\t"))
        put(folder, "readme.txt", "age, bp and label are columns\n")
    options = {"domains": "a"}
    assert complete(tmp_path, {}, None) == options
    path = put(tmp_path / "test", "north.TXT", f"\n{columns}\n1,2,3\n")
    with pytest.raises(
        ConfigError, match=r"columns of 'a\.tsv'", check=names("data file", path, "north.csv")
    ):
        complete(tmp_path, {}, None)
    assert complete(tmp_path, options, None) == {}, "if the domains are named"


@pytest.mark.parametrize("other", ["A.csv", "a.CSV", "a.tsv", "a.xlsx", "a.parquet", "A.dta"])
def test_a_domain_has_one_file(tmp_path, other):
    put(tmp_path, "a.csv")
    put(tmp_path, other)
    with pytest.raises(ConfigError, match=other, check=names("domain", "a", "keep one")):
        files_of(tmp_path, "a")


def test_a_name_is_the_same_in_both_forms_of_its_letters(tmp_path):
    path = put(tmp_path, "ko\u0308ln.csv")
    assert files_of(tmp_path, "k\u00f6ln") == {"": path}


def test_what_is_no_table_is_left_out_by_name(tmp_path):
    for name in ("a.csv", "b.xls", "c.por", "readme.txt", "~$a.xlsx", ".hidden"):
        put(tmp_path, name)
    put(tmp_path / "west", "west.csv")
    assert [path.name for path in left_out(tmp_path)] == [
        "b.xls",
        "c.por",
        "readme.txt",
        "west",
        "~$a.xlsx",
    ]
    for part in ("train", "test"):
        put(tmp_path / part, "a.csv")
    assert {path.name for path in left_out(tmp_path)} >= {"a.csv", "west"}
    assert not left_out(tmp_path / "west")
    assert not left_out(tmp_path / "nowhere")


# Text


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"'])
def test_the_separator_that_excels_first_line_names_counts(tmp_path, first):
    table = read_table(put(tmp_path, "a.csv", f"{first}\r\nage, in years;label\r\n50;1\r\n"))
    assert (table.header, table.lines.tolist()) == (["age, in years", "label"], [3])
    table = read_table(put(tmp_path, "a.csv", "sep=:\nage:label\n50:1\n"))
    assert table.texts == {"age": ["50"], "label": ["1"]}


@pytest.mark.parametrize("blank", ["\n", "\r\n\r\n", " \n", ";;\n", "\n;;\n"])
def test_blank_lines_above_the_header_count_as_lines_only(tmp_path, blank):
    table = read_table(put(tmp_path, "a.csv", f"{blank}x;y;label\n1;2;0\n"))
    assert table.header == ["x", "y", "label"]
    assert table.lines.tolist() == [blank.count("\n") + 2]


@pytest.mark.parametrize(
    "title",
    ["Export of ward 3", "Export of ward 3, all", "encoding=utf-8", "# from, a, long, list", '"Ward, 3"'],
)
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_line_above_the_header_is_named_in_place_of_those_below(tmp_path, title, separator):
    path = put(tmp_path, "a.csv", f"{title}\n{ROWS.replace(',', separator)}")
    refused(path, "in line 1, its header", "remove the lines above")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('age,label\n"50,1\n60,0\n', 2),
        ('age,label\n50,1\n"60,0\n70,1\n80,"0"\n', 3),
        ('age,label\n50,"1\n60,0\n70,1\n', 2),
        ('age,label\n50,"1"0\n', 2),
        ('"age,label\n50,1\n', 1),
        (f'note,label\n"x,1\n{"y,0" * 50_000}\n', 2),
    ],
)
def test_a_stray_quotation_mark_is_named_by_its_line(tmp_path, text, line):
    refused(put(tmp_path, "a.csv", text), f"a quotation mark in line {line} ", "write it twice")


def test_a_row_of_several_lines_is_named_by_its_first(tmp_path):
    problems = Problems()
    path = put(tmp_path, "a.csv", 'note,label\n"a\nb",1\n"c\n\n",1,2\nd,0\n')
    assert read_table(path, problems=problems).lines.tolist() == [2, 7]
    assert [each.line for each in problems.entries.values()] == [4]


def test_a_header_in_the_midst_is_named(tmp_path):
    refused(put(tmp_path, "a.csv", f"\ufeff{ROWS}\ufeff{ROWS}"), "line 5", "remove the line")


def test_several_marks_of_a_file_are_none_of_its_text(tmp_path):
    assert read_table(put(tmp_path, "a.csv", f"\ufeff\ufeff{ROWS}")).header == ["age", "bp", "label"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("option", ["", "cp1252"])
def test_a_files_mark_counts_more_than_the_option(tmp_path, encoding, option):
    assert (
        read_table(put(tmp_path, "a.csv", "größe,label\n1,0\n", encoding), Reading(option)).header[0]
        == "größe"
    )


def test_bytes_of_another_encoding_are_named_with_their_line(tmp_path):
    refused(put(tmp_path, "a.csv", "a,label\n1,0\nö,1\n", "cp1252"), "line 3 ", "'encoding', such as cp1252")
    refused(put(tmp_path, "a.csv", "größe,label\n1,0\n"), "UTF-8", "leave out", encoding="cp1252")
    refused(put(tmp_path, "a.csv", ROWS), "nope", "correct the option", encoding="nope")


def test_utf_16_without_its_mark_is_named_and_read_with_the_option(tmp_path):
    path = put(tmp_path, "a.csv", ROWS, "utf-16-le")
    refused(path, "NUL", "encoding=utf-16-le")
    assert read_table(path, Reading("utf-16-le")).header == ["age", "bp", "label"]


def test_apostrophes_around_cells_are_named(tmp_path):
    refused(put(tmp_path, "a.csv", "'age';'label'\n'50';'1'\n"), "apostrophes .* line 1", "quotation marks")


@pytest.mark.parametrize("first", csv_rows.NO_TEXT)
def test_a_file_of_another_format_under_the_name_of_a_text_is_named(tmp_path, first):
    refused(put(tmp_path, "a.csv", first + b"\0"), *csv_rows.NO_TEXT[first])


def test_spaces_before_quotation_marks_are_none_of_a_cell(tmp_path):
    table = read_table(put(tmp_path, "a.csv", '"age", "note"\n50, "x, y"\n'))
    assert table.texts == {"age": ["50"], "note": ["x, y"]}


# Rows


def test_rows_of_empty_cells_remain_until_they_are_not_wanted(tmp_path):
    path = put(tmp_path, "a.csv", "age,bp\n50,120\n,\n\n , \n60,\n")
    table = read_table(path)
    assert table.texts == {"age": ["50", "", "", "60"], "bp": ["120", "", "", ""]}
    assert table.lines.tolist() == [2, 3, 5, 6]
    assert table.filled.texts == {"age": ["50", "60"], "bp": ["120", ""]}
    assert table.filled.lines.tolist() == [2, 6]


def test_blank_lines_within_a_single_column_are_rows(tmp_path):
    table = read_table(put(tmp_path, "a.csv", 'age\n50\n\n60\n""\n\n\n'))
    assert table.texts == {"age": ["50", "", "60", ""]}
    assert table.lines.tolist() == [2, 3, 4, 5]


def test_a_column_without_a_name_remains_if_it_has_a_cell(tmp_path):
    text = "age,label,,\n50,1,,\n60,0,,\n"
    assert read_table(put(tmp_path, "a.csv", text)).header == ["age", "label"]
    assert read_table(put(tmp_path, "a.csv", text.replace("0,,", "0,,7"))).texts[""] == ["", "7"]
    refused(put(tmp_path, "a.csv", "age,label\n50,1,\n60,0,\n"), "line 1, its header", "name")


# Excel


@pytest.fixture
def workbook(tmp_path):
    """Write sheets of rows into a file."""
    openpyxl = pytest.importorskip("openpyxl")

    def write(*sheets):
        book = openpyxl.Workbook()
        for at, rows in enumerate(sheets):
            sheet = book.create_sheet(f"sheet {at}") if at else book.active
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    return write


CELLS = [
    [None],
    ["age", "bp", "day", "seen", "ill", "id"],
    [50, 120.5, date(2024, 2, 1), datetime(2024, 2, 1, 8, 30), True, "007"],
    [None],
    [60.0, 1e-5, None, None, False],
    [None, None],
]


def test_the_cells_of_an_excel_file_are_as_in_csv(workbook):
    table = read_table(workbook([], CELLS))
    assert table.lines.tolist() == [3, 4, 5]
    assert table.texts == {
        "age": ["50", "", "60"],
        "bp": ["120.5", "", "1e-05"],
        "day": ["2024-02-01", "", ""],
        "seen": ["2024-02-01 08:30:00", "", ""],
        "ill": ["TRUE", "", "FALSE"],
        "id": ["007", "", ""],
    }
    assert read_table(table.path, Reading(comma=True)).texts["bp"] == ["120,5", "", "1e-05"]
    refused(workbook([["age"], [50, 60], [70]]), "2 columns in line 2", "the header has 1")


def rewritten(path, copy, old, new):
    """A copy of a workbook with other words in its files."""
    with ZipFile(path) as book, ZipFile(copy, "w") as other:
        for name in book.namelist():
            other.writestr(name, book.read(name).replace(old, new))
    return copy


def test_a_formula_is_its_value(workbook, tmp_path):
    path = rewritten(workbook([["age", "bp"], [50, "=A2+1"]]), tmp_path / "b.xlsx", b"<v></v>", b"<v>51</v>")
    assert read_table(rewritten(path, tmp_path / "c.xlsx", b"<v />", b"<v>51</v>")).texts == {
        "age": ["50"],
        "bp": ["51"],
    }


@pytest.mark.parametrize(
    ("sheets", "says", "remedy"),
    [
        ([CELLS, [["x"]]], "sheet 1", "leave one"),
        ([[["a", "b"], [1, "=A2+1"]]], "line 2, column 2", "save it"),
        ([[]], "is empty", "header"),
    ],
)
def test_what_a_csv_file_would_not_have_is_named(workbook, sheets, says, remedy):
    refused(workbook(*sheets), says, remedy)


def hide(path, state="visible", rows=(), columns=()):
    """Hide the second sheet, and rows and columns of the first."""
    book = pytest.importorskip("openpyxl").load_workbook(path)
    book.worksheets[-1].sheet_state = state
    for row in rows:
        book.worksheets[0].row_dimensions[row].hidden = True
    for column in columns:
        book.worksheets[0].column_dimensions[column].hidden = True
    book.save(path)
    return path


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_a_hidden_sheet_is_read_if_it_is_named_and_refused_if_it_could_be_the_table(workbook, state):
    path = hide(workbook(CELLS, [["yes"], ["no"]]), state)
    table = read_table(path)
    assert (len(table), table.notes) == (3, (f"'{path}' has hidden sheets that are not read: sheet 1",))
    assert read_table(path, Reading(sheet="sheet 1")).texts == {"yes": ["no"]}
    assert not read_table(hide(workbook(CELLS, []), state)).notes
    for sheets in ([], CELLS), (CELLS, [CELLS[1], [1]]):
        refused(hide(workbook(*sheets), state), "hidden sheet, sheet 1", "sheet=NAME")


@pytest.mark.parametrize("place", ["B3:B4", "A4:B4"])
def test_merged_cells_below_the_header_are_named(workbook, place):
    path = workbook([[], ["age", "bp"], [50, 120], [60, 130], [70, 140]])
    book = pytest.importorskip("openpyxl").load_workbook(path)
    book.active.merge_cells("F3:G4")  # without a value
    book.save(path)
    assert len(read_table(path)) == 3
    book.active.merge_cells(place)
    book.save(path)
    refused(path, f"merged cells, {place}", "fill in each")


def test_an_option_names_the_sheet(workbook):
    path = workbook(CELLS, [["x"], [1]], [["x"], ["=A2"]])
    assert read_table(path, Reading(sheet="sheet 1")).texts == {"x": ["1"]}
    with pytest.raises(ConfigError, match=r"a.xlsx \(sheet sheet 2\)' has a formula"):
        read_table(path, Reading(sheet="sheet 2"))
    refused(path, "no sheet 'Sheet 1' .did you mean 'sheet 1'", "'sheet'", sheet="Sheet 1")


@pytest.mark.parametrize(
    ("hidden", "says"),
    [
        ({"rows": [5, 3]}, "2 hidden rows, the first in line 3:"),
        ({"rows": [2]}, "1 hidden row, the first in line 2:"),
        ({"columns": "BD"}, "2 hidden columns, the first B:"),
        (
            {"rows": [5], "columns": "F"},
            "1 hidden row, the first in line 5, and 1 hidden column, the first F:",
        ),
        ({"rows": [1, 4, 9], "columns": ["H", "XFD"]}, ""),
    ],
)
def test_hidden_rows_and_columns_with_cells_are_named(workbook, hidden, says):
    path = hide(workbook(CELLS), **hidden)
    if says:
        refused(path, says, "delete what is hidden")
    else:
        assert len(read_table(path)) == 3


def test_rows_that_other_programs_have_hidden_are_named_too(workbook, tmp_path):
    path = hide(workbook(CELLS), rows=[3])
    for old, new in ((b'hidden="1"', b'hidden="true"'), (b'<row r="3" ', b"<row ")):
        refused(rewritten(path, tmp_path / "b.xlsx", old, new), "1 hidden row, the first in line 3:", "show")


def test_a_damaged_excel_file_and_a_missing_reader_are_named(workbook, monkeypatch, tmp_path):
    path = workbook(CELLS)
    for data in (b"PK", path.read_bytes()[:900], path.read_bytes()[:-300], ROWS.encode()):
        refused(put(tmp_path, "b.xlsx", data), "cannot be read", "export the sheet as CSV")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    refused(path, "openpyxl", "fda-flower[excel]")


@pytest.mark.parametrize("files", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_any_damage_to_an_excel_file_is_our_error_or_none(files, workbook, tmp_path):
    content, path, draw = workbook(CELLS, [["x"], [1]]).read_bytes(), tmp_path / "b.xlsx", random.Random(0)
    parts = {
        name: ZipFile(tmp_path / "a.xlsx").read(name) for name in ZipFile(tmp_path / "a.xlsx").namelist()
    }
    for number in range(files):
        if number % 2:
            damaged = bytearray(content[: draw.randrange(len(content))] if number % 4 == 1 else content)
            damaged[draw.randrange(len(damaged)) :][:1] = b"\xff"
            path.write_bytes(damaged)
        else:
            name = draw.choice([*parts])
            part = bytearray(parts[name])
            for _ in range(3):
                part[draw.randrange(len(part))] = draw.choice(b'\0<>"9xA')
            with ZipFile(path, "w") as book:
                for other, text in parts.items():
                    book.writestr(other, bytes(part) if other == name else text)
        with suppress(ConfigError):
            read_table(path, Reading(sheet="sheet 1" if number % 3 else ""))
