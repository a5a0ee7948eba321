"""What sites tell of their privacy: into the round's record, or the end of the run."""

import math

from flwr.app import Message

from fda_flower import protocol
from fda_flower.errors import RunError
from fda_flower.records import PrivacyRecord, RoundRecord
from fda_flower.strategies.nodes import Node


def record_privacy(record: RoundRecord, node: Node, reply: Message | None) -> None:
    """Record the ``ε`` that a site tells with its reply, be the reply usable or not.

    Raises
    ------
    RunError
        If the site sends nothing any more, since its budget is spent.
    """
    if reply is None:
        return
    if reply.has_error():
        reason = str(reply.error.reason)
        if protocol.BUDGET in reason:
            raise RunError(
                f"round {record['round']} cannot be done, since a site refuses: {_line(reason)}. The model "
                "of the round before is kept: use it, or resume once the site gives a larger max-epsilon"
            )
        return
    info = protocol.settings_in(reply.content, protocol.INFO)
    epsilon, delta, uncovered = (
        info.get(key) for key in (protocol.EPSILON, protocol.DELTA, protocol.UNCOVERED)
    )
    if not isinstance(epsilon, float) or not isinstance(delta, float) or not math.isfinite(epsilon + delta):
        return
    told: PrivacyRecord = {"epsilon": epsilon, "delta": delta}
    known = record.setdefault("privacy", {}).get(node.domain, {})
    named = {*known.get("uncovered", ()), *(uncovered if isinstance(uncovered, list) else ())}
    if named:
        told["uncovered"] = sorted(map(str, named))
    record["privacy"][node.domain] = told


def _line(reason: str) -> str:
    return " ".join(reason.split())
