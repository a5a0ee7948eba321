"""What a target receives that aggregates in the server's place (Jiang et al., ICLR 2024, Section C.1)."""

from collections.abc import Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from fda_flower.aggregation import AdaptiveRule
from fda_flower.files import checksum
from fda_flower.strategies.base import Sources
from fda_flower.wire import protocol
from fda_flower.wire.protocol import to_record


def shuffled(sources: Sources) -> Sources:
    """Return the sources in the order of their models' digests, which says nothing of their names (C.1)."""

    def digest(domain: str) -> str:
        return checksum({}, sources[domain].model)

    return {domain: sources[domain] for domain in sorted(sources, key=digest)}


def forwarded(
    rule: AdaptiveRule, buffers: Sequence[str], sources: Sources, betas: Sequence[float]
) -> dict[str, ArrayRecord | ConfigRecord]:
    """Return the records from which the target aggregates the sources' models in the server's place.

    The `ArrayRecord` ``source.I`` is the model of the ``I``-th source. The `ConfigRecord` ``aggregate`` holds
    the rule as text (``weighing``) and a list with the other values of each source, without their names.
    """
    updates = list(sources.values())
    columns: dict[str, Any] = {
        "betas": list(betas),
        "examples": [update.examples for update in updates],
        "steps": [update.steps for update in updates],
        "learning-rates": [update.learning_rate for update in updates],
        "batch-sizes": [update.batch_size for update in updates],
        "factors": [update.factor for update in updates],
        "buffers": list(buffers),
    }
    records: dict[str, ArrayRecord | ConfigRecord] = {
        f"source.{i}": to_record(update.model) for i, update in enumerate(updates)
    }
    return {protocol.AGGREGATE: ConfigRecord({**columns, "weighing": rule.to_text()}), **records}
