"""What a site's gate costs a message: milliseconds, bytes and memory of a SuperNode, with and without.

A SuperNode takes a message with a model, and gives a reply with a model of the same size; both by Flower's
own functions, without a network. (1) is Flower's own, (2) with the gate, which reads, judges, logs and writes
the reply again, (3) with ``allow-records`` too. Limit: 20 ms, and 10 times one hash of the model's bytes: by
such a hash Flower names each part of a message. The second table is of the rules alone, in an app without
a SuperNode: CPU time, so that other work on the machine matters less.
"""

import hashlib
import logging
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import MIB, quick_asked, show, show_machine, verdict
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import NodeStateFactory

from fda_flower.deployment.submission import write_app
from fda_flower.site import SiteGate
from fda_flower.supernode.gate import Gate
from fda_flower.wire.border import INSERT, PULL, PUSH, Crossing
from fda_flower.wire.internals import app_digest, bundle_of, task_identity

SIZES = {"small CNN": 10_000, "LeNet": 44_426, "ResNet-18": 11_689_512}
REPEATS = 15
MOST_HASHES, MOST_MS = 10.0, 20.0
FLOWER: Any = start_client_internal


def message_with(model: ArrayRecord) -> Message:
    """Return a train message."""
    content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": 1})})
    with task_identity():
        message = Message(content, 7, "train", group_id="1")
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def seconds_of(gate: Gate | None, node: dict[str, Any], app: Path, numbers: int) -> tuple[float, float, int]:
    """Return seconds and peak bytes of taking a message and giving its reply, and the bytes that leave."""
    values = np.random.default_rng(0).normal(size=numbers).astype(np.float32)
    model = ArrayRecord({"weight": Array(values)})
    message, left = message_with(model), [0]
    objects = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
    run = Run.create_empty(1)
    run.fab_hash = app_digest(app)
    factory = NodeStateFactory(ObjectStoreFactory())
    state, store = factory.state(), factory.objectstore_factory.store()
    state.set_node_id(7)
    pull, push = getattr(FLOWER, PULL), getattr(FLOWER, PUSH)
    if gate is not None:
        crossing = Crossing(gate, pull, push, getattr(FLOWER, INSERT))
        pull, push = crossing.pull, crossing.push
    own = {"state": state, "object_store": store}

    def send(reply: Message, tree: Any, duration: float) -> tuple[set[str], str]:
        return {each.object_id for each in iterate_object_tree(tree)}, ""

    def push_object(run_id: int, session: str, object_id: str, data: bytes) -> None:
        left[0] += len(data)

    def take_and_give() -> float:
        state.delete_messages(message_ids=[message.metadata.message_id])
        begun = time.perf_counter()
        pull(
            **own,
            node_config=node,
            receive=lambda: (message, get_object_tree(message)),
            get_run=lambda run_id: run,
            get_fab=lambda fab_hash, run_id: Fab(run.fab_hash, bundle_of(app), {}),
            pull_object=lambda run_id, object_id: objects[object_id],
            confirm_message_received=lambda run_id, message_id: None,
            trusted_entities=None,
        )
        taken = time.perf_counter() - begun
        store.delete(message.metadata.message_id)
        metrics = MetricRecord({"num-examples": 40, "train-loss": 0.5})
        reply = Message(RecordDict({"arrays": model, "metrics": metrics}), reply_to=message)
        getattr(FLOWER, INSERT)(reply, state, store)
        begun = time.perf_counter()
        push(**own, send=send, push_object=push_object)
        return taken + time.perf_counter() - begun

    take_and_give()
    seconds = median(take_and_give() for _ in range(REPEATS))
    left[0] = 0
    tracemalloc.start()
    take_and_give()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak, left[0]


RULES: dict[str, dict[str, Any]] = {
    "no site": {"partition-id": 0},
    "a site without rules": {"domain": "north", "gated": True},
    "a site with rules": {
        **{"domain": "north", "gated": True, "allow-methods": "all", "allow-batch-updates": "norms"},
        **{"min-samples": 10, "allow-records": "arrays,metrics,info:4000"},
    },
}
"""Node configurations; with ``gated`` the app's process does not write the log."""

CALLS, TURNS = 1000, 9


def microseconds_of(node: dict[str, Any]) -> float:
    """Return the least CPU time that the rules of a node configuration cost a message and its reply."""
    model = ArrayRecord({"weight": Array(np.zeros((10, 64), np.float32))})
    message = message_with(model)
    metrics = MetricRecord({"num-examples": 40, "train-loss": 0.5})
    reply = Message(RecordDict({"arrays": model, "metrics": metrics}), reply_to=message)
    gate, context, found = SiteGate(), Context(1, 7, node, RecordDict(), {"method": "fedavg"}), list[float]()
    for _ in range(TURNS):
        begun = time.process_time()
        for _ in range(CALLS):
            gate(message, context, lambda message, context: reply)
        found.append((time.process_time() - begun) / CALLS)
    return 1e6 * min(found)


def main() -> None:
    """Print the tables."""
    show_machine()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    sizes = dict(list(SIZES.items())[:2]) if quick_asked(__doc__) else SIZES
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app"
        app.mkdir()
        write_app(app)
        node = {"domain": "north", "state-dir": folder}
        named = {**node, "allow-records": "arrays,metrics"}
        for name, numbers in sizes.items():
            found = [seconds_of(gate, node, app, numbers) for gate in (None, Gate(node), Gate(named))]
            data = np.zeros(numbers, np.float32).tobytes()
            begun = time.perf_counter()
            hashlib.sha256(data).digest()
            hashed = time.perf_counter() - begun
            extra = found[2][0] - found[0][0]
            rows.append(
                [
                    f"{name} ({numbers:,})",
                    *(f"{1000 * seconds:.1f}" for seconds, _, _ in found),
                    f"{1000 * extra:.1f}",
                    verdict(extra / (MOST_HASHES * hashed + MOST_MS / 1000), 1),
                    f"{found[2][2] - found[0][2]:+,}",
                    f"{(found[2][1] - found[0][1]) / MIB:.1f}",
                ]
            )
    header = ["model (parameters)", "(1) ms", "(2) ms", "(3) ms", "(3) - (1)", "of the limit", "bytes", "MiB"]
    show("A message and its reply", header, rows)
    with task_identity():
        costs = [[name, f"{microseconds_of(node):.0f}"] for name, node in RULES.items()]
    show("The rules alone", ["node", "µs"], costs)


if __name__ == "__main__":
    main()
