"""The border between a SuperNode's apps and the SuperLink, in Flower's private functions."""

import hashlib
import math
import time
from collections.abc import Mapping
from inspect import signature
from types import SimpleNamespace
from typing import Any, Protocol

from flwr.app import Context, Message, RecordDict

from fda_flower.wire import private
from fda_flower.wire.internals import check_copies, emptied, failed


class Border(Protocol):
    """What a SuperNode asks before an app starts, and before a reply leaves."""

    marks: Mapping[str, Any]
    """Entries that it adds to the node configuration."""

    def refuses_app(self, digest: str) -> str | None:
        """Return why an app, by the SHA-256 of its bundle, may not start; None if it may."""

    def refuse(self, message: Message, context: Context, reason: str) -> Message:
        """Return the reply to a message whose app may not start."""

    def take(self, message: Message, context: Context) -> None:
        """Note a message that has come; it is the border's own."""

    def give(self, reply: Message) -> Message:
        """Return the message that leaves in place of an app's reply."""


PULL, PUSH, INSERT = "_pull_and_store_message", "_push_messages", "_insert_message"
"""Flower's functions with which a SuperNode takes a message, gives its replies, and replies itself."""


def run_supernode(least: float, share: float, border: Border) -> None:
    """Run ``flower-supernode`` with shorter waits, a share of the time since the first look, and a border.

    A wait lasts at least `least` seconds, and at most as long as Flower's own: 3 for a message, half a second
    for the reply of its own process. A SuperNode that waits otherwise is left as it is.

    Raises
    ------
    RunError
        If a private name of Flower is missing, without which there is no border.
    """
    private.check([private.GATE])
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    parts = vars(start_client_internal)
    if parts.get("time") is time:
        parts["time"] = SimpleNamespace(**vars(time) | {"sleep": _Waits(least, share).sleep})
    crossing = Crossing(border, parts[PULL], parts[PUSH], parts[INSERT])
    parts[PULL], parts[PUSH] = crossing.pull, crossing.push
    flower_supernode()


class Crossing:
    """Flower's two functions, with a border between them and the SuperLink."""

    def __init__(self, border: Border, pull: Any, push: Any, insert: Any) -> None:
        self._border, self._pull, self._push, self._insert = border, pull, push, insert
        self._configs: dict[int, dict[str, Any]] = {}

    def pull(self, **given: Any) -> int | None:
        """Take a message, unless its app may not start: then the refusal is its reply."""
        from flwr.common.config import get_fused_config_from_fab

        arrived: list[Any] = []
        runs: dict[int, Any] = {}

        def receive() -> Any:
            if (message := given["receive"]()) is not None:
                arrived.append(message)
            return message

        def get_run(run_id: int) -> Any:
            runs[run_id] = given["get_run"](run_id)
            self._check_app(runs[run_id].fab_hash)
            return runs[run_id]

        def get_fab(fab_hash: str, run_id: int) -> Any:
            fab = given["get_fab"](fab_hash, run_id)
            self._check_app(digest := hashlib.sha256(fab.content).hexdigest())
            if {fab_hash, fab.hash_str} != {digest}:
                raise _RefusedError(f"the bundle of the app is {digest}, but the run names {fab_hash}")
            self._configs[run_id] = get_fused_config_from_fab(fab.content, runs[run_id])
            return fab

        store, node = _Objects(given["object_store"]), {**given["node_config"], **self._border.marks}
        changed = {"receive": receive, "get_run": get_run, "get_fab": get_fab, "object_store": store}
        run_id: int | None
        try:
            run_id = self._pull(**given | changed | {"node_config": node})
        except _RefusedError as error:
            ((message, _),) = arrived
            run_id, context = int(message.metadata.run_id), self._context(message, given["state"], node)
            reply = self._border.refuse(emptied(message.metadata), context, str(error))
            if insert(self._insert, reply, message, given["state"], given["object_store"]):
                given["confirm_message_received"](run_id, message.metadata.message_id)
            return run_id
        if run_id is not None:
            ((message, tree),) = arrived
            question = _assembled(message, tree, store.held)
            context = self._context(message, given["state"], node)
            self._border.take(question if question.has_content() else emptied(message.metadata), context)
        return run_id

    def push(self, **given: Any) -> None:
        """Give replies as the border lets them go: parsed, and serialised again."""
        store = _Objects(given["object_store"])

        def send(message: Message, tree: Any, duration: float) -> tuple[set[str], str]:
            contents = {object_id: _awaited(store, object_id) for object_id in _objects_in(tree)}
            reply = self._border.give(_assembled(message, tree, contents))
            return _send_whole(reply, duration, given["send"], given["push_object"])

        self._push(**given | {"send": send})

    def _check_app(self, digest: str) -> None:
        if reason := self._border.refuses_app(digest):
            raise _RefusedError(reason)

    def _context(self, message: Message, state: Any, node: dict[str, Any]) -> Context:
        run_id = message.metadata.run_id
        return Context(run_id, state.get_node_id(), node, RecordDict(), self._configs.get(run_id, {}))


