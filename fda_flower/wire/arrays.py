"""Flower's arrays as they are within one process: they become bytes only when somebody asks for the bytes."""

import math
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
    """What copies of an array share: the ndarray, which is a view of the bytes once they are asked for."""

    array: NDArray[Any] | None
    data: bytes | None = None


class LazyArray(Array):
    """Flower's `Array` of an ndarray, whose bytes are made when they are first asked for.

    It is read, sent and stored as Flower's own, with the same bytes; pickled, it is Flower's own. It has the
    values that the ndarray, of numbers, had when it was made: an array that nobody can write into is shared
    (see `frozen`), any other is copied.

    Examples
    --------
    >>> array = LazyArray(np.ones((2, 3), np.float32))
    >>> array.num_bytes, len(array.data), array.data == Array(np.ones((2, 3), np.float32)).data
    (152, 152, True)
    """

    # Flower writes the name of the class into what it sends.
    __qualname__ = Array.__qualname__

    def __init__(self, ndarray: NDArray[Any]) -> None:
        content = _Content(frozen(ndarray))
        self.__dict__.update(dtype=_name(ndarray.dtype), shape=ndarray.shape, stype=STYPE, _content=content)

    @property
    def data(self) -> bytes:
        """The bytes, in NumPy's file format."""
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
        """The length of `data`, which is not made for it."""
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
        """Return the ndarray itself, which cannot be written into."""
        array = self.__dict__["_content"].array
        return super().numpy() if array is None else array

    def copied(self) -> "LazyArray":
        """Return an array of its own with the same content."""
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
    """Return an array that nobody can write into: this one if it is one, otherwise a copy."""
    if not array.flags.writeable and (array.flags.owndata or _is_of_bytes(array)):
        return array
    copy = np.array(array, order="A")
    copy.flags.writeable = False
    return copy


def freeze(layers: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return arrays that nobody will write into from here on, so that `frozen` need not copy them."""
    for array in layers.values():
        array.flags.writeable = False
    return layers


def as_array(value: Any) -> Array:
    """Return an ndarray as a `LazyArray`; anything else is for Flower's `Array` to take or refuse."""
    lazy = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return LazyArray(value) if lazy else Array(value)


def to_read(array: Array) -> NDArray[Any]:
    """Return the values of an array, perhaps as an ndarray that cannot be written into.

    A `ValueError` says that its bytes are not an ndarray (NumPy also reads archives), not as many as their
    header says, or not of the declared type and shape. Arrays of Flower's older API declare neither.
    """
    if not isinstance(array, LazyArray):
        _check_length(array.data)
    values: Any = array.to_read() if isinstance(array, LazyArray) else array.numpy()
    if not isinstance(values, np.ndarray):
        raise ValueError(f"its bytes are {type(values).__name__}, expected an ndarray")
    found, declared = (_name(values.dtype), values.shape), (array.dtype, tuple(array.shape))
    if array.dtype and found != declared:
        raise ValueError(f"it is declared as {declared}, and its bytes are {found}")
    return values


def copied(record: ArrayRecord) -> ArrayRecord:
    """Return a record of its own with copies of the arrays, which share their values."""
    own = {
        name: array.copied() if isinstance(array, LazyArray) else Array(*_fields(array))
        for name, array in record.items()
    }
    return filled(ArrayRecord(), own)


def num_bytes(array: Array) -> int:
    """Return the length of an array's bytes, without making them."""
    return array.num_bytes if isinstance(array, LazyArray) else len(array.data)


def count_bytes(record: ArrayRecord) -> int:
    """Return what Flower's ``count_bytes`` does, without making the bytes."""
    return sum(len(name) + num_bytes(array) for name, array in record.items())


def _check_length(data: bytes) -> None:
    """Raise a `ValueError` unless a file has its header's values: NumPy takes the memory for them unseen."""
    if not data.startswith(npy.MAGIC_PREFIX):
        return
    file = BytesIO(data)
    if (version := npy.read_magic(file)) != (1, 0):
        raise ValueError(f"its bytes have the format {version}, expected (1, 0)")
    shape, _, dtype = npy.read_array_header_1_0(file)
    told, sent = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if told != sent and not dtype.hasobject:
        raise ValueError(f"its header tells of {told} bytes, and {sent} follow")


def _values_of(data: bytes, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array's values where they lie in its bytes; itself if they lie in another order."""
    if not array.size or not array.flags.forc:
        return array
    values = np.frombuffer(data, array.dtype, offset=len(data) - array.nbytes)
    return values.reshape(array.shape, order="F" if array.flags.fnc else "C")


def _is_of_bytes(array: NDArray[Any]) -> bool:
    """Whether an array's values are those of a ``bytes``, which never change."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array.base, bytes)


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


@lru_cache(maxsize=4096)
def _header_length(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> int:
    """Return the bytes before the values in NumPy's file format."""
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    buffer = BytesIO()
    npy.write_array_header_1_0(buffer, header)
    return len(buffer.getvalue())


def _fields(array: Array) -> tuple[str, tuple[int, ...], str, bytes]:
    return array.dtype, tuple(array.shape), array.stype, array.data
