"""A site's journal of what its ledger was charged, next to the log of what it has sent.

A ledger that is restored from a backup has forgotten the releases since. The journal counts them a second
time, in a file from which nothing is ever removed, so that the two disagree.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fda_flower.files import PRIVATE, append_line, as_file_name, write_atomically
from fda_flower.site.config import LEDGER
from fda_flower.site.log import SENT, read_log
from fda_flower.wire import protocol

JOURNAL = "spent.jsonl"
"""Name of the journal in a node's ``state-dir``, after the node's own name."""

TAIL = 1 << 16
"""Bytes at the end of a journal that hold its last line."""

Charge = Mapping[str, Any]


@dataclass(frozen=True)
class Journal:
    """The charges of a ledger, a line each: its ``number``, from 1, and the entry ``charged``."""

    path: Path

    @classmethod
    def of(cls, ledger: Path) -> "Journal":
        """Return the journal of a ledger's file, in the same folder."""
        return cls(ledger.with_name(ledger.name.removesuffix(LEDGER) + JOURNAL))

    def last(self) -> int:
        """Return the number of the last charge; 0 if there is none. A line cut by a crash is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                lines = _lines(file.read())
        except FileNotFoundError:
            return 0
        return int(lines[-1]["number"]) if lines else 0

    def charges(self) -> list[Charge]:
        """Return the entries charged, in order."""
        try:
            return [line["charged"] for line in _lines(self.path.read_bytes())]
        except FileNotFoundError:
            return []

    def note(self, number: int, charge: Charge) -> None:
        """Append a charge; raise an `OSError` unless it is written whole."""
        append_line(self.path, _line(number, charge))

    def rewrite(self, charges: Sequence[Charge]) -> None:
        """Replace all charges."""
        text = b"".join(_line(number, charge) for number, charge in enumerate(charges, 1))
        write_atomically(self.path, text, PRIVATE)

    def knows_of_noise(self) -> bool:
        """Return whether the site's log has a train reply with noise, which a ledger was charged for."""
        try:
            lines = _lines((self.path.parent / SENT).read_bytes(), "message")
        except FileNotFoundError:
            return False
        return any(_has_noise(line) for line in lines)


def ledgers_in(folder: Path) -> list[tuple[Path, Journal]]:
    """Return the ledgers of a node's ``state-dir``, also lost ones, with their journals.

    Raises a `ConfigError` if there is none, nor a log that shows whose is lost.
    """
    folder = folder.expanduser()
    found = {path for path in folder.glob(f"*{LEDGER}") if path.name[0] != "."}
    found |= {folder / (path.name.removesuffix(JOURNAL) + LEDGER) for path in folder.glob(f"*{JOURNAL}")}
    if not found:
        domains = {str(line["domain"]) for line in read_log(folder)}
        found = {folder / f"{as_file_name(domain)}-{LEDGER}" for domain in domains}
    return [(path, Journal.of(path)) for path in sorted(found)]


def _line(number: int, charge: Charge) -> bytes:
    return json.dumps({"number": number, "charged": charge}).encode() + b"\n"


def _lines(data: bytes, key: str = "number") -> list[dict[str, Any]]:
    """Return the whole lines that have a key."""
    found = []
    for text in data.split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and key in line:
            found.append(line)
    return found


def _has_noise(line: Mapping[str, Any]) -> bool:
    told = line.get("records", {}).get(protocol.INFO, {}).get("entries", ())
    return str(line["message"]).partition(".")[0] == protocol.TRAIN and protocol.EPSILON in told
