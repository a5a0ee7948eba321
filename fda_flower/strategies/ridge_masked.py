"""Ridge's masked sums, of which the server sees the total alone."""

import numpy as np

from fda_flower.aggregation import Sums
from fda_flower.strategies.ridge_sums import OpenSums, asks_centred
from fda_flower.strategies.secure_sums import SecureSum
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import MaskSums


class MaskedSums(OpenSums):
    """Ridge's masked sums: the server sees only their total, of at least `least` sources."""

    def total(self) -> tuple[list[Sums], list[str]]:
        """Request masked sums; return their total over each kind of rows, and the domains in it."""
        sizes = [len(self.kind.zero(*form).vector) for form in self.forms]
        question = MaskSums(stage=wire.KEYS, centred=asks_centred(self.round.nodes))
        secure = SecureSum(self.round, sum(sizes), self.least, question)
        words, updates = secure.total(self.sources)
        parts = np.split(wire.decode(words), np.cumsum(sizes)[:-1])
        totals = [self.kind.from_vector(part, *form) for part, form in zip(parts, self.forms, strict=True)]
        rows = sum(each.examples for each in updates.values())
        for total in totals:
            if total.rows != rows:
                raise ValueError(
                    f"the sums are of {total.rows:g} rows, but the sources report {rows} examples"
                )
        return totals, list(updates)

    def solvable(self) -> list[Sums]:
        """Return the total in the form that server and target solve with."""
        return self.ready(self.total()[0])
