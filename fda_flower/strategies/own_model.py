"""What the methods share whose target trains a model that it keeps to itself."""

from collections.abc import Iterable
from typing import ClassVar

from flwr.app import ArrayRecord, Message, MetricRecord

from fda_flower.protocol import FRESH_START
from fda_flower.strategies.base import DomainAdaptationStrategy


class OwnModel(DomainAdaptationStrategy):
    """A strategy whose target keeps a model of its own between rounds, and never sends it.

    A subclass measures the metric ``fresh-start`` of the target's reply: 1 if it had no such model, else 0.
    If it had one before, the round's record says what it has lost: the target's ``fallback``.
    """

    starts_from: ClassVar[str] = "the global one"
    """The model from which a target without one begins."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies; say, also of a held round, if the target has lost its own model."""
        result = super().aggregate_train(server_round, replies)
        entry = self.record["target"] or {}
        if entry.pop(FRESH_START, 0) and any(record["target"] for record in self.history):
            entry["fallback"] = f"it had no model of its own, and began from {self.starts_from}"
        return result
