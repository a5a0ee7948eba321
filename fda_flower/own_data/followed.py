"""Patients who are followed until an event: the columns of a table that say when and whether it came."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fda_flower.aggregation.survival import MOST_HORIZONS, Outcomes, default_horizons
from fda_flower.datasets.numbers import OF_THOUSANDS, Array
from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.options import as_written, split_names
from fda_flower.own_data.column import Column


def read_horizons(text: str) -> tuple[float, ...]:
    """Parse the option ``horizons``, rising numbers above 0; empty text is none.

    Examples
    --------
    >>> read_horizons("12, 36,60")
    (12.0, 36.0, 60.0)
    """
    if not text:
        return ()
    try:
        horizons = tuple(float(as_written(each)) for each in split_names("option 'horizons'", text))
    except ValueError:
        horizons = ()
    rising = all(first < second for first, second in zip((0.0, *horizons), horizons, strict=False))
    if not (0 < len(horizons) <= MOST_HORIZONS and rising and all(map(math.isfinite, horizons))):
        remedy = f"give 1 to {MOST_HORIZONS} rising times in the label's unit, such as 12,36,60"
        raise invalid("option 'horizons'", text, remedy)
    return horizons


TWO = "write 1 for the event, and 0 for last seen without it"
COMPETING = (
    "competing events are not supported: call them 0 only if they end follow-up by chance, and the event 1"
)
"""What to do with another code of the event, of two values and of more."""


def followed(columns: Sequence[Column], problems: Problems) -> Array:
    """Return the time of each row, and 1 if the event came or 0, shape ``(n, 2)``; add others to `problems`.

    `columns` are the times and the events.
    """
    times, events = columns
    if not times.comma:
        times.tell(problems, times.with_thousands, *OF_THOUSANDS)
    known = np.isfinite(times.numbers)
    times.tell(problems, ~known, "a time that is no number", "fix it, or remove the line")
    early = known & ~(np.nan_to_num(times.numbers, nan=1.0) > 0)
    remedy = "count time from when a patient is first seen, and remove those who are not followed"
    times.tell(problems, early, "a time that is not above 0", remedy)
    missing = np.isnan(events.numbers)
    remedy = "write 1 if the event came at this time, and 0 if the patient was last seen without it"
    events.tell(problems, missing, "no word on the event", remedy)
    other = ~missing & ~np.isin(events.numbers, (0.0, 1.0))
    coded = len(events.words) <= 2
    events.tell(problems, other, "another value than 0 and 1 for the event", TWO if coded else COMPETING)
    return np.stack([times.numbers, events.numbers], axis=1)


def check_followed(
    numbers: Iterable[Array], patients: Mapping[str, Sequence[str]], horizons: Sequence[float]
) -> None:
    """Raise a `ConfigError` if no one has the event, a patient has several rows, or there is no horizon."""
    if not any((each[:, 1] == 1).any() for each in numbers if each.ndim > 1):
        remedy = "name another column in the option 'event', or get data in which some have it"
        raise ConfigError("no patient has the event", thing="option 'event'", remedy=remedy)
    for domain, groups in patients.items():
        if len({*groups}) < len(groups):
            what = f"patients of domain '{domain}' have several rows, but each is followed once"
            raise ConfigError(what, thing="option 'group'", value=domain, remedy="keep one row of each")
    if not horizons:
        remedy = "name times at which survival is predicted by --dataset-option horizons=12,36,60"
        raise ConfigError("the option 'horizons' is missing", thing="option 'horizons'", remedy=remedy)


def tell_without_event(
    where: str, events: Array, parts: Mapping[str, Array], note: Callable[[str], object]
) -> None:
    """Note parts, as positions in the `events`, 1 or 0, in which nobody has the event."""
    for part, positions in parts.items():
        if not events[positions].any():
            note(f"{where}: no event among the {part} rows")


def outcomes(numbers: Array, horizons: tuple[float, ...]) -> Outcomes:
    """Return the outcomes in numbers as `followed` returns them."""
    return Outcomes(np.ascontiguousarray(numbers[:, 0]), numbers[:, 1] == 1, horizons)


def horizons_of(columns: Mapping[str, Sequence[tuple[Array, Array]]], sources: Sequence[str]) -> str:
    """Return the option ``horizons`` of a run that names none; empty without an event of a source.

    `columns` has for each domain the times and events of its tables. See
    `fda_flower.aggregation.survival.default_horizons`.
    """
    known = {
        domain: np.concatenate([np.stack(pair, axis=1) for pair in pairs])
        for domain, pairs in columns.items()
        if pairs
    }
    known = {domain: rows[np.isfinite(rows).all(axis=1)] for domain, rows in known.items()}
    events = [rows[rows[:, 1] == 1, 0] for domain, rows in known.items() if domain in sources]
    longest = [float(rows[:, 0].max()) for rows in known.values() if len(rows)]
    return ",".join(f"{each:g}" for each in default_horizons(events, longest)) if longest else ""
