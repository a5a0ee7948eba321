"""A site's ledger of what its noise has spent, and the journal that counts it a second time.

A ledger that is restored from a backup has forgotten the releases since. The journal, next to the log of what
the site has sent, is a file from which nothing is ever removed, so that the two disagree.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fda_flower.errors import RunError, own_files
from fda_flower.files import PRIVATE, append_line, as_file_name, locked, make_private, write_atomically
from fda_flower.site.accountant import epsilon_of_steps
from fda_flower.site.config import LEDGER, PATIENT, SITE
from fda_flower.site.log import SENT, read_log
from fda_flower.wire import protocol

RECOUNT = "count as spent all that the site has noted, by fda deploy recount"


class PrivacyError(RunError):
    """A reply must not leave the site; the text is the reason."""


class BudgetError(PrivacyError):
    """A reply would exceed the site's privacy budget."""


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
        return any(has_noise(line) for line in lines)


RECORD = "privacy"
"""Name of the record of a ledger in a context's state."""


@dataclass(frozen=True)
class Entry:
    """A reply's releases and their multiplier; `request` is the digest of the request.

    `unit` is the protected unit, ``site`` or ``patient``; `rate` is the share of patients it draws.
    """

    round: int
    request: str
    noise: float
    releases: int
    unit: str = SITE
    rate: float = 1.0


SETTLED = Entry(0, "settled", 1.0, 0)
"""What was charged for a reply that has released nothing."""

DAMAGE = (OSError, ValueError, TypeError, KeyError, AttributeError)
"""Errors in reading a file that is damaged."""

LOST = Entry(0, "lost", 1e-3, 1)
"""What counts as spent where nobody knows what was: more than any budget."""


