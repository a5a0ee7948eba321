"""A node configuration as text: read whole, since Flower leaves out what it does not understand.

Flower looks for parts ``NAME=VALUE`` in the text and ignores all else. So ``dp-noise = 2.0`` with blanks
would be a site without noise.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError, invalid, printable
from fda_flower.files import read_toml
from fda_flower.wire.internals import node_config

OPTION = "--node-config"
PAIR = re.compile(r"""([^\s=#'"]+)=('[^']*'|"[^"]*"|[^\s#'"]+)""")
"""A name and its value, with or without quotation marks."""


def read_node_config(text: str) -> dict[str, Any]:
    """Return the node configuration in a text ``NAME=VALUE NAME=VALUE``, or in the file ``NAME.toml``.

    Raises
    ------
    ConfigError
        If a part of it would be left out, is no number, truth value or text, or is read otherwise by Flower.
    """
    if text.endswith(".toml"):
        _, tables = read_toml("node configuration", Path(text).expanduser())
        found = _only_once(_flattened(tables))
    else:
        found = _only_once(_pairs_in(text))
    try:
        theirs = node_config(text)
    except Exception as error:  # of several packages
        raise invalid(OPTION, text, "give it another way", f"which Flower cannot read: {error!r}") from error
    for name in found.keys() | theirs.keys():
        if (own := repr(found.get(name))) != (other := repr(theirs.get(name))):
            raise invalid(
                OPTION, name, "give the value another way", f"which is {own} here, and {other} in Flower"
            )
    return found


def _pairs_in(text: str) -> Iterator[tuple[str, Any]]:
    if unread := " ".join(PAIR.sub(" ", text).split()):
        if "=" not in text:
            raise invalid("node configuration", text, "call it NAME.toml", "which Flower takes for text")
        remedy = (
            "write NAME=VALUE without blanks around =, and text in quotation marks, or give a file NAME.toml"
        )
        raise invalid(OPTION, printable(unread), remedy, "which Flower leaves out")
    for part in PAIR.finditer(text):
        try:
            table = tomllib.loads("{} = {}".format(*part.groups()))
        except tomllib.TOMLDecodeError as error:
            remedy = "give a number, true, false, or text in quotation marks"
            raise invalid(OPTION, part[0], remedy, "which cannot be read") from error
        yield from _flattened(table)


def _flattened(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{before}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{before}{key}", value
        else:
            remedy = "give a number, true, false, or text; names in a list are a text with commas"
            raise invalid(f"entry '{before}{key}' of the node configuration", value, remedy)


def _only_once(entries: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            why = f"the node configuration has two values of '{name}', {found[name]!r} and {value!r}"
            raise ConfigError(why, thing=name, value=value, remedy="give it once")
        found[name] = value
    return found