def insert(theirs: Any, reply: Message, message: Message, state: Any, store: Any) -> bool:
    """Insert a reply by Flower's function; from 1.43 on it takes the message, too, and may return False."""
    every = {"msg": reply, "reply_to": message, "state": state, "store": store}
    inserted = theirs(**{name: every[name] for name in signature(theirs).parameters if name in every})
    return inserted is not False


class _RefusedError(Exception):
    """A run's app may not start."""


class _Objects:
    """A SuperNode's store of objects, which also keeps the objects of an arriving message."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.held: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def preregister(self, run_id: int, tree: Any) -> list[str]:
        """Register a message's objects; keep those in the store, since the app's process removes them."""
        missing: list[str] = self._store.preregister(run_id, tree)
        self.held |= {each: self._store.get(each) or b"" for each in _objects_in(tree) - set(missing)}
        return missing

    def put(self, object_id: str, content: bytes) -> None:
        """Store an object, and keep it."""
        self.held[object_id] = content
        self._store.put(object_id, content)


def _objects_in(tree: Any) -> set[str]:
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

    return {node.object_id for node in iterate_object_tree(tree)}


def _awaited(store: Any, object_id: str) -> bytes:
    """Return an object once the app has stored it; it is empty if it is gone."""
    while (content := store.get(object_id)) == b"":
        time.sleep(0.05)
    return content or b""


def _assembled(message: Message, tree: Any, contents: dict[str, bytes]) -> Message:
    """Return a message with the content in its objects, or an error if they are malformed."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    try:
        check_copies(contents)
        content = inflate_object_from_contents(tree.object_id, dict(contents))
        if isinstance(content, Message) and (content.has_error() or isinstance(content.content, RecordDict)):
            content.metadata.__dict__["_message_id"] = message.metadata.message_id
            return content
        reason = f"its content is {type(content).__name__}, expected records"
    except Exception as error:  # bytes from another program may raise anything
        reason = repr(error)
    return failed(message.metadata, f"it cannot be assembled: {reason}")


def _send_whole(message: Message, duration: float, send: Any, push_object: Any) -> tuple[set[str], str]:
    """Send a message with all its objects; nothing is left to push."""
    from flwr.supercore.inflatable import inflatable_object as flower

    with flower.no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = flower.get_all_nested_objects(message)
        missing, session = send(message, flower.get_object_tree(message), duration)
        for object_id in missing:
            push_object(message.metadata.run_id, session, object_id, objects[object_id].deflate())
    return set(), session


class _Waits:
    """Sleeps that grow longer; a request for another number of seconds starts a new wait."""

    def __init__(self, least: float, share: float) -> None:
        self._least, self._share = least, share
        self._longest, self._begun = math.nan, 0.0

    def sleep(self, longest: float) -> None:
        now = time.monotonic()
        if longest != self._longest:
            self._longest, self._begun = longest, now
        time.sleep(min(longest, max(self._least, self._share * (now - self._begun))))
