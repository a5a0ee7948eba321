"""Differential privacy: the noise mechanism, and a site's ledger."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError, own_files
from fda_flower.files import PRIVATE, locked, make_private, write_atomically
from fda_flower.site.accountant import epsilon_of_steps
from fda_flower.site.config import PATIENT, SITE
from fda_flower.site.journal import Journal

Randomness = Callable[[int], bytes]
"""Returns that many random bytes: ``os.urandom``, or in a simulation a generator's ``bytes``."""

RECOUNT = "count as spent all that the site has noted, by fda deploy recount"

DRAWS = 4
"""Number of normal draws in each sample, whose sum is divided by √4; see `gaussian`."""


class PrivacyError(RunError):
    """A reply must not leave the site; the text is the reason."""


class BudgetError(PrivacyError):
    """A reply would exceed the site's privacy budget."""


def gaussian(count: int, draw: Randomness) -> NDArray[np.float64]:
    """Return standard normal numbers.

    Each is the sum of four draws over 2. The gaps between floating-point numbers, which could identify a
    single draw, then reveal nothing (Holohan and Braghin, 2021).
    """
    pairs = -(-count // 2)
    words = np.frombuffer(draw(8 * 2 * pairs * DRAWS), np.uint64).reshape(DRAWS, 2, pairs)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    result: NDArray[np.float64] = normal.sum(axis=0)[:count] / np.sqrt(DRAWS)
    return result


@dataclass
class Mechanism:
    """The Gaussian mechanism for everything that leaves a site in one reply.

    Two data sets of a site are neighbours if all of the site's data are replaced. Vectors of norm up to ``C``
    may then differ by ``2 C``, their sensitivity, and the standard deviation of the noise is ``2 z C``.

    Attributes
    ----------
    clip, noise : float
        ``C`` and ``z``.
    draw : callable
        Source of the random bytes.
    releases : int
        How often the mechanism was used; all uses compose.

    Examples
    --------
    >>> mechanism = Mechanism(1.0, 0.0, bytes)
    >>> mechanism.vectors({"w": np.array([3.0, 4.0])})["w"].round(3).tolist()
    [0.6, 0.8]
    """

    clip: float
    noise: float
    draw: Randomness
    releases: int = 0

    @property
    def deviation(self) -> float:
        """``2 z C``, the standard deviation of the noise on a vector."""
        return 2 * self.noise * self.clip

    def vectors(self, layers: Layers) -> dict[str, NDArray[np.float64]]:
        """Release arrays as one vector, clipped to the norm ``C``."""
        found = {name: finite(array).astype(np.float64) for name, array in layers.items()}
        factor = factor_to(self.clip, norm_of(found))
        released = {
            name: factor * array + self._noise(array.shape, self.deviation) for name, array in found.items()
        }
        self.releases += 1
        return released

    def parts(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Release numbers of at least 0, scaled to a sum of at most ``C²``; the result is never negative.

        Two such vectors differ by at most ``√2 C²``.
        """
        found, most = finite(values).astype(np.float64), self.clip**2
        total = float(found.sum())
        scaled = found * (1.0 if total <= most else most / total)
        self.releases += 1
        return np.maximum(scaled + self._noise(values.shape, np.sqrt(2) * self.noise * most), 0)

    def number(self, value: float) -> float:
        """Release a number, clipped to ``[0, C²]``, with the sensitivity ``C²``; it is never negative."""
        most = self.clip**2
        cut = float(np.clip(finite(np.array(value)), 0, most))
        self.releases += 1
        return max(cut + float(self._noise((), self.noise * most)), 0.0)

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return standard normal numbers for one release of a vector of known sensitivity."""
        self.releases += 1
        return gaussian(count, self.draw)

    def _noise(self, shape: tuple[int, ...], deviation: float) -> NDArray[np.float64]:
        if deviation == 0:
            return np.zeros(shape)
        return deviation * gaussian(int(np.prod(shape)), self.draw).reshape(shape)


def norm_of(layers: Mapping[str, NDArray[Any]]) -> float:
    """Return the norm of arrays as one vector, of their finite numbers."""
    with np.errstate(over="ignore"):
        squares = (np.square(finite(array), dtype=np.float64).sum() for array in layers.values())
        return float(np.sqrt(sum(squares)))


def factor_to(limit: float, norm: float) -> float:
    """Return the factor that scales a vector down to a norm; 1 within it."""
    return 1.0 if norm <= limit else limit / norm


def finite(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array with 0 for any number that is not finite, which clipping cannot limit.

    An error in its place would depend on the data, and no noise covers that.
    """
    return np.where(np.isfinite(array), array, np.zeros((), array.dtype))


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
            kept = self.state.config_records.get(RECORD)
            return 0, [] if kept is None else _read(str(kept["json"]))[1]
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
                found = self._read_file()
            except DAMAGE:
                found = None
            entries, noted = [] if found is None else found[1], list[Entry]()
            for charge in journal.charges():
                with suppress(*DAMAGE):
                    noted.append(_entry(charge))
            known, added = Counter((entry.round, entry.request) for entry in entries), list[Entry]()
            for entry in noted:
                known[entry.round, entry.request] -= 1
                added += [entry] if known[entry.round, entry.request] < 0 else []
            were_there = Path(str(self.path)).exists() or journal.path.exists() or journal.knows_of_noise()
            if len(noted) < journal.last() or (were_there and not (noted or found)):
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
