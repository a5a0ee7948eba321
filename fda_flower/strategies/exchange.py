"""Messages to nodes, and their replies put back in the order of the nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fda_flower.strategies.node import Node


@dataclass(frozen=True)
class Asked:
    """A node with the message that was sent to it."""

    node: Node
    message: Message


@dataclass(frozen=True)
class Keys:
    """The names of the records that hold the model and the settings, for clients that have others."""

    arrays: str = "arrays"
    config: str = "config"


def ask(
    node: Node, kind: str, arrays: ArrayRecord, *settings: ConfigRecord, keys: Keys | None = None
) -> Asked:
    """A message with the model and the settings, in records of its own.

    Parameters
    ----------
    node : Node
        Whom to ask.
    kind : str
        ``"train"`` or ``"evaluate"``.
    arrays : ArrayRecord
        The global model.
    *settings : ConfigRecord
        Put together in one record; the last one wins.
    keys : Keys, optional
        Names of the records.
    """
    config = ConfigRecord({key: value for part in settings for key, value in part.items()})
    keys = keys or Keys()
    content = RecordDict({keys.arrays: ArrayRecord(dict(arrays)), keys.config: config})
    return Asked(node, Message(content, node.id, kind))


def answers(asked: Sequence[Asked], replies: Iterable[Message]) -> Iterator[tuple[Node, Message | None]]:
    """Each node that was asked, in that order, with its reply or None, whatever the order of arrival."""
    origins = {each.message.metadata.message_id: each.node.id for each in asked}
    answered: dict[int, Message] = {}
    for reply in replies:
        # The error reply of a dead SuperNode does not carry the node's own id.
        metadata = reply.metadata
        answered[origins.get(metadata.reply_to_message_id, metadata.src_node_id)] = reply
    for each in asked:
        yield each.node, answered.pop(each.node.id, None)


def by_our_names(replies: Iterable[Message], keys: Keys) -> Iterator[Message]:
    """The replies, with the client's model in the record ``arrays``."""
    for reply in replies:
        if reply.has_content() and keys.arrays in reply.content.array_records:
            reply.content["arrays"] = reply.content.pop(keys.arrays)
        yield reply


def taken_from(replies: list[Message]) -> Iterator[Message]:
    """The replies, each given away: its arrays are freed as soon as its update is made of them."""
    while replies:
        yield replies.pop()
