"""Rows of Parquet files, as text that a CSV file of them would have."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.datasets.folders import unusable
from fda_flower.own_data.reading import Cells, Fault, Reading, check_installed, shortest, text_of

if TYPE_CHECKING:
    import pyarrow as pa

INDEX = "__index_level_0__"
"""The name under which pandas stores an index without a name."""

NO_TEXT = "make numbers, words or dates of it, or leave the column out by --dataset-option ignore=COLUMN"


def read(path: Path, how: Reading) -> Cells:
    """Return the cells of a Parquet file, whose rows are numbered from 1.

    The file is read alone and whole, without the schema of another one. Null and NaN are empty. A column of
    lists, bytes or other cells that a table cannot have is a fault; a file that cannot be read, and an index
    of pandas, raise a `ConfigError`.
    """
    check_installed(path, "pyarrow")
    try:
        header, columns, faults = _content(path, how.comma)
    except Exception as error:  # a damaged file raises errors of many kinds
        what = f"cannot be read as Parquet ({str(error)[:200]})"
        raise unusable("data file", path, what, "write it again, or export it as CSV") from error
    if INDEX in header:
        remedy = "write it without the index (index=False), or name the index"
        raise unusable("data file", path, f"has a column '{INDEX}', an index of pandas", remedy)
    rows = enumerate(chain([header], map(list, zip(*columns, strict=True))))
    return Cells(rows, faults)


def _content(path: Path, comma: bool) -> tuple[list[str], list[list[str]], dict[str, Fault]]:
    """Return the names and the texts of the columns, and the faults."""
    from pyarrow import parquet

    with path.open("rb") as file:
        # Times of 96 bits are nanoseconds by default, in which the year 9999 overflows to 1816.
        table = parquet.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
    table.validate(full=True)
    header, columns, faults = [name.strip() for name in table.column_names], [], dict[str, Fault]()
    for name, column in zip(header, table.columns, strict=True):
        if (write := _writer(column.type, comma)) is not None:
            columns.append([write(cell) for cell in _exact(column).to_pylist()])
        else:
            faults[name] = f"cells of the type {column.type}", NO_TEXT
            columns.append([str(column.type) if there else "" for there in column.is_valid().to_pylist()])
    return header, columns, faults


def _exact(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column whose cells Python's own types hold: no categories by code, and no nanoseconds."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return _exact(column.cast(kind.value_type))
    if getattr(kind, "unit", "") != "ns":
        return column
    short = {pa.types.is_duration: pa.duration("us"), pa.types.is_time: pa.time64("us")}
    shorter = next((other for test, other in short.items() if test(kind)), None)
    return column.cast(shorter or pa.timestamp("us", kind.tz), safe=False)


def _writer(kind: "pa.DataType", comma: bool) -> Callable[[Any], str] | None:
    """Return the function from a column's cells to text; None if they have none."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _writer(kind.value_type, comma)
    if types.is_float32(kind) or types.is_float16(kind):
        return lambda cell: text_of(shortest(cell), comma)
    if types.is_decimal(kind):
        return lambda cell: _plain(cell).replace(".", "," if comma else ".")
    numbers = types.is_boolean, types.is_integer, types.is_floating, types.is_null
    texts = types.is_string, types.is_large_string, types.is_string_view
    times = types.is_date, types.is_timestamp, types.is_time, types.is_duration
    has_text = any(test(kind) for test in (*numbers, *texts, *times))
    return partial(text_of, comma=comma) if has_text else None


def _plain(cell: Decimal | None) -> str:
    """Return an exact decimal as text, without zeros at its end."""
    if cell is None:
        return ""
    digits = format(cell, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
