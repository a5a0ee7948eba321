"""Entries by name: the built-in ones, and those that other installed packages add."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar

from fda_flower.errors import ConfigError

Entry = TypeVar("Entry")


class Registry(MutableMapping[str, Entry]):
    """Entries by name; a package adds its own with an entry point of the group ``fda_flower.GROUP``.

    An entry that is assigned by name is known in this process only.

    Parameters
    ----------
    group : str
        Plural name of the entries, such as ``"methods"``.
    kind : type
        The class of an entry.
    builtin : Mapping
        The entries of this package. They cannot be replaced by an entry point of the same name.

    Examples
    --------
    In the ``pyproject.toml`` of another package, where ``METHOD`` is a `fda_flower.methods.Method`::

        [project.entry-points."fda_flower.methods"]
        median = "my_package.median:METHOD"
    """

    def __init__(self, group: str, kind: type[Entry], builtin: Mapping[str, Entry]) -> None:
        self.group = group
        self._kind = kind
        self._entries = dict(builtin)

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        found = {point.name: point for point in entry_points(group=f"fda_flower.{self.group}")}
        return {name: point for name, point in found.items() if name not in self._entries}

    def __getitem__(self, name: str) -> Entry:
        """Return an entry, loaded on first use; raise a `ConfigError` if its entry point is invalid."""
        if name in self._entries:
            return self._entries[name]
        point = self._added[name]
        try:
            entry = point.load()
        except Exception as error:
            raise ConfigError(
                f"'{name}' of fda_flower.{self.group} cannot be loaded from {point.value}: {error!r}"
            ) from error
        if not isinstance(entry, self._kind):
            raise ConfigError(
                f"'{name}' of fda_flower.{self.group} is {point.value}, not a {self._kind.__name__}: "
                f"let the entry point name a {self._kind.__module__}.{self._kind.__name__}"
            )
        self._entries[name] = entry
        return entry

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the built-in names, then over those added by other packages."""
        yield from dict.fromkeys([*self._entries, *sorted(self._added)])

    def __len__(self) -> int:
        return len({*self._entries, *self._added})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._added


def known_name(name: str, names: Iterable[str]) -> str:
    """Return the one of some names that is meant, in whatever case, and with ``_`` or a space for ``-``.

    Examples
    --------
    >>> known_name("FedDA_Auto", ["fedda", "fedda-auto"]), known_name("fedpg", ["fedgp"])
    ('fedda-auto', 'fedpg')
    """
    valid = tuple(names)
    if name in valid:
        return name
    return next((each for each in valid if _plain(each) == _plain(name)), name)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def resolve(reference: Any) -> Any:
    """Return what ``"module:attribute"`` names, imported on first use; return anything but text as it is.

    Raises
    ------
    ConfigError
        If there is no such module or attribute, or the module cannot be imported.

    Examples
    --------
    >>> resolve("math:pi") == resolve(3.141592653589793)
    True
    """
    if not isinstance(reference, str):
        return reference
    try:
        return resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"'{reference}' cannot be loaded: {error!r}") from error