@dataclass(frozen=True)
class Ledger:
    """The list of all releases of a site, over all its runs.

    A ledger with a `journal` counts its charges there a second time, after its own file. The two agree, or a
    crash between them has left the ledger one ahead, whose reply has not left. Anything else is a file from a
    backup, or a lost one: the ledger refuses until `recount`.

    Attributes
    ----------
    path : Path, optional
        The file, created on first write.
    state : RecordDict
        The context's state, which holds the list without a file: in a simulation without a folder.
    """

    path: Path | None
    state: RecordDict
    journal: Journal | None = None

    def entries(self) -> list[Entry]:
        """Return the list; raise a `PrivacyError` if a file is damaged, old or lost: nothing is then sent."""
        return self._load()[1]

    def _load(self) -> tuple[int, list[Entry]]:
        """Return the number of charges, and the list."""
        if self.path is None:
            record = self.state.config_records.get(RECORD)
            return 0, [] if record is None else _read(str(record["json"]))[1]
        try:
            # Before the ledger, which another process may charge meanwhile: it is then one ahead.
            noted = 0 if self.journal is None else self.journal.last()
            charges, entries = self._read_file() or (0, [])
            why = self._disagrees(charges, noted)
        except DAMAGE as error:
            why = f"is damaged ({error})"
        if why:
            with own_files():
                raise PrivacyError(
                    f"the site's privacy ledger '{self.path}' {why}: {RECOUNT} {self.path.parent}"
                )
        return len(entries) if charges is None else charges, entries

    def _disagrees(self, charges: int | None, noted: int) -> str | None:
        """Return how the ledger's and the journal's numbers of charges disagree; None if they do not."""
        if self.journal is None:
            return None
        if charges == noted == 0 and self.journal.knows_of_noise():
            return f"and '{self.journal.path.name}' are lost, but its log shows replies with noise"
        if noted == 0 if charges is None else charges in (noted, noted + 1):
            return None
        return f"has {charges or 0} charges, but '{self.journal.path.name}' has {noted}"

    def _read_file(self) -> tuple[int | None, list[Entry]] | None:
        """Return what the file has; None without one."""
        try:
            return _read(Path(str(self.path)).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def recount(self, journal: Journal) -> int:
        """Write the ledger and its journal anew, so that they agree; return the number of charges added.

        All that either knows counts as spent, and more than any budget if neither is left of what was there,
        or lines are lost.
        """
        with self._locked():
            try:
                account = self._read_file()
            except DAMAGE:
                account = None
            entries, noted = [] if account is None else account[1], list[Entry]()
            for charge in journal.charges():
                with suppress(*DAMAGE):
                    noted.append(_entry(charge))
            known, added = Counter((entry.round, entry.request) for entry in entries), list[Entry]()
            for entry in noted:
                known[entry.round, entry.request] -= 1
                added += [entry] if known[entry.round, entry.request] < 0 else []
            were_there = Path(str(self.path)).exists() or journal.path.exists() or journal.knows_of_noise()
            if len(noted) < journal.last() or (were_there and not (noted or account)):
                added.append(LOST)
            entries = [*entries, *added]
            replace(self, journal=journal)._save(len(entries), entries)
            journal.rewrite([asdict(entry) for entry in entries])
        return len(added)

    def epsilon(
        self, delta: float, more: Entry | None = None, again: bool = False, unit: str = SITE
    ) -> float:
        """Return the unit's ``ε`` of all releases and of `more`; see `spend` for `again`.

        A release that protects the site also protects each patient, so for a patient all of them compose. A
        release that protects only patients has no finite ``ε`` for the site and raises a `PrivacyError`.
        """
        entries = self.entries()
        return _epsilon(entries if more is None else _with(entries, more, again), delta, unit)

    def spend(self, entry: Entry, delta: float, most: float | None, again: bool = False) -> float:
        """Add an entry and return the total ``ε`` of its unit; only then may the reply leave.

        Parameters
        ----------
        entry : Entry
            The reply's releases.
        delta : float
            ``δ``.
        most : float, optional
            The site's budget.
        again : bool
            Whether noise follows from a seed, as in a simulation, so that equal requests have equal replies:
            an entry of the same request is then not counted twice.

        Raises
        ------
        BudgetError
            If ``ε`` would exceed the budget, for example after replies in another run.
        PrivacyError
            If the file cannot be read or written.
        """
        with self._locked():
            charges, entries = self._load()
            self._note(charges, entries)
            after = _with(entries, entry, again)
            spent = self._write(charges + 1, after, entry.unit, delta, most)
            self._note(charges + 1, after)
        return spent

    def settle(self, charged: Entry, done: Entry | None, delta: float, most: float | None) -> None:
        """Put what has really been released in the place of the entry charged before; None for nothing.

        Raises the errors of `spend`; the entry charged then stays.
        """
        if done == charged:
            return
        with self._locked():
            charges, entries = self._load()
            entries.remove(charged)
            entries += [] if done is None else [done]
            self._write(charges, entries, charged.unit, delta, None if done is None else most)

    def _write(
        self, charges: int, entries: list[Entry], unit: str, delta: float, most: float | None
    ) -> float:
        spent = _epsilon(entries, delta, unit)
        if most is not None and spent > most:
            raise BudgetError(f"its ε would become {spent:.4g}, above its max-epsilon {most:g}")
        self._save(charges, entries)
        return spent

    def _save(self, charges: int, entries: list[Entry]) -> None:
        content = {"released": [asdict(each) for each in entries]}
        counted = {} if self.journal is None else {"charges": charges}
        text = json.dumps({**counted, **content}, indent=1)
        if self.path is None:
            self.state[RECORD] = ConfigRecord({"json": text})
        else:
            write_atomically(self.path, text.encode() + b"\n", PRIVATE)

    def _note(self, charges: int, entries: list[Entry]) -> None:
        """Append to the journal the last charges that it lacks: those of a crash, or before it was kept."""
        if self.journal is not None:
            for number in range(self.journal.last() + 1, charges + 1):
                place = number - charges + len(entries) - 1
                self.journal.note(number, asdict(entries[place] if place >= 0 else SETTLED))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other processes of the site."""
        if self.path is None:
            yield
            return
        try:
            make_private(self.path.parent)
            with locked(self.path.with_name(f".{self.path.name}.lock")):
                yield
        except OSError as error:
            with own_files():
                raise PrivacyError(
                    f"the site's privacy ledger '{self.path}' cannot be written ({error}): repair the "
                    "state-dir"
                ) from error


def _read(text: str) -> tuple[int | None, list[Entry]]:
    """Return the charges and entries of a ledger; raise a `ValueError` or another exception if it is damaged.

    A ledger that has had no journal has no number of charges.
    """
    content = json.loads(text)
    entries, charges = [_entry(each) for each in content["released"]], content.get("charges")
    if charges is not None and (type(charges) is not int or charges < len(entries)):
        raise ValueError(f"it has {charges!r} charges")
    return charges, entries


def _entry(e: Mapping[str, Any]) -> Entry:
    """Return an entry in a file; raise a `ValueError` or another exception if it is damaged."""
    numbers = (e["round"], str(e["request"]), e["noise"], e["releases"])
    entry = Entry(*numbers, e.get("unit", SITE), e.get("rate", 1.0))
    counts = type(entry.round) is int and type(entry.releases) is int and entry.releases >= 0
    noise = type(entry.noise) in (int, float) and 0 < entry.noise < math.inf
    rate = type(entry.rate) in (int, float) and 0 < entry.rate <= 1
    if not (counts and noise and rate and entry.unit in (SITE, PATIENT)):
        raise ValueError(f"it has the entry {entry}")
    return entry


def _with(entries: list[Entry], entry: Entry, again: bool) -> list[Entry]:
    return entries if again and entry in entries else [*entries, entry]


def _epsilon(entries: list[Entry], delta: float, unit: str) -> float:
    if unit == SITE and any(entry.unit == PATIENT and entry.releases for entry in entries):
        raise PrivacyError(
            "its dp-unit is site, but it has sent releases that protect each patient alone, and have no "
            "finite ε for the site: let dp-unit be patient"
        )
    return epsilon_of_steps(((entry.noise, entry.rate, entry.releases) for entry in entries), delta)


def ledgers_in(folder: Path) -> list[tuple[Path, Journal]]:
    """Return the ledgers of a node's ``state-dir``, also lost ones, with their journals.

    Raises a `ConfigError` if there is none, nor a log that shows whose is lost.
    """
    folder = folder.expanduser()
    ledgers = {path for path in folder.glob(f"*{LEDGER}") if path.name[0] != "."}
    ledgers |= {folder / (path.name.removesuffix(JOURNAL) + LEDGER) for path in folder.glob(f"*{JOURNAL}")}
    if not ledgers:
        domains = {str(line["domain"]) for line in read_log(folder)}
        ledgers = {folder / f"{as_file_name(domain)}-{LEDGER}" for domain in domains}
    return [(path, Journal.of(path)) for path in sorted(ledgers)]


def _line(number: int, charge: Charge) -> bytes:
    return json.dumps({"number": number, "charged": charge}).encode() + b"\n"


def _lines(data: bytes, key: str = "number") -> list[dict[str, Any]]:
    """Return the whole lines that have a key."""
    lines = []
    for text in data.split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and key in line:
            lines.append(line)
    return lines


def has_noise(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a site's log is a train reply that a ledger was charged for."""
    entries = line.get("records", {}).get(protocol.INFO, {}).get("entries", ())
    return str(line["message"]).partition(".")[0] == protocol.TRAIN and protocol.EPSILON in entries
