"""Sums with noise that protects each patient, in the sources' replies to Ridge."""

from dataclasses import replace

from fda_flower.aggregation import CentredSums, Heads, Layers, PrivateSums, Sums, check_deviation
from fda_flower.strategies.ridge_sums import OpenSums, in_float32


class NoisySums(OpenSums):
    """Sums, some with noise for patients, over the first kind of rows alone; without noise, `OpenSums`.

    Their total has several solutions: the heads that shrink them take these, and no others.
    """

    def start(self, paths: Heads, scaled: bool) -> tuple[Heads, Layers]:
        """Return the heads that the target can average, and the arrays from which it starts."""
        if not any(map(self.is_private, self.sources)):
            return super().start(paths, scaled)
        domains = self.usable(list(self.sources), self.first)
        if not any(map(self.is_private, domains)):
            return replace(self, sources={name: self.sources[name] for name in domains}).start(paths, scaled)
        # Read again each time: all sums as float64 would be too much memory.
        read = ((domain, self.first(domain)) for domain in domains)
        claimed = {domain: sums.deviation for domain, sums in read if isinstance(sums, PrivateSums)}

        def check(domain: str) -> None:
            if domain in claimed:
                check_deviation(claimed[domain], claimed.values())

        total = CentredSums.total(map(self.first, self.usable(domains, check)))
        start = in_float32({"solution": total.solution()})
        return "shrunk" if paths in ("both", "logistic") else paths, start

    def is_private(self, domain: str) -> bool:
        """Whether the sums in a source's reply protect patients."""
        return "centre" in self.sources[domain].answer.sums

    def first(self, domain: str) -> Sums | PrivateSums:
        """Return a source's sums over the first kind of rows; raise a `ValueError` if they are unusable."""
        if not self.is_private(domain):
            return self.read(domain)[0]
        update = self.sources[domain]
        sums = PrivateSums.from_arrays(update.answer.sums, *self.forms[0])
        if sums.rows > update.examples:  # patients, each with one row or more
            reports = f"but it reports {update.examples} examples"
            raise ValueError(f"its sums are of {sums.rows:g} patients, {reports}")
        return sums
