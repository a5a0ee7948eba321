"""The message by which the target combines a round's updates in the server's place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fda_flower.aggregation import AdaptiveRule, Update
from fda_flower.records import Record


@dataclass(frozen=True)
class Forwarded:
    """A source's reply that goes on to the target.

    Attributes
    ----------
    arrays : ArrayRecord
        The source's model, as it came.
    update : Update
        What the server read of it.
    beta : float
        Its fixed β.
    record : dict
        Its entry in the round's record.
    """

    arrays: ArrayRecord
    update: Update
    beta: float
    record: Record


def forward(
    content: RecordDict, weighing: AdaptiveRule, buffers: Sequence[str], sources: Sequence[Forwarded]
) -> None:
    """Add the sources' models to a train message, and how to combine them.

    Parameters
    ----------
    content : RecordDict
        Of the target's train message. It gets the `ArrayRecord` ``source.I`` of the ``I``-th source, and the
        `ConfigRecord` ``aggregate``: the lists ``domains``, ``betas``, ``examples``, ``steps``,
        ``learning-rates``, ``factors`` (by which to scale the updates) and ``buffers``, and ``weighing``.
    weighing : AdaptiveRule
        How to combine.
    buffers : Sequence[str]
        Names of the arrays that are no parameters.
    sources : Sequence[Forwarded]
        In the order of their domains.
    """
    columns: dict[str, Any] = {
        "domains": [each.record["domain"] for each in sources],
        "betas": [each.beta for each in sources],
        "examples": [each.update.examples for each in sources],
        "steps": [each.update.steps for each in sources],
        "learning-rates": [each.update.learning_rate for each in sources],
        "factors": [float(each.record.get("clipped", 1.0)) for each in sources],
        "buffers": list(buffers),
    }
    content["aggregate"] = ConfigRecord({**columns, "weighing": weighing.to_text()})
    for i, each in enumerate(sources):
        content[f"source.{i}"] = each.arrays
