"""How alike sites are, as a run's record, ``describe.json`` and sentences have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fda_flower.aggregation.apart import FAR, TIMES, Apart, Said, apart, are_shares, is_share, shares_of
from fda_flower.aggregation.bins import BINS, CLASS_BINS, MANY, Counts, edges, quantile
from fda_flower.aggregation.columns import Columns
from fda_flower.names.words import of_units
from fda_flower.records.record import DESCRIBED as DESCRIBED
from fda_flower.records.record import Record

NOT_CLAIMED = (
    "Counts are of patients where the option 'group' names them, and multiples of each site's min-cell, so "
    "that no smaller one can be read off. Not claimed: that none can be solved (n = 9 in three cells that "
    "all read 5 must be 3, 3, 3).",
    "Two runs whose rows differ by one patient reveal that patient.",
    "Not claimed: who would help. On tables such distances order sources rightly in 61 to 66% of pairs, and "
    "counting their rows in 62%.",
)
"""What the output says of itself."""

MEASURED = "Whether the others help is measured, not guessed: fda run --method ridge --target all"
"""The last line."""

QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Alike:
    """What all sites say, by name.

    Attributes
    ----------
    sites : Mapping
        By name, what a site says of its rows.
    common : Columns
        Mean and deviation over all sites.
    columns, classes : sequence of str
        Their names; no columns for features of a network.
    target : str, optional
        The site with which the others are compared. Default: each with each.
    several : bool
        Whether the classes are several labels.
    """

    sites: Mapping[str, Said]
    common: Columns
    columns: Sequence[str]
    classes: Sequence[str]
    target: str | None = None
    several: bool = False

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The sites to compare."""
        if self.target in self.sites:
            return [(name, str(self.target)) for name in self.sites if name != self.target]
        return [*combinations(self.sites, 2)]

    def to_record(self) -> Record:
        """Return the content of ``describe.json``."""
        between = {
            pair: apart(self.sites[pair[0]], self.sites[pair[1]], self.common, self.several)
            for pair in self.pairs
        }
        order = [*between]
        if not self.columns:
            order.sort(key=lambda pair: between[pair].frechet or 0.0)
        everywhere = zip(
            self.columns, self.common.means, self.common.deviations, strict=False
        )  # or no columns
        return {
            "sites": {name: self._site(name) for name in self.sites},
            "all": {name: {"mean": _known(m), "deviation": _known(s)} for name, m, s in everywhere},
            "pairs": [self._pair(pair, between[pair]) for pair in order],
            "said": len(self.sites),
            "not-claimed": list(NOT_CLAIMED),
        }

    def _site(self, name: str) -> Record:
        site, counts = self.sites[name]
        entry: Record = {"rows": site.rows, "units": site.units, "min-cell": site.cell}
        if site.classes.any():
            entry["classes"] = dict(zip(self.classes, site.classes.tolist(), strict=True))
        columns: Record = {}
        for j, column in enumerate(self.columns):
            if not site.known[j]:
                columns[column] = None
                continue
            mean, deviation = float(site.means[j]), float(site.deviations[j])
            columns[column] = {"mean": mean, "deviation": deviation, "missing": int(site.missing[j])}
            inner = edges(self.common, j, BINS)
            if counts is None or not counts.bins[j].any() or is_share(mean, deviation):
                continue
            columns[column] |= {"most": int(counts.most[j]), "number": _known(counts.numbers[j])}
            is_fine = inner[1] - inner[0] <= deviation  # else a bin is wider than what a quartile says
            if is_fine and np.count_nonzero(counts.bins[j]) >= MANY:
                columns[column]["quartiles"] = [quantile(counts.bins[j], inner, share) for share in QUARTERS]
                columns[column]["medians"] = self._medians(counts, j)
        return entry | ({"columns": columns} if columns else {})

    def _medians(self, counts: Counts, column: int) -> Record:
        """Return about the median of a column in each class."""
        inner = edges(self.common, column, CLASS_BINS)
        by_class = zip(self.classes, counts.by_class[:, column], strict=True)
        return {name: quantile(bins, inner, 0.5) for name, bins in by_class if bins.any()}

    def _pair(self, pair: tuple[str, str], far: Apart) -> Record:
        distances = dict(zip(self.columns, map(_known, far.distances), strict=False))
        together = {"frechet": far.frechet, "chance": far.floor, "joint-columns": far.columns}
        entry: Record = {"sites": list(pair), "distances": distances, **together}
        named = [self.columns[j] for j in far.named] if self.columns else []
        return entry | {"label-shift": far.label_shift, "named": named, "sentence": self.sentence(pair, far)}

    def sentence(self, pair: tuple[str, str], far: Apart) -> str:
        """Return a sentence on two sites: what differs beyond chance, at most three columns."""
        one, two = (self.sites[name][0] for name in pair)
        sizes = (f"{each.rows:,}{of_units(each.rows, each.units)}" for each in (one, two))
        heads = (f"{name} ({size})" for name, size in zip(pair, sizes, strict=True))
        parts = [self._column(pair, far, j) for j in far.named] if self.columns else []
        if far.label is not None:
            p, q = (shares_of(site, self.several)[far.label] for site in (one, two))
            parts.append(f"outcome {self.classes[far.label]} {p:.0%} against {q:.0%}")
        if not far.beyond_chance and not parts:
            nothing = bool(self.columns) and np.isnan(far.distances).all()
            parts = ["too few values to compare" if nothing else "no difference beyond chance"]
        if far.beyond_chance or not self.columns:
            parts.append(
                _together(
                    far, f"{far.columns} columns of numbers together" if self.columns else "the features"
                )
            )
        return f"{' against '.join(heads)}: {'; '.join(parts)}"

    def _column(self, pair: tuple[str, str], far: Apart, j: int) -> str:
        (one, _), (two, _) = (self.sites[name] for name in pair)
        distance, means = float(far.distances[j]), (float(one.means[j]), float(two.means[j]))
        if are_shares(one, two, j):
            text = f"{means[0]:.0%} against {means[1]:.0%} ({distance:.1f})"
        else:
            deviations = f"{distance:.1f} deviations" if distance < FAR else "constants"
            text = f"{means[0]:.4g} against {means[1]:.4g} ({deviations})"
        if j in far.missing:
            shares = (min(site.missing[j] / site.units, 1.0) for site in (one, two))
            text += f", missing {' against '.join(f'{share:.0%}' for share in shares)}"
        for name, codes in zip(pair, far.codes, strict=True):
            if j in codes:
                site, counts = self.sites[name]
                assert counts is not None
                share = min(counts.most[j] / site.observed[j], 1.0)
                text += f", and at {name} {share:.0%} are exactly {counts.numbers[j]:g}: a code for missing?"
        return f"{self.columns[j]} {text}" + (": another unit?" if j in far.other_units else "")


def _together(far: Apart, what: str) -> str:
    if far.frechet is None or far.floor is None:
        return f"too few rows to compare {what}"
    by_chance = f"by chance up to {TIMES * far.floor:.3g}"
    return f"{what} {far.frechet:.3g} apart (squared Fréchet distance by column; {by_chance})"


def _known(number: Any) -> float | None:
    """Return a number for JSON; None for NaN."""
    return None if np.isnan(number) else float(number)
