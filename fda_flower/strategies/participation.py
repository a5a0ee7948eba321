"""Partial participation: in each round a fraction of the sources takes part, and the target always does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fda_flower.errors import invalid
from fda_flower.files import derive_seed
from fda_flower.records.record import DRAWN, Record
from fda_flower.strategies.nodes import Node


@dataclass(frozen=True)
class Participation:
    """The draw of a round's sources, each with the same probability (McMahan et al., 2017, Algorithm 1).

    Attributes
    ----------
    fraction : float
        ``C``, in (0, 1]; with 1 all sources take part.
    least : int
        Number of sources that are drawn at least.
    seed : int
        Seed of the draws.
    """

    fraction: float = 1.0
    least: int = 1
    seed: int = 0

    def size(self, sources: int) -> int:
        """Return how many of the connected sources take part in a round, as many as in Flower's ``FedAvg``.

        Examples
        --------
        >>> [Participation(fraction, least).size(5) for fraction, least in ((0.5, 1), (0.1, 2), (0.1, 9))]
        [2, 2, 5]
        """
        return min(sources, max(int(self.fraction * sources), self.least))

    def of(self, nodes: Sequence[Node], number: int) -> tuple[list[Node], Record]:
        """Return the nodes that take part in round `number`, in their order, and the entry of its record.

        The draw follows from the seed, the round and the sources' domains alone.
        """
        sources = [node.domain for node in nodes if not node.is_target]
        if (size := self.size(len(sources))) == len(sources):
            return [*nodes], {}
        ranked = sorted(sources, key=lambda domain: derive_seed(self.seed, DRAWN, number, domain))
        drawn = sorted(ranked[:size])
        return [node for node in nodes if node.is_target or node.domain in drawn], {DRAWN: drawn}

    def described(self, sources: int) -> str:
        """Return what the log says of the draw after the participants; empty if all sources take part."""
        if self.size(sources) == sources:
            return ""
        size = self.size(sources)
        return f". Each round draws {size} of them by the seed {self.seed}"


def read_participation(strategy: Any, fraction: float, nodes: int, seed: int) -> Participation:
    """Return a strategy's draw of at least this number of `nodes`, with the target.

    Raises a `ConfigError` if its method needs all sources in each round.
    """
    why = strategy.needs_all_sources
    if fraction < 1 and why is not None:
        remedy = "leave it out, or choose another method"
        raise invalid("fraction_train", fraction, remedy, f"but {type(strategy).__name__} {why}")
    least = max(strategy.min_sources, strategy.fewest_sources, nodes - strategy.has_target)
    return Participation(fraction, least, seed)
