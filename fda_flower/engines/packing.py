"""Pickles whose arrays lie outside, so that they need not be copied on their way to another process."""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from copyreg import dispatch_table
from pickle import PickleBuffer
from typing import Any

from flwr.app import Array

from fda_flower.wire.arrays import LazyArray, as_array

PROTOCOL = 5
"""The first pickle protocol with out-of-band buffers."""

Packed = tuple[bytes, Sequence[Any]]
"""A pickle, and the buffers outside: `PickleBuffer` at first, any readable ones after a transport."""

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def pack(thing: Any, shared: Mapping[int, int] | None = None) -> Packed:
    """Pickle an object with its arrays outside.

    `shared` has by the ``id`` of objects within it that travel separately their places in `unpack`.
    """
    body, buffers = io.BytesIO(), list[PickleBuffer]()
    kind = _Sharing if shared else _Pickler
    pickler = kind(body, PROTOCOL, buffer_callback=buffers.append)
    pickler.shared = shared or {}
    pickler.dump(thing)
    return body.getvalue(), buffers


def unpack(packed: Packed, shared: Sequence[Any] = ()) -> Any:
    """Return the object of a pickle; its arrays may be read-only views of the buffers."""
    body, buffers = packed
    unpickler = _Unpickler(io.BytesIO(body), buffers=buffers)
    unpickler.shared = shared
    return unpickler.load()


def pack_app(app: Any) -> Packed:
    """Pickle a client app with the functions and data that it holds; arrays lie outside, too.

    After `unpack`, which only maps them, they are read-only.
    """
    from ray import cloudpickle

    body, buffers = io.BytesIO(), list[PickleBuffer]()
    cloudpickle.Pickler(body, PROTOCOL, buffer_callback=buffers.append).dump(app)
    return body.getvalue(), buffers


class _Pickler(pickle.Pickler):
    """A pickler that puts the values of arrays outside."""

    shared: Mapping[int, int]


class _Sharing(_Pickler):
    """One that leaves out what travels separately."""

    def persistent_id(self, thing: Any) -> int | None:
        return self.shared.get(id(thing))


class _Unpickler(pickle.Unpickler):
    shared: Sequence[Any]

    def persistent_load(self, place: int) -> Any:
        return self.shared[place]


def _flowers(array: Array) -> Reduced:
    return _flowers_of, (array.dtype, array.shape, array.stype, PickleBuffer(array.data))


def _flowers_of(dtype: str, shape: tuple[int, ...], stype: str, data: Any) -> Array:
    return Array(dtype, shape, stype, bytes(data))


def _lazy(array: LazyArray) -> Reduced:
    # NumPy pickles the values out of band, and once for all arrays that share them.
    return as_array, (array.to_read(),)


_Pickler.dispatch_table = {**dispatch_table, Array: _flowers, LazyArray: _lazy}
