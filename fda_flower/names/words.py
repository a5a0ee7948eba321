"""Words for counts and domains in messages."""

from collections.abc import Iterable, Iterator, Sequence


def counted(count: int, what: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "sample"), counted(1200, "sample")
    ('1 sample', '1,200 samples')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


ROW = "row"
"""Who is a patient, where each row or image is another one; else it is a value of the option ``group``."""


def count_of(samples: int, units: int | None, what: str = "sample") -> str:
    """Return a number of samples and, if some are of one patient, of patients.

    Examples
    --------
    >>> count_of(24, 6), count_of(24, 24), count_of(1, None, "label")
    ('24 samples of 6 patients', '24 samples', '1 label')
    """
    return counted(samples, what) + of_units(samples, units)


def of_units(samples: int, units: int | None) -> str:
    """Return `` of 6 patients`` after a number of samples; nothing if each is of its own, or if unknown."""
    return "" if units is None or units == samples else f" of {counted(units, 'patient')}"


MOST_NAMED = 5
"""Largest number of domains in a line of the log; the record has all."""


def domains_by_reason(failed: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group pairs of a domain and a reason by the reason."""
    domains: dict[str, list[str]] = {}
    for domain, reason in failed:
        domains.setdefault(reason, []).append(domain)
    return domains


def by_reason(failed: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each reason once, after its domains in words, of pairs of a domain and a reason.

    Examples
    --------
    >>> list(by_reason([("a", "no reply"), ("b", "no data"), ("c", "no reply")]))
    [('each of 2 nodes (a, c)', 'no reply'), ('b', 'no data')]
    """
    for reason, domains in domains_by_reason(failed).items():
        yield domains[0] if len(domains) == 1 else f"each of {len(domains)} nodes ({listed(domains)})", reason


def listed(domains: Sequence[str]) -> str:
    """Return the first domains in words."""
    return ", ".join(domains[:MOST_NAMED]) + (", ..." if len(domains) > MOST_NAMED else "")
