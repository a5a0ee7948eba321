"""The README: as a package index shows it, and the commands that it prints."""

import re
from collections.abc import Callable
from typing import NamedTuple

LINK = r"\[([^\]]*)\]\((?!https?://|#)([^)]*)\)"
"""A Markdown link by a path in the repository."""


class Block(NamedTuple):
    """A block of code: the heading above it, its language, and its text."""

    section: str
    language: str
    code: str


def for_an_index(readme: str, makefile: str, repository: str, version: str) -> str:
    """Return the README as a package index shows it, where there is no checkout.

    Paths become addresses below `repository` at the version's tag. While it is empty, links become their
    text, and pictures are left out. A path to install from becomes the package's name, and ``make demo``
    its command.
    """
    demo = "".join(re.findall(r"^\t\$\(BIN\)/(fda compare .*)$", makefile, flags=re.MULTILINE))
    changes: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        (r"\nmake demo .*\nmake test .*", lambda _: f"\npip install '.[cli]'\n{demo}"),
        (r"\bIn a checkout, with\b", "With"),
        (r"`source .venv/bin/activate` makes .*\n", ""),
        (r"'\.\[([\w,]+)\]'", r"'fda-flower[\1]'"),
        (r"\bpip install \.(?=\s|`)", "pip install fda-flower"),
        (rf"!{LINK}\n*", rf"![\1]({repository}/raw/v{version}/\2)\n\n" if repository else ""),
        (LINK, rf"[\1]({repository}/blob/v{version}/\2)" if repository else r"\1"),
    ]
    for pattern, replacement in changes:
        readme = re.sub(pattern, replacement, readme)
    return readme


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a Markdown page, in order."""
    result, section = [], ""
    for match in re.finditer(r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        section = match[1] or section
        if match[2]:
            result.append(Block(section, match[2], match[3]))
    return result


def commands(code: str) -> list[str]:
    """Return the commands of a block for the shell; a line that ends with a backslash goes on."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
