"""Networks of methods in which nobody trains, with NumPy: rows of fixed features, and a linear layer.

Their arrays have the names, shapes and types of the state dictionaries that `fda_flower.models.split` makes
of the same networks, so both read each other's files. All outputs are float32. A sample's have the same
bits in any company: sums of products are NumPy's own, in float64, since a library's order of summation
depends on the number of samples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fda_flower.errors import ConfigError
from fda_flower.models import AND, formulas

if TYPE_CHECKING:
    from fda_flower.aggregation import Layers

Array = NDArray[np.float32]

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of arrays, by their names."""

Value = TypeVar("Value")

HEAD = ("head.weight", "head.bias")
"""The arrays of the linear layer."""

BATCH = 256
"""Samples that are multiplied at a time; the memory for float64 follows from it."""


@dataclass(frozen=True)
class RowKind:
    """Features of one network: their number, and how they become a row.

    `scaling` is ``"length"``, to unit length with a `power` (see `formulas.unit_rows`), ``"columns"`` (see
    `formulas.plain_columns`), or ``"none"``.
    """

    width: int
    scaling: Literal["none", "columns", "length"] = "none"
    power: float = 1.0


@dataclass(frozen=True)
class LinearNetwork:
    """Features scaled to rows, and a linear layer on them, whose numbers are zero before any fit.

    Attributes
    ----------
    kinds : tuple of RowKind
        The features of each network, one after the other in a sample.
    classes : int
        Number of outputs.
    several : bool
        Whether there are several networks by design: their arrays then have other names, and `kinds`' widths
        are among them.

    Examples
    --------
    >>> network = LinearNetwork((RowKind(2),), classes=3)
    >>> {name: array.shape for name, array in network.layers.items()}
    {'head.weight': (3, 2), 'head.bias': (3,)}
    """

    kinds: tuple[RowKind, ...]
    classes: int
    several: bool = False

    @cached_property
    def layers(self) -> dict[str, NDArray[Any]]:
        """The arrays, read-only, in the order of the state dictionary; messages bring others."""
        arrays: dict[str, NDArray[Any]] = {
            name: np.full(shape, self._powers.get(name, 0.0), np.float32)
            for name, shape in self.shapes.items()
        }
        arrays |= {"rows.widths": np.array(self._widths)} if self.several else {}
        for array in arrays.values():
            array.flags.writeable = False
        return arrays

    @property
    def shapes(self) -> Shapes:
        """The shapes of the arrays, in the same order."""
        shapes: dict[str, tuple[int, ...]] = {"rows.widths": (len(self.kinds),)} if self.several else {}
        shapes |= dict.fromkeys(self._powers, ())
        return shapes | dict(zip(HEAD, ((self.classes, sum(self._widths)), (self.classes,)), strict=True))

    def rows(self, x: NDArray[Any], layers: "Layers") -> Array:
        """Return the rows of samples, shape ``(n, features of all)``; `layers` have the powers."""
        x = flat(x)
        if x.shape[1] != sum(self._widths):
            what = f"the samples have {x.shape[1]} features, and the network reads {sum(self._widths)}"
            raise ConfigError(what, thing="samples", value=x.shape[1])
        ends = np.cumsum(self._widths)[:-1]
        kinds = enumerate(zip(self.kinds, np.split(x, ends, axis=1), strict=True))
        return np.concatenate([self._scaled(number, *each, layers) for number, each in kinds], axis=1)

    def outputs(self, rows: Array, layers: "Layers") -> Array:
        """Return the linear layer's outputs for `rows`, shape ``(n, classes)``."""
        weight, bias = (np.asarray(layers[name], np.float32) for name in HEAD)
        return by_batches(lambda each: products(each, weight) + bias, rows, len(bias))

    def check(self, layers: "Layers") -> None:
        """Raise a `ConfigError` unless arrays are this network's: names, shapes, widths, possible powers.

        Another power than 0.5 or 1 could make rows overflow, depending on their features.
        """
        check_like(layers, self.shapes)
        for name in self._powers:
            if (power := float(layers[name])) not in (0.5, 1.0):
                raise ConfigError(f"{name} is {power:g}", thing=name, value=power, remedy="send 0.5 or 1")
        if self.several and (widths := layers["rows.widths"].tolist()) != self._widths:
            remedy = f"send {self._widths}"
            raise ConfigError(f"rows.widths is {widths}", thing="rows.widths", value=widths, remedy=remedy)

    @property
    def _widths(self) -> list[int]:
        return [kind.width for kind in self.kinds]

    @property
    def _powers(self) -> dict[str, float]:
        """The powers by the names of their arrays."""
        scaled = {self._power(i): kind for i, kind in enumerate(self.kinds) if kind.scaling == "length"}
        return {name: kind.power for name, kind in scaled.items()}

    def _power(self, number: int) -> str:
        return f"rows.kinds.{number}.power" if self.several else "rows.power"

    def _scaled(self, number: int, kind: RowKind, x: Array, layers: "Layers") -> Array:
        if kind.scaling == "none":
            return x
        if kind.scaling == "columns":
            return np.asarray(formulas.plain_columns(x))
        power = float(layers[self._power(number)])
        return by_batches(lambda each: formulas.unit_rows(each, power, np), x, kind.width)


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Fixed features of a table's columns, by one network without its head.

    Attributes
    ----------
    kind : RowKind
        Their number, and how they become a row.
    of : callable
        A function from columns, float32, shape ``(n, columns)``, and arrays to features.
    shapes : Mapping
        The shapes of these arrays, by their names in the network's state dictionary.
    drawn : callable
        Returns the arrays that are the same at every site.
    """

    kind: RowKind
    of: Callable[[Array, "Layers"], Array]
    shapes: Shapes = field(default_factory=dict)
    drawn: Callable[[], "Layers"] = dict


def _columns(columns: int) -> TableFeatures:
    return TableFeatures(RowKind(columns, "columns"), lambda x, _: x)


def _hinges(columns: int) -> TableFeatures:
    knots = formulas.knots_of(columns)
    kind, name = RowKind((1 + len(knots)) * columns), "0.knots"

    def of(x: Array, arrays: "Layers") -> Array:
        return formulas.bends(x, arrays[name], np)  # type: ignore[no-any-return]

    return TableFeatures(kind, of, {name: knots.shape}, lambda: {name: knots})


def _fourier(columns: int) -> TableFeatures:
    number, name = len(formulas.SCALES) * formulas.FREQUENCIES, "0.frequencies"

    def of(x: Array, arrays: "Layers") -> Array:
        return by_batches(lambda each: formulas.waves(products(each, arrays[name]), np), x, 2 * number)

    shapes = {name: (number, columns)}
    return TableFeatures(
        RowKind(2 * number, "length"), of, shapes, lambda: {name: formulas.frequencies_of(columns)}
    )


OF_TABLES: Mapping[str, Callable[[int], TableFeatures]] = {
    "logistic": _columns,
    "hinges": _hinges,
    "fourier": _fourier,
}
"""By network, its fixed features of a number of columns."""


@dataclass(frozen=True, eq=False)
class TableBody:
    """The frozen part of one or several networks for a table; a call returns features of rows.

    Attributes
    ----------
    parts : tuple of TableFeatures
        The features of each network, which are one after the other.
    layers : Mapping
        All arrays by the names in the state dictionary, with a factor of 1 for each network.
    """

    parts: tuple[TableFeatures, ...]
    layers: "Layers"

    @classmethod
    def of(cls, parts: Sequence[TableFeatures], layers: "Layers | None" = None) -> "TableBody":
        """Return the body with its own arrays, or with `layers` of a file.

        Raises a `ConfigError` if these have other names or shapes.
        """
        if layers is None:
            drawn = _state(parts, np.array(1.0, np.float32), lambda part: part.drawn())
            return cls(tuple(parts), drawn)
        check_like(layers, _state(parts, (), lambda part: part.shapes))
        return cls(tuple(parts), layers)

    def __call__(self, x: NDArray[Any]) -> Array:
        """Return features, shape ``(n, features of all)``, of rows of standardised columns."""
        x = flat(x)
        made = []
        for prefix, part in _named(self.parts):
            arrays = {name: self.layers[f"{prefix}network.{name}"] for name in part.shapes}
            made.append(part.of(x, arrays) * np.float32(self.layers[f"{prefix}factor"]))
        return np.concatenate(made, axis=1)


def _named(parts: Sequence[TableFeatures]) -> Iterator[tuple[str, TableFeatures]]:
    """Yield the beginning of the names of each network's arrays, and its features."""
    for number, part in enumerate(parts):
        yield (f"bodies.{number}." if len(parts) > 1 else ""), part


