"""The sums in the sources' replies to Ridge: how the server reads them, adds them up and starts the target.

Sums that protect patients are in `fda_flower.strategies.ridge_noise`, masked ones in
`fda_flower.strategies.ridge_masked`; in each file is one class, with the same methods.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fda_flower.aggregation import (
    CentredRows,
    Heads,
    Layers,
    Sums,
    by_kind,
    paths_of,
    shape_of_head,
    widths_of,
    with_kinds,
)
from fda_flower.strategies.base import BadReplyError, Node, Round, Sources

Form = tuple[int, int]
"""``d``, the length of a row, and ``C``, the number of outputs."""


@dataclass(frozen=True)
class OpenSums:
    """Sums as they are, over the rows of each kind.

    Attributes
    ----------
    sources : Sources
        The sources' replies in the `round`.
    least : int
        Number of usable ones below which the round is held.
    """

    round: Round
    sources: Sources
    least: int

    @cached_property
    def forms(self) -> list[Form]:
        """The form of each kind of rows."""
        outputs, _ = shape_of_head(self.round.model)
        return [(width + 1, outputs) for width in widths_of(self.round.model)]

    @cached_property
    def kind(self) -> type[Sums]:
        """What sums the sources are asked for: for survival, around each one's means."""
        return CentredRows if asks_centred(self.round.nodes) else Sums

    def read(self, domain: str) -> list[Sums]:
        """Return the sums in a source's reply; raise a `ValueError` if they are unusable."""
        update, forms = self.sources[domain], self.forms
        if "centre" in update.answer.sums:
            wanted = "classes, one target, and paths but 'pooled' and 'logistic'"
            raise ValueError(f"its sums have noise, which takes {wanted}")
        kinds = by_kind(update.answer.sums)
        if len(kinds) != len(forms):
            raise ValueError(f"its sums are over {len(kinds)} kinds of rows, not {len(forms)}")
        sums = [self.kind.from_arrays(arrays, *form) for arrays, form in zip(kinds, forms, strict=True)]
        for each in sums:
            if each.rows != np.float32(update.examples):
                reports = f"but it reports {update.examples} examples"
                raise ValueError(f"its sums are of {each.rows:g} rows, {reports}")
        return sums

    def total(self) -> tuple[list[Sums], list[str]]:
        """Return the total over each kind of rows, and the domains in it; each one's are checked alone.

        So the others' sums are valid, too, whichever site subtracts its own.
        """
        domains = self._definite(list(self.sources))
        return self._added(domains), domains

    def solvable(self) -> list[Sums]:
        """Return the total in the form that server and target solve with; one by one if that cannot be."""
        domains = self.usable(list(self.sources), self.read)
        try:
            return self.ready(self._added(domains))
        except ValueError:
            return self.ready(self._added(self._definite(domains)))

    def start(self, paths: Heads, scaled: bool) -> tuple[Heads, Layers]:
        """Return the heads that the target can average, and the arrays from which it starts.

        With `scaled` labels these have their mean and deviation.
        """
        starts = [total.start("pooled" in paths_of(paths), scaled) for total in self.solvable()]
        return paths, with_kinds([in_float32(start) for start in starts])

    def usable(self, domains: Collection[str], check: Callable[[str], object]) -> list[str]:
        """Return the domains whose sums pass a check, and drop the others; raise if too few are left."""
        usable = []
        for domain in domains:
            try:
                check(domain)
                usable.append(domain)
            except ValueError as error:
                del self.round.record["sources"][domain]
                self.round.drop(domain, BadReplyError(str(error)))
        if len(usable) < self.least:
            raise BadReplyError(f"{len(usable)} usable replies of sources, at least {self.least} needed")
        return usable

    def ready(self, totals: Sequence[Sums]) -> list[Sums]:
        """Return totals rounded as they travel; raise a `ValueError` if one has no solution."""
        pairs = zip(totals, self.forms, strict=True)
        rounded = [self.kind.from_arrays(total.to_arrays(), *form) for total, form in pairs]
        for total in rounded:
            total.solution()
        return rounded

    def _definite(self, domains: list[str]) -> list[str]:
        """Return the domains whose sums pass `Sums.check_definite`; drop the others."""

        def check(domain: str) -> None:
            for sums in self.read(domain):
                sums.check_definite(len(domains))

        return self.usable(domains, check)

    def _added(self, domains: Collection[str]) -> list[Sums]:
        read = [self.read(domain) for domain in domains]
        return [
            self.kind.total((each[place] for each in read), *form) for place, form in enumerate(self.forms)
        ]


def asks_centred(nodes: Iterable[Node]) -> bool | None:
    """Return whether sums are around each site's means, as for survival; None for other tasks."""
    return any(node.task == "survival" for node in nodes) or None


def in_float32(arrays: Layers) -> Layers:
    """Return arrays as they travel."""
    return {name: array.astype(np.float32) for name, array in arrays.items()}
