"""Flower arrays that serialise lazily: within one process they never become bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from fda_flower.wire.internals import filled

STYPE = Array(np.zeros(0)).stype
"""Flower's name for NumPy's file format."""


@dataclass(slots=True)
class _Content:
    """State that copies of an array share. Once `data` exists, the ndarray is a view of it."""

    array: NDArray[Any] | None
    data: bytes | None = None


class LazyArray(Array):
    """Flower's `Array` of an ndarray, serialised on first access to `data`.

    Reading, sending and storing it gives the same bytes as Flower's class, and pickling turns it into one. It
    keeps the values that the ndarray has at construction: a read-only ndarray is shared (see `frozen`), any
    other is copied.

    Examples
    --------
    >>> array = LazyArray(np.ones((2, 3), np.float32))
    >>> array.num_bytes, len(array.data), array.data == Array(np.ones((2, 3), np.float32)).data
    (152, 152, True)
    """

    # Flower serialises the name of the class.
    __qualname__ = Array.__qualname__

    def __init__(self, ndarray: NDArray[Any]) -> None:
        content = _Content(frozen(ndarray))
        self.__dict__.update(dtype=_name(ndarray.dtype), shape=ndarray.shape, stype=STYPE, _content=content)

    @property
    def data(self) -> bytes:
        """The bytes in NumPy's file format."""
        content = self.__dict__["_content"]
        if content.data is None:
            content.data = Array(content.array).data
            content.array = _values_of(content.data, content.array)
        data: bytes = content.data
        return data

    @data.setter
    def data(self, value: bytes) -> None:
        self.__dict__["_content"] = _Content(None, value)

    @property
    def num_bytes(self) -> int:
        """The length of `data`, computed without serialising."""
        content = self.__dict__["_content"]
        if content.data is not None:
            return len(content.data)
        array = content.array
        return _header_length(array.dtype, array.shape, array.flags.fnc) + int(array.nbytes)

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the ndarray."""
        array = self.__dict__["_content"].array
        return super().numpy() if array is None else array.copy(order="A")

    def to_read(self) -> NDArray[Any]:
        """Return the ndarray itself, read-only."""
        array = self.__dict__["_content"].array
        return super().numpy() if array is None else array

    def copied(self) -> "LazyArray":
        """Return a new array that shares the content."""
        other = LazyArray.__new__(LazyArray)
        own = self.__dict__
        other.__dict__.update({key: own[key] for key in ("dtype", "shape", "stype", "_content")})
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and _fields(self) == _fields(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, _fields(self)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself if it is immutable, otherwise a read-only copy."""
    if not array.flags.writeable and (array.flags.owndata or _is_of_bytes(array)):
        return array
    copy = np.array(array, order="A")
    copy.flags.writeable = False
    return copy


def freeze(layers: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Make arrays read-only in place, so that `frozen` need not copy them."""
    for array in layers.values():
        array.flags.writeable = False
    return layers


def as_array(value: Any) -> Array:
    """Wrap an ndarray as a `LazyArray`; pass any other value to Flower's `Array`."""
    lazy = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return LazyArray(value) if lazy else Array(value)


def to_read(array: Array) -> NDArray[Any]:
    """Return the values of an array; they may be read-only.

    Raises
    ------
    ValueError
        If the bytes are not an ndarray (NumPy also reads archives), are more or fewer than their header
        declares, or differ from the declared type and shape. Arrays of Flower's older API declare neither.
    """
    if not isinstance(array, LazyArray):
        _check_length(array.data)
    values: Any = array.to_read() if isinstance(array, LazyArray) else array.numpy()
    if not isinstance(values, np.ndarray):
        raise ValueError(f"its bytes are {type(values).__name__}, expected an ndarray")
    actual, declared = (_name(values.dtype), values.shape), (array.dtype, tuple(array.shape))
    if array.dtype and actual != declared:
        raise ValueError(f"it is declared as {declared}, but its bytes are {actual}")
    return values


def copied(record: ArrayRecord) -> ArrayRecord:
    """Copy a record; the copied arrays share their values."""
    own = {
        name: array.copied() if isinstance(array, LazyArray) else Array(*_fields(array))
        for name, array in record.items()
    }
    return filled(ArrayRecord(), own)


def to_record(layers: Mapping[str, Any]) -> ArrayRecord:
    """Return arrays as Flower's record, with their current values; see `LazyArray`."""
    return filled(ArrayRecord(), {name: as_array(array) for name, array in layers.items()})


def to_layers(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the arrays of Flower's record; they may be read-only."""
    return {name: to_read(array) for name, array in record.items()}


def num_bytes(array: Array) -> int:
    """Return the length of an array's bytes, without serialising it."""
    return array.num_bytes if isinstance(array, LazyArray) else len(array.data)


def count_bytes(record: ArrayRecord) -> int:
    """Return the same as Flower's ``count_bytes``, without serialising."""
    return sum(len(name) + num_bytes(array) for name, array in record.items())


def _check_length(data: bytes) -> None:
    """Raise a `ValueError` if the data do not have the size in their header; NumPy allocates it unchecked."""
    if not data.startswith(npy.MAGIC_PREFIX):
        return
    file = BytesIO(data)
    if (version := npy.read_magic(file)) != (1, 0):
        raise ValueError(f"its bytes have the format {version}, expected (1, 0)")
    shape, _, dtype = npy.read_array_header_1_0(file)
    declared, sent = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if declared != sent and not dtype.hasobject:
        raise ValueError(f"its header declares {declared} bytes, but {sent} follow")


def _values_of(data: bytes, array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of an array's values in its bytes, or the array itself if its memory order differs."""
    if not array.size or not array.flags.forc:
        return array
    values = np.frombuffer(data, array.dtype, offset=len(data) - array.nbytes)
    return values.reshape(array.shape, order="F" if array.flags.fnc else "C")


def _is_of_bytes(array: NDArray[Any]) -> bool:
    """Return whether an array is a view of a ``bytes`` object, which is immutable."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array.base, bytes)


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


@lru_cache(maxsize=4096)
def _header_length(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> int:
    """Return the number of bytes before the values in NumPy's file format."""
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    buffer = BytesIO()
    npy.write_array_header_1_0(buffer, header)
    return len(buffer.getvalue())


def _fields(array: Array) -> tuple[str, tuple[int, ...], str, bytes]:
    return array.dtype, tuple(array.shape), array.stype, array.data
