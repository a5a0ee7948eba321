"""What a round's record has of the target's evaluation, and of the samples that each node tells of."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fda_flower import protocol
from fda_flower.aggregation import Layers
from fda_flower.metrics import METRICS
from fda_flower.records import TEST_EXAMPLES, Record
from fda_flower.strategies.nodes import Node

MOST_CLASSES = 1000
"""Classes of a confusion matrix that a record takes: more would make it some megabytes long."""

ENDINGS = ("", f"-{protocol.GLOBAL}", f"-{protocol.FINAL_HEAD}")
EVALUATION = tuple(f"{name}{ending}" for ending in ENDINGS for name in METRICS)
"""Metrics of the target's evaluation that go into the round's record."""

DETAILS = (protocol.OUTCOMES, protocol.CONFUSION)
"""Records of arrays that an evaluation may have beside its metrics."""

HEADLINE = (*METRICS, *DETAILS, TEST_EXAMPLES)
"""Entries of a round's record that are the headline's."""

EVALUATED = {f"{protocol.EVAL}{name}": name for name in METRICS} | {
    f"{protocol.EVAL}{protocol.NUM_EXAMPLES}": TEST_EXAMPLES
}
"""Metrics of a train reply with an evaluation, by their names in the record."""


def read_outcomes(arrays: Layers) -> Record:
    """Return what a record says of which test samples a model gets right; nothing if it cannot be read."""
    right, examples = (arrays.get(name, np.zeros(0)) for name in ("right", "examples"))
    if right.dtype != np.uint8 or examples.size != 1 or not np.issubdtype(examples.dtype, np.integer):
        return {}
    count = int(examples.item())
    if count < 0 or right.size != -(-count // 8):
        return {}
    return {"outcomes": right.tobytes().hex(), "test-examples": count}


def read_confusion(arrays: Layers, names: Sequence[str]) -> Record:
    """Return a confusion matrix with its classes; nothing if it cannot be read."""
    counts = arrays.get("counts", np.zeros(0))
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not np.issubdtype(counts.dtype, np.integer):
        return {}
    if len(counts) > MOST_CLASSES or (counts < 0).any():
        return {}
    classes = list(names) if len(names) == len(counts) else [str(i) for i in range(len(counts))]
    return {protocol.CONFUSION: {"classes": classes, "counts": counts.tolist()}}


def read_details(records: Mapping[str, Layers], names: Sequence[str]) -> Record:
    """Return what the records `DETAILS` of a reply say; `names` are those of the classes."""
    outcomes = read_outcomes(records.get(protocol.OUTCOMES, {}))
    return outcomes | read_confusion(records.get(protocol.CONFUSION, {}), names)


def read_sizes(nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return how many samples each domain has to train, labelled, to validate and to test, as far as told."""
    told = {
        "labelled": protocol.LABELLED,
        "unlabelled": protocol.UNLABELLED,
        "validation": protocol.HELD_OUT,
        "test": protocol.TEST,
    }
    sizes = {
        node.domain: {name: n for name, key in told.items() if isinstance(n := node.info.get(key), int)}
        for node in nodes
    }
    for found in sizes.values():
        if "labelled" in found:
            found["train"] = found["labelled"] + found.get("unlabelled", 0)
    return {domain: found for domain, found in sizes.items() if found}
