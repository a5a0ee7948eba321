"""What a site has released so far, on its disk."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fda_flower.files import PRIVATE, locked, make_private, write_atomically
from fda_flower.privacy.accountant import epsilon
from fda_flower.privacy.mechanism import BudgetError, PrivacyError

FILE = "privacy.json"
RECORD = "privacy"
"""The name of the file in a folder of the site's, and of the record in a context's state."""


@dataclass(frozen=True)
class Entry:
    """What one reply has released.

    Attributes
    ----------
    round : int
        The round, as the server counts it.
    request : str
        A digest of what the site was asked.
    noise : float
        The noise multiplier.
    releases : int
        How many vectors or numbers were released with it.
    """

    round: int
    request: str
    noise: float
    releases: int


@dataclass(frozen=True)
class Ledger:
    """The list of all that a site has released, over all its runs.

    Attributes
    ----------
    path : Path, optional
        The file, made when something is written.
    state : RecordDict
        The context's state, which holds the list where there is no file: in a simulation without a folder.
    """

    path: Path | None
    state: RecordDict

    def entries(self) -> list[Entry]:
        """Return the list.

        Raises
        ------
        PrivacyError
            If the file is damaged: what was spent is then not known, and nothing is sent.
        """
        if self.path is None:
            kept = self.state.config_records.get(RECORD)
            return [] if kept is None else _read(str(kept["json"]))
        try:
            return _read(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PrivacyError(
                f"what the site has spent is in '{self.path}', which is damaged ({error}): restore the file "
                "from a copy"
            ) from error

    def epsilon(self, delta: float, more: Entry | None = None, again: bool = False) -> float:
        """Return ``ε`` of all that was released, and of `more`; see `spend` for `again`."""
        entries = self.entries()
        return _epsilon(entries if more is None else _with(entries, more, again), delta)

    def spend(self, entry: Entry, delta: float, most: float | None, again: bool = False) -> float:
        """Add an entry and return the ``ε`` of all; the reply may leave only after that.

        Parameters
        ----------
        entry : Entry
            What the reply releases.
        delta : float
            ``δ``.
        most : float, optional
            The site's budget.
        again : bool
            The noise follows from a seed, as in a simulation, so that the same request has the same reply: an
            entry of the same request is not counted twice.

        Raises
        ------
        BudgetError
            If ``ε`` would be above the budget, for example by another run's replies.
        PrivacyError
            If the file cannot be read or written.
        """
        with self._locked():
            entries = _with(self.entries(), entry, again)
            spent = _epsilon(entries, delta)
            if most is not None and spent > most:
                raise BudgetError(
                    f"its ε would be {spent:.4g} with the reply, above its max-epsilon {most:g}"
                )
            text = json.dumps({"released": [asdict(each) for each in entries]}, indent=1)
            if self.path is None:
                self.state[RECORD] = ConfigRecord({"json": text})
            else:
                write_atomically(self.path, text.encode() + b"\n", PRIVATE)
        return spent

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of the site from the file."""
        if self.path is None:
            yield
            return
        try:
            make_private(self.path.parent)
            with locked(self.path.with_name(f".{self.path.name}.lock")):
                yield
        except OSError as error:
            raise PrivacyError(
                f"what the site spends cannot be written to '{self.path}' ({error}): repair the state-dir"
            ) from error


def _read(text: str) -> list[Entry]:
    """Return the entries of a ledger; raise a `ValueError`, or another of Python's, if it is damaged."""
    found: list[dict[str, Any]] = json.loads(text)["released"]
    entries = [Entry(e["round"], str(e["request"]), e["noise"], e["releases"]) for e in found]
    for entry in entries:
        counts = type(entry.round) is int and type(entry.releases) is int and entry.releases >= 0
        if not counts or type(entry.noise) not in (int, float) or not 0 < entry.noise < math.inf:
            raise ValueError(f"it has the entry {entry}")
    return entries


def _with(entries: list[Entry], entry: Entry, again: bool) -> list[Entry]:
    return entries if again and entry in entries else [*entries, entry]


def _epsilon(entries: list[Entry], delta: float) -> float:
    return epsilon(((entry.noise, entry.releases) for entry in entries), delta)
