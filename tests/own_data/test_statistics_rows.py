"""Files of SPSS, Stata and SAS, as pyreadstat writes and reads them."""

import random
import re
import sys
from datetime import date, datetime

import pandas as pd
import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.own_data import statistics_rows
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table_files import read_table

pyreadstat = pytest.importorskip("pyreadstat")

SEX = {"variable_value_labels": {"sex": {1: "male", 2: "female"}}}
WRITERS = {".sav": "write_sav", ".zsav": "write_sav", ".dta": "write_dta", ".xpt": "write_xport"}


@pytest.fixture
def written(tmp_path):
    """Write columns to a file, and return its path."""

    def write(suffix, columns, **how):
        path = tmp_path / f"north{suffix}"
        how |= {"compress": True} if suffix == ".zsav" else {}
        getattr(pyreadstat, WRITERS[suffix])(pd.DataFrame(columns), str(path), **how)
        return path

    return write


def texts(path, **how):
    """The cells of a file whose columns have no fault."""
    table = read_table(path, Reading(**how))
    assert [each.fault for each in table.columns.values()] == [None] * len(table.columns)
    return table.texts


def fault(path, **how):
    """What is wrong with the first column, and the remedy."""
    return ": ".join(next(iter(read_table(path, Reading(**how)).columns.values())).fault or ())


@pytest.mark.parametrize("suffix", WRITERS)
def test_numbers_words_and_what_is_missing(written, suffix):
    path = written(suffix, {"AGE": [1.0, 2.5, None], "WARD": ["a ", "", "c"]})
    assert texts(path) == {"AGE": ["1", "2.5", ""], "WARD": ["a", "", "c"]}
    assert texts(path, comma=True)["AGE"] == ["1", "2,5", ""]
    assert read_table(path).lines.tolist() == [1, 2, 3]


@pytest.mark.parametrize("suffix", [".sav", ".dta"])
def test_a_code_with_a_label_is_the_label(written, suffix):
    assert texts(written(suffix, {"sex": [1, 2, 1]}, **SEX)) == {"sex": ["male", "female", "male"]}


def test_labels_of_other_values_alone_leave_numbers(written):
    path = written(".sav", {"age": [41.0, 77.5]}, variable_value_labels={"age": {999: "unknown"}})
    assert texts(path) == {"age": ["41", "77.5"]}


@pytest.mark.parametrize(
    ("codes", "labels", "says"),
    [
        ([1, 2, 3, 4], {1: "male", 2: "female"}, r"without a label \(3, 4\) among"),
        ([1, 2], {1: "male", 2: " male"}, r"one label \(1, 2\)"),
        ([1, 1], {1: "male", 2: "male"}, r"one label \(1, 2\)"),
        ([1, 2], {1: "male", 2: " "}, r"an empty label \(2\)"),
    ],
)
def test_values_whose_words_do_not_tell_them_apart_are_named(written, codes, labels, says):
    path = written(".sav", {"sex": codes}, variable_value_labels={"sex": labels})
    assert re.search(says, fault(path))


def test_declared_codes_are_refused_until_the_user_says_what_they_are(written):
    ranges = {"dose": [{"lo": 97, "hi": 99}, 0], "ward": ["x"]}
    path = written(".sav", {"dose": [0, 5, 98, 98], "ward": list("axbb")}, missing_ranges=ranges)
    assert "declares as missing (0 in 1 row, 98 in 2 rows): say what" in fault(path)
    assert texts(path, declared="missing") == {"dose": ["", "5", "", ""], "ward": ["a", "", "b", "b"]}
    assert texts(path, declared="value") == {"dose": ["0", "5", "98", "98"], "ward": list("axbb")}


def test_a_letter_of_stata_is_one_missing_value_only(written):
    path = written(".dta", {"dose": [1.0, "a", None, 2.0]}, missing_user_values={"dose": ["a"]})
    assert texts(path) == {"dose": ["1", "", "", "2"]}


def test_decimals_of_32_bits_are_as_people_wrote_them(tmp_path):
    pd.DataFrame({"x": pd.array([0.1, 2.5], "float32")}).to_stata(tmp_path / "a.dta", write_index=False)
    assert texts(tmp_path / "a.dta") == {"x": ["0.1", "2.5"]}


@pytest.mark.parametrize("suffix", [".sav", ".dta", ".xpt"])
def test_dates_are_dates_and_times_have_their_hours(written, suffix):
    when = {"DAY": [date(1899, 12, 31), date(2024, 2, 29)], "AT": [datetime(2024, 1, 2, 3, 4, 5), None]}
    assert texts(written(suffix, when)) == {
        "DAY": ["1899-12-31", "2024-02-29"],
        "AT": ["2024-01-02 03:04:05", ""],
    }


@pytest.mark.parametrize(
    ("suffix", "shown"),
    [
        *((".dta", f"%t{kind}") for kind in "mqwhyC"),
        *((".sav", kind) for kind in ("TIME8", "DTIME20", "WKDAY9", "MONTH9", "MOYR8", "QYR6")),
        *((".xpt", kind) for kind in ("TIME8", "HHMM5", "MONYY7", "YYQ6", "YEAR4", "MMYY7")),
    ],
)
def test_months_durations_and_times_of_day_are_faults(written, suffix, shown):
    path = written(suffix, {"WHEN": [700.0, 701.0]}, variable_format={"WHEN": shown})
    assert f"format {shown.rstrip('.')}" in fault(path)


def test_a_date_beyond_the_calendar_and_whole_numbers_that_are_not_exact_are_faults(written):
    path = written(".dta", {"day": [1e9, 1.0]}, variable_format={"day": "%td"})
    assert "after the year 9999" in fault(path)
    assert "1 number of 2^53 or more" in fault(written(".sav", {"patient": [1.0, 2.0**53]}))


def test_without_the_reader_one_line_says_what_to_install(written, monkeypatch):
    path = written(".sav", {"x": [1]})
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    remedy = "pip install 'fda-flower[statistics]', or export it as CSV"
    with pytest.raises(ConfigError, match="pyreadstat", check=names("data file", path, remedy)):
        read_table(path)


def test_a_reader_that_dies_or_does_not_end_is_our_error(written, monkeypatch):
    path = written(".sav", {"x": [1]})
    monkeypatch.setitem(statistics_rows.READERS, ".sav", ("read_nothing", {}))
    with pytest.raises(ConfigError, match="cannot be read", check=names("data file", path, "CSV")):
        read_table(path)
    monkeypatch.setattr(statistics_rows, "LEAST_SECONDS", 0)
    with pytest.raises(ConfigError, match="takes too long", check=names("data file", path)):
        read_table(path)


@pytest.mark.parametrize(
    ("suffix", "files"),
    [(".sav", 5), *(pytest.param(each, 200, marks=pytest.mark.slow) for each in (*WRITERS, ".sas7bdat"))],
)
def test_a_damaged_file_raises_our_error_or_is_read(written, tmp_path, suffix, files):
    columns = {"AGE": [1.0, 2.5, None] * 20, "WARD": ["a", "", "c"] * 20}
    content = written(suffix if suffix != ".sas7bdat" else ".sav", columns).read_bytes()
    path, draw, refused = tmp_path / f"damaged{suffix}", random.Random(0), 0
    for _ in range(files):
        damaged = bytearray(content[: draw.randrange(len(content))] if draw.random() < 0.5 else content)
        for _ in range(draw.randrange(1, 9)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.choice([0, 127, 255, draw.randrange(256)])
        path.write_bytes(damaged)
        try:
            read_table(path)
        except ConfigError as error:
            refused += names("data file", path)(error)
    assert refused
