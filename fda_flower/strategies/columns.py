"""Ridge's sums over a table's rows, in the columns that the mean and deviation of all sources standardise."""

from dataclasses import replace

import numpy as np

from fda_flower.aggregation import Columns, Sums, columns_out_of_line, move
from fda_flower.strategies.ridge_sums import OpenSums


def in_common_columns(sums: OpenSums) -> OpenSums:
    """Return the usable sums, over rows in the common columns of the sources.

    Nothing changes unless most sources send their columns; then each must, with sums that fit them, and in
    line with the others'.
    """
    sources = sums.sources
    answers = {domain: sources[domain].answer for domain in sources}
    said = [domain for domain in sources if getattr(answers[domain], "columns", None) is not None]
    if 2 * len(said) <= len(sources):
        return sums
    found = dict[str, tuple[Columns, Sums]]()

    def check(domain: str) -> None:
        if answers[domain].columns is None:
            raise ValueError("its sums are without its columns, which most sources send")
        (own,) = sums.read(domain)
        found[domain] = Columns.from_arrays(answers[domain].columns), own

    readable = sums.usable(list(sources), check)
    faults = columns_out_of_line({domain: found[domain] for domain in sorted(readable)})

    def check_line(domain: str) -> None:
        if domain in faults:
            raise ValueError(faults[domain])

    domains = sums.usable(readable, check_line)
    common = Columns.pooled(found[domain] for domain in sorted(domains))
    moved = {}
    for domain in domains:
        columns, own = found[domain]
        arrays = move(own, columns.into(common)).to_arrays(np.float64)
        moved[domain] = replace(sources[domain], answer=replace(answers[domain], sums=arrays))
    return replace(sums, sources=moved, columns=common)
