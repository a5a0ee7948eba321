"""Apps that tell what they were asked, and messages to them, for engines in other processes."""

import os
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

ARRAYS: list[NDArray[Any]] = [
    np.arange(600_000, dtype=np.float32).reshape(2, -1),
    np.zeros((0, 3)),
    np.array(7),
    np.array([True, False]),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
]
"""Arrays of any kind."""


def app_of(train):
    """An app of this train function alone."""
    app = ClientApp()
    app.train()(train)
    return app


def counting():
    """An app that tells its process, and how often the node was asked, unless it is told to fail."""

    @app_of
    def app(message, context):
        what = message.content["what"]
        if "fail" in what:
            raise ValueError("my data are gone")
        before = context.state.config_records.get("seen", {"n": 0})["n"]
        context.state["seen"] = ConfigRecord({"n": before + 1, "process": os.getpid()})
        reply = Message(RecordDict({"seen": context.state["seen"]}), reply_to=message)
        if "strange" in what:
            reply.metadata.__dict__["strange"] = lambda: None
        return reply

    return app


def asked(grid, nodes, **what):
    contents = [RecordDict({"what": ConfigRecord(what)}) for _ in nodes]
    messages = [Message(content, node, "train") for content, node in zip(contents, nodes, strict=True)]
    return list(grid.send_and_receive(messages))


def echoing():
    """An app that sends back what it gets."""
    return app_of(lambda message, context: Message(message.content, reply_to=message))


def send_arrays(grid):
    """Check that an app that echoes gets and sends arrays of any kind unchanged."""
    sent = ArrayRecord({str(i): Array(array) for i, array in enumerate(ARRAYS)})
    first, second, *_ = grid.get_node_ids()
    contents = [RecordDict({"arrays": sent, "again": sent}) for _ in range(3)]
    nodes = (first, second, first)
    messages = [Message(content, node, "train") for content, node in zip(contents, nodes, strict=True)]
    for reply in grid.send_and_receive(messages):
        for name in ("arrays", "again"):
            for found, array in zip(reply.content[name].values(), ARRAYS, strict=True):
                np.testing.assert_array_equal(found.numpy(), array, strict=True)
            assert reply.content[name].count_bytes() == sent.count_bytes()
