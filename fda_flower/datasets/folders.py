"""Folders of the user's own data: what is found in them, and what is refused."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from fda_flower.errors import ConfigError, invalid
from fda_flower.files import read_toml
from fda_flower.names.options import read_options, split_names

LISTED = 10
"""The most classes that a message lists."""

PARTS = ("train", "test")
"""Folders of an existing split of the samples."""

PARTS_OF_ONE = frozenset({*PARTS, "training", "testing", "val", "valid", "validation", "eval", "holdout"})
"""Names of files and folders that hold parts of one data set rather than domains."""

NOT_IN_NAMES = ",="
"""Characters with a meaning in options, invalid in names."""


def unusable(thing: str, value: object, what: str, remedy: str) -> ConfigError:
    """Return the error for data that cannot be used, whose message begins with ``the THING 'VALUE'``."""
    return ConfigError(f"the {thing} '{value}' {what}", thing=thing, value=value, remedy=remedy)


def own_folder(dataset: str, data_dir: Path | None) -> Path:
    """Return the folder that holds the domains; raise a `ConfigError` if none is given."""
    if data_dir is None:
        what = f"data set '{dataset}' needs the folder that holds its domains"
        remedy = "give it with --data-dir (FDA_DATA_DIR) or, at a site, as data-dir in the node configuration"
        raise ConfigError(what, thing="data set", value=dataset, remedy=remedy)
    return data_dir.expanduser()


def check_part(thing: str, name: str) -> str:
    """Return a name that is one part of a path below a folder; else raise a `ConfigError` on `thing`.

    Examples
    --------
    >>> check_part("domain", "St. Mary's, 2nd ward")
    "St. Mary's, 2nd ward"
    """
    has_control = any(unicodedata.category(each) == "Cc" for each in name)
    if (
        not name
        or name.startswith(".")
        or {"/", "\\"} & {*name}
        or PureWindowsPath(name).drive
        or has_control
    ):
        why = "which is no plain name of a file or folder"
        remedy = "use neither slashes nor control characters, and no full stop at the beginning"
        raise invalid(thing, name, remedy, why)
    return name


def read_domains(text: str, below: bool = False) -> tuple[str, ...]:
    """Parse the option ``domains``; raise a `ConfigError` for a name that could lead out of the folder.

    With `below`, a domain may be in a folder below it, as in ``wards/north``.
    """
    what = "option 'domains'"
    names = split_names(what, text)
    for name in names:
        for part in name.split("/") if below else [name]:
            check_part(what, part)
    return tuple(names)


def is_here(folder: Path, options: Mapping[str, Any]) -> bool:
    """Return whether a folder exists here; raise a `ConfigError` if it must, to find the domains."""
    if not folder.is_dir() and "domains" not in options:
        names = "name the domains with the option 'domains', separated by commas"
        remedy = f"correct it, or, if the data are elsewhere, {names}"
        raise invalid("data-dir", folder, remedy, "which is not a folder on this machine")
    return folder.is_dir()


SYSTEM = (
    *("__macosx", "@eadir", "$recycle.bin", "lost+found", "system volume information"),
    *("desktop.ini", "dicomdir", "ehthumbs.db", "thumbs.db"),
)
"""Files and folders that systems add, in lower case; others are hidden."""


OPTIONS_FILE = "fda.toml"
"""The file in a folder of data with options of its data set."""


def is_shown(name: str) -> bool:
    """Return whether a file or folder is neither hidden nor of the system, nor holds the options.

    Raise a `ConfigError` for a name that Python cannot read as text: records and messages could not hold it.
    """
    if any("\ud800" <= char <= "\udfff" for char in name):
        what = "has a name that is not UTF-8, or this terminal's language settings cannot read it"
        raise unusable("file or folder", name, what, "rename it, or set PYTHONUTF8=1")
    return not name.startswith(".") and name.lower() not in (*SYSTEM, OPTIONS_FILE)


def options_folder(place: Path | None) -> Path | None:
    """Return the folder of data, or of a file of data, whose `OPTIONS_FILE` counts; None without it."""
    if place is not None and place.is_file():
        return place.parent
    return place if place is not None and place.is_dir() else None


def options_in(folder: Path | None, build: Callable[..., Any]) -> dict[str, Any]:
    """Return the options in the `OPTIONS_FILE` of a folder, or of a file of data; empty without one.

    Raise a `ConfigError` that names the file unless `build`, the data set's loader, takes them.
    """
    folder = options_folder(folder)
    if folder is None:
        return {}
    for other in folder.iterdir():
        if other.name.lower() == OPTIONS_FILE != other.name:
            raise unusable("options file", other, "would not be read", f"call it {OPTIONS_FILE}")
    path = folder / OPTIONS_FILE
    if not path.is_file():
        return {}
    _, given = read_toml("options file", path)
    return dict(read_options(f"'{path}'", build, given, {"data_dir", "seed"}))


def visible(place: Path) -> list[Path]:
    """Return a folder's entries by name, those that `is_shown` accepts."""
    paths = sorted(path for path in place.iterdir() if is_shown(path.name))
    for path in paths:
        if not path.exists():
            raise unusable("file", path, "is a link to nothing", "restore its target, or remove it")
    return paths


def found_names(dataset: str, folder: Path, names: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Return the domains in a folder by name.

    Raise a `ConfigError` if there is none, if they are parts of one data set, or if a name has a character
    that options cannot hold.
    """
    domains = tuple(sorted(names))
    if not domains:
        there = ", ".join(path.name for path in visible(folder)[:10]) if folder.is_dir() else ""
        what = f"data set '{dataset}' finds no domain in '{folder}' (it contains {there or 'nothing'})"
        remedy = f"put {wanted} there, or give another folder with --data-dir (FDA_DATA_DIR)"
        raise ConfigError(what, thing="data set", value=dataset, remedy=remedy)
    if len(domains) > 1 and {name.casefold() for name in domains} <= PARTS_OF_ONE:
        what = f"holds {', '.join(domains)}, which are parts of one data set, not domains"
        remedy = "name them after the sites, or, if these are sites, list them in the option 'domains'"
        raise unusable("data folder", folder, what, remedy)
    for name in domains:
        if any(mark in name for mark in NOT_IN_NAMES) or name != name.strip():
            what = f"in '{folder}' has a comma, an equals sign or a space around it in its name"
            raise unusable("domain", name, what, "rename it")
    return domains


def read_size(text: str) -> tuple[int, int]:
    """Parse the height and width of an option ``image_size``.

    Examples
    --------
    >>> read_size("64"), read_size("48x64")
    ((64, 64), (48, 64))
    """
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) > 0 for side in sides):
        remedy = "give pixels, such as 64, or height and width, such as 48x64"
        raise invalid("option 'image_size'", text, remedy, "it must be at least 1")
    return int(sides[0]), int(sides[-1])
