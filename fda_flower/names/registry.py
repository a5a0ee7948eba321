"""Registries of named parts, names that look alike, and references such as ``module:function``."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar

from fda_flower.errors import ConfigError
from fda_flower.names.notes import warn

Entry = TypeVar("Entry")


class Registry(MutableMapping[str, Entry]):
    """Entries by name; a package adds its own with an entry point of the group ``fda_flower.GROUP``.

    An assigned entry is known in this process only. An entry point cannot replace one of `builtin`, this
    package's own entries, which messages suggest. `group` is their plural name, such as ``"methods"``, and
    `kind` their class.
    """

    def __init__(self, group: str, kind: type[Entry], builtin: Mapping[str, Entry]) -> None:
        self.group = group
        self._kind = kind
        self.builtin = builtin
        self._entries = dict(builtin)

    @cached_property
    def _points(self) -> dict[str, dict[str, EntryPoint]]:
        """The entry points of other packages by their names and values."""
        points: dict[str, dict[str, EntryPoint]] = {}
        for point in entry_points(group=f"fda_flower.{self.group}"):
            points.setdefault(point.name, {})[point.value] = point
        return points

    @property
    def added(self) -> tuple[str, ...]:
        """The names that other packages add, in order."""
        return tuple(sorted(self._points.keys() - self.builtin.keys()))

    def usable(self) -> dict[str, Entry]:
        """Return the entries by name; one whose entry point is invalid is left out, and logged."""
        entries = {}
        for name in self:
            try:
                entries[name] = self[name]
            except ConfigError as error:
                warn(f"left out: {error}")
        return entries

    def __getitem__(self, name: str) -> Entry:
        """Return an entry, loaded on first use; raise a `ConfigError` if its entry point is invalid.

        It is invalid if several packages add the name. That a package adds a built-in name is logged once.
        """
        called, kind = f"'{name}' of fda_flower.{self.group}", self._kind
        if name in self.builtin and (points := self._points.pop(name, None)):
            warn(f"{called} is fda-flower's own, not {_listed(points)}: rename that entry point")
        if name in self._entries:
            return self._entries[name]
        point, *others = self._points[name].values()
        if others:
            message = f"{called} is added by several packages, {_listed(self._points[name])}"
            remedy = "uninstall all but one, or rename their entry points"
            raise ConfigError(message, thing=str(name), remedy=remedy)
        try:
            entry = point.load()
        except Exception as error:
            message = f"{called} cannot be loaded from {point.value}: {error!r}"
            raise ConfigError(message, thing=str(name)) from error
        if not isinstance(entry, kind):
            remedy = f"let the entry point name a {kind.__module__}.{kind.__name__}"
            message = f"{called} is {point.value}, not a {kind.__name__}"
            raise ConfigError(message, thing=str(name), remedy=remedy)
        self._entries[name] = entry
        return entry

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the built-in names, then over those added by other packages."""
        yield from dict.fromkeys([*self._entries, *self.added])

    def __len__(self) -> int:
        return len({*self._entries, *self.added})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.added


def _listed(points: Mapping[str, EntryPoint]) -> str:
    packages = {value: point.dist.name if point.dist else point.module for value, point in points.items()}
    return " and ".join(f"{value} of {package}" for value, package in sorted(packages.items()))


def known_name(name: str, names: Iterable[str]) -> str:
    """Return the matching one of `names`, in any case and with ``_`` or a space for ``-``; else `name`."""

    def plain(each: str) -> str:
        return each.strip().lower().replace("_", "-").replace(" ", "-")

    valid = tuple(names)
    return name if name in valid else next((each for each in valid if plain(each) == plain(name)), name)


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of different names that people read as the same: in another case, spacing or mark.

    Marks are dashes, invisible characters and a full stop at the end; an underscore is a space.

    Examples
    --------
    >>> alike(["Age", "sex", "age", "blood  pressure", "blood pressure"])
    [('Age', 'age'), ('blood  pressure', 'blood pressure')]
    """
    read: dict[str, list[str]] = {}
    for name in sorted({*names}):
        read.setdefault(_as_read(name), []).append(name)
    return [tuple(group) for group in read.values() if len(group) > 1]


def _as_read(name: str) -> str:
    text = unicodedata.normalize("NFKC", name).casefold()
    kinds = ((each, unicodedata.category(each)) for each in text.replace("_", " "))
    plain = "".join("-" if kind == "Pd" else each for each, kind in kinds if kind != "Cf")
    return " ".join(plain.split()).rstrip(".") or plain


def check_alike(what: str, names: Iterable[str]) -> None:
    """Raise a `ConfigError` if two of these names look alike."""
    for group in alike(names):
        listed = " and ".join(f"'{name}'" for name in group)
        message = f"the {what} {listed} differ only in case, spacing or marks"
        raise ConfigError(message, thing=what, value=", ".join(group), remedy="rename them to one name")


def resolve(reference: Any) -> Any:
    """Import and return ``"module:attribute"``; return anything but text unchanged.

    Raise a `ConfigError` if it cannot be imported.
    """
    if not isinstance(reference, str):
        return reference
    try:
        return resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"'{reference}' cannot be loaded: {error!r}", thing=str(reference)) from error
