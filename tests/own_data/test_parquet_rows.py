"""Parquet files, as pyarrow and pandas write them."""

import random
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pandas as pd
import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table_files import read_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def written(tmp_path):
    """Write columns to a file, and return its path."""

    def write(columns):
        parquet.write_table(pa.table(columns), tmp_path / "north.parquet")
        return tmp_path / "north.parquet"

    return write


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1, None, 2**60], ["1", "", str(2**60)]),
        ([1.0, float("nan"), 2.5], ["1", "", "2.5"]),
        (pa.array([0.1, None, 3.0], pa.float32()), ["0.1", "", "3"]),
        ([Decimal("1.50"), None, Decimal("100.00")], ["1.5", "", "100"]),
        ([" a", None, ""], ["a", "", ""]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", "", "a"]),
        ([True, None, False], ["TRUE", "", "FALSE"]),
        ([date(1899, 12, 31), None, date(9999, 12, 31)], ["1899-12-31", "", "9999-12-31"]),
        ([datetime(2024, 1, 2), None, datetime(2024, 1, 2, 3)], ["2024-01-02", "", "2024-01-02 03:00:00"]),
        ([datetime(2024, 1, 2, tzinfo=UTC)] * 3, ["2024-01-02 00:00:00+00:00"] * 3),
        (pa.array([10**18 + 1] * 3, pa.timestamp("ns")), ["2001-09-09 01:46:40"] * 3),
        ([timedelta(hours=26), None, timedelta(minutes=5)], ["26:00:00", "", "0:05:00"]),
        (pa.array([1, None, 5 * 10**9], pa.duration("ns")), ["0:00:00", "", "0:00:05"]),
        ([time(12), None, time(8, 30)], ["12:00:00", "", "08:30:00"]),
        (pa.nulls(3), ["", "", ""]),
    ],
)
def test_cells_are_the_text_of_a_csv_file(written, cells, expected):
    table = read_table(written({"x": cells, "row": [1, 2, 3]}))
    assert table.texts == {"x": expected, "row": ["1", "2", "3"]}
    assert table.lines.tolist() == [1, 2, 3], "rows are counted from 1"


def test_decimals_have_a_comma_if_the_other_files_do(written):
    table = read_table(written({"x": [2.5], "y": [Decimal("1.50")]}), Reading(comma=True))
    assert table.texts == {"x": ["2,5"], "y": ["1,5"]}


@pytest.mark.parametrize("cells", [[[1, 2], None], [{"a": 1}, None], [b"\x00", None]], ids=str)
def test_a_type_that_no_table_has_is_a_fault_of_its_column_only(written, cells):
    fault = read_table(written({"x": cells, "y": [1, 2]})).columns["x"].fault
    assert fault is not None
    assert "cells of the type" in fault[0]
    assert "ignore=" in fault[1]


def test_an_index_of_pandas_is_refused_by_name(tmp_path):
    path = tmp_path / "north.parquet"
    pd.DataFrame({"x": [1, 2]}, index=[3, 4]).to_parquet(path)
    with pytest.raises(ConfigError, match=r"__index_level_0__.*index=False", check=names("data file", path)):
        read_table(path)


def test_a_year_that_nanoseconds_cannot_hold_is_read(tmp_path):
    path = tmp_path / "north.parquet"
    table = pa.table({"x": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))})
    parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    assert read_table(path).texts == {"x": ["9999-12-31"]}


def test_without_the_reader_one_line_says_what_to_install(written, monkeypatch):
    path = written({"x": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pyarrow", check=names("data file", path, "fda-flower[parquet]")):
        read_table(path)


def test_a_damaged_file_raises_our_error_or_is_read(written, tmp_path):
    content = written({"x": list(range(50)), "y": list(map(str, range(50)))}).read_bytes()
    path, draw, refused = tmp_path / "damaged.parquet", random.Random(0), 0
    for _ in range(200):
        damaged = bytearray(content[: draw.randrange(len(content))] if draw.random() < 0.3 else content)
        for _ in range(draw.randrange(1, 5)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            read_table(path)
        except ConfigError as error:
            refused += names("data file", path)(error)
    assert refused
