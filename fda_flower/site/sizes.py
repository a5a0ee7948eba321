"""How much a record holds: its bytes and the values in them, whatever it says of itself."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fda_flower.arrays import num_bytes, to_read

HEADER = 256
"""More bytes than NumPy's file format has before the values of an array of numbers."""


def values_in(array: Array) -> NDArray[Any] | None:
    """Return the numbers that an array holds; None if its bytes are anything but an ndarray of plain numbers.

    Examples
    --------
    >>> values_in(Array(np.ones(2))).tolist(), values_in(Array("float32", (1,), "numpy.ndarray", b"secret"))
    ([1.0, 1.0], None)
    """
    try:
        values: object = to_read(array)
    except Exception:  # Bytes that another program has written may raise anything.
        return None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        return None
    return values if num_bytes(array) <= values.nbytes + HEADER else None


def numbers_in(record: ArrayRecord) -> int:
    """Return how many floating-point numbers a record of arrays holds; integers, which count, are none."""
    found = (values_in(array) for array in record.values())
    return sum(values.size for values in found if values is not None and values.dtype.kind == "f")


def size_of(record: object) -> int:
    """Return the bytes that a record, a value of one or an array holds, with all names and other texts.

    Examples
    --------
    >>> from flwr.app import ConfigRecord, MetricRecord
    >>> size_of(MetricRecord({"loss": [0.5, 0.25]})), size_of(ConfigRecord({"a": "north", "b": b"123"}))
    (20, 10)
    """
    if isinstance(record, Array):
        return size_of(record.dtype) + size_of(record.stype) + 8 * len(record.shape) + num_bytes(record)
    if isinstance(record, str):
        return len(record.encode())
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, list):
        return sum(map(size_of, record))
    if isinstance(record, RecordDict | dict) or hasattr(record, "items"):
        return sum(size_of(name) + size_of(value) for name, value in record.items())
    return 8
