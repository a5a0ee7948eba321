"""Ridge's sums over a table's rows, in the columns that the mean and deviation of all sources standardise."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fda_flower.aggregation import Columns, Sums, columns_out_of_line, move
from fda_flower.strategies.base import Sources

Usable = Callable[[list[str], Callable[[str], object]], list[str]]
"""Returns the domains that pass a check, which raises a `ValueError`, and drops the others."""


def in_common_columns(
    sources: Sources, read: Callable[[str], Sequence[Sums]], usable: Usable
) -> tuple[Sources, Columns | None]:
    """Return the usable replies, with sums over rows in common columns, and these.

    Nothing changes unless most sources send their columns; then each must, with sums that fit them, and in
    line with the others'.

    Parameters
    ----------
    sources : Sources
        The sources' replies.
    read : callable
        Returns the sums in a domain's reply; raises a `ValueError` if they are of no use.
    usable : callable
        See `Usable`.
    """
    answers = {domain: sources[domain].answer for domain in sources}
    said = [domain for domain in sources if getattr(answers[domain], "columns", None) is not None]
    if 2 * len(said) <= len(sources):
        return sources, None
    found = dict[str, tuple[Columns, Sums]]()

    def check(domain: str) -> None:
        if answers[domain].columns is None:
            raise ValueError("its sums are without its columns, which most sources send")
        (sums,) = read(domain)
        found[domain] = Columns.from_arrays(answers[domain].columns), sums

    readable = usable(list(sources), check)
    faults = columns_out_of_line({domain: found[domain] for domain in sorted(readable)})

    def check_line(domain: str) -> None:
        if domain in faults:
            raise ValueError(faults[domain])

    domains = usable(readable, check_line)
    common = Columns.pooled(found[domain] for domain in sorted(domains))
    moved = {}
    for domain in domains:
        own, sums = found[domain]
        arrays = move(sums, own.into(common)).to_arrays(np.float64)
        moved[domain] = replace(sources[domain], answer=replace(answers[domain], sums=arrays))
    return moved, common
