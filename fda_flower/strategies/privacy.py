"""What sites tell of their privacy: into the round's record, or the end of the run."""

from collections.abc import Sequence

from flwr.app import Message

from fda_flower import protocol
from fda_flower.errors import RunError, printable
from fda_flower.records import Record
from fda_flower.strategies.nodes import Node

MOST_UNCOVERED = 100
"""Entries of a reply that a record names as not covered."""


def record_privacy(record: Record, node: Node, reply: Message | None) -> None:
    """Record the ``ε`` that a site tells with its reply, be the reply usable or not; no impossible one."""
    if reply is None or reply.has_error():
        return
    info = protocol.settings_in(reply.content, protocol.INFO)
    epsilon, delta, uncovered = (
        info.get(key) for key in (protocol.EPSILON, protocol.DELTA, protocol.UNCOVERED)
    )
    if not isinstance(epsilon, float) or not isinstance(delta, float):
        return
    if not (0 <= epsilon < float("inf") and 0 <= delta <= 1):
        return
    told: Record = {"epsilon": epsilon, "delta": delta}
    known = record.setdefault("privacy", {}).get(node.domain, {})
    names = uncovered[:MOST_UNCOVERED] if isinstance(uncovered, list) else ()
    if named := {*known.get("uncovered", ()), *(printable(str(name)) for name in names)}:
        told["uncovered"] = sorted(named)
    record["privacy"][node.domain] = told


def check_budgets(record: Record, spent: Sequence[Node], asked: Sequence[Node]) -> None:
    """Raise a `RunError` if a held round cannot be done later either, since budgets are spent.

    A source alone cannot end a run by saying so: either the target says it, or all sources that were asked.

    Parameters
    ----------
    record : Record
        The record of the held round.
    spent, asked : sequence of Node
        Who says that its privacy budget is spent, and who was asked to train.
    """
    target = any(node.is_target for node in spent)
    sources = {node for node in asked if not node.is_target}
    if not target and not (sources and sources <= set(spent)):
        return
    names = {node.domain for node in spent}
    reasons = (
        f"'{drop['domain']}': {drop['reason']}" for drop in record["dropped"] if drop["domain"] in names
    )
    raise RunError(
        f"round {record['round']} cannot be done, since sites refuse: {'; '.join(reasons)}. The model of the "
        "round before is kept: use it, or resume once the sites give a larger max-epsilon"
    )