def _state(
    parts: Sequence[TableFeatures], factor: Value, inside: Callable[[TableFeatures], Mapping[str, Value]]
) -> dict[str, Value]:
    """Return what there is of each array of a body: of its factor, and of the ones `inside`."""
    state = dict[str, Value]()
    for prefix, part in _named(parts):
        state[f"{prefix}factor"] = factor
        state |= {f"{prefix}network.{name}": value for name, value in inside(part).items()}
    return state


@dataclass(frozen=True)
class TableNetwork:
    """A network for a table in two: the `body`, None if rows are the columns, and what is fitted."""

    body: TableBody | None
    network: LinearNetwork


def table_network(
    name: str, shape: tuple[int, ...], classes: int, body: "Layers | None" = None
) -> TableNetwork | None:
    """Return the parts of a network, or several, for samples of a `shape`; None if NumPy has not all of it.

    So it is for images, texts, pretrained and users' own networks: `fda_flower.models.split` makes their
    parts. `body` has the body's arrays from a file; a `ConfigError` says that they are another body's.

    Examples
    --------
    >>> parts = table_network("hinges", (13,), classes=2)
    >>> list(parts.body.layers), parts.body(np.zeros((1, 13), np.float32)).shape
    (['factor', 'network.0.knots'], (1, 52))
    """
    names = name.split(AND)
    if len(shape) != 1 or not all(each in OF_TABLES for each in names):
        return None
    parts = [OF_TABLES[each](shape[0]) for each in names]
    network = LinearNetwork(tuple(part.kind for part in parts), classes, several=len(parts) > 1)
    bare = len(parts) == 1 and not parts[0].shapes
    return TableNetwork(None if bare else TableBody.of(parts, body), network)


def products(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``x Wᵀ`` in float64, shape ``(n, rows of W)``; each row has the same bits in any company."""
    wide = (np.asarray(each, np.float64) for each in (x, weight))
    outputs: NDArray[np.float64] = np.einsum("nd,cd->nc", *wide)
    return outputs


def by_batches(function: Callable[[NDArray[np.float64]], NDArray[Any]], x: NDArray[Any], width: int) -> Array:
    """Return a function of samples in float64 as float32, shape ``(n, width)``, in little memory."""
    made = np.empty((len(x), width), np.float32)
    for begin in range(0, len(x), BATCH):
        made[begin : begin + BATCH] = function(x[begin : begin + BATCH].astype(np.float64))
    return made


def flat(x: NDArray[Any]) -> Array:
    """Return samples as rows of float32; images of uint8 are in [0, 1] then."""
    rows = np.ascontiguousarray(x.reshape(len(x), prod(x.shape[1:])), np.float32)
    return rows / np.float32(255) if x.dtype == np.uint8 else rows


def check_like(layers: "Layers", shapes: Shapes) -> None:
    """Raise a `ConfigError` unless arrays have a network's names and `shapes`."""
    if (names := set(layers) ^ set(shapes)) or any(layers[name].shape != shapes[name] for name in shapes):
        name = min(names) if names else next(each for each in shapes if layers[each].shape != shapes[each])
        shape = layers[name].shape if name in layers else None
        what = f"the array '{name}' has the shape {shape}" if shape is not None else f"'{name}' is missing"
        remedy = f"give {dict(shapes)}"
        raise ConfigError(f"{what}, which is not the network's", thing=name, value=shape, remedy=remedy)
