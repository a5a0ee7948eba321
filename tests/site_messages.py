"""Messages and contexts as Flower gives them to a node's process, and an app that is loaded in an instant."""

import sys

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower.wire.internals import numbered, task_identity

APP = '''
"""Does what a message says, and counts in the context's state how often."""

import os, sys, time

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

def make():
    app = ClientApp()

    def act(message, context):
        count = context.state.setdefault("count", MetricRecord({"calls": 0}))
        count["calls"] += 1
        print("worker says", message.content["config"]["do"], flush=True)
        match message.content["config"]["do"]:
            case "raise":
                raise OSError("the disk is full")
            case "crash":
                os._exit(3)
            case "problem":
                return Message(RecordDict({"info": ConfigRecord({"problem": "no data"})}), reply_to=message)
        content = {"numbers": MetricRecord({"pid": os.getpid()}), "arrays": message.content["arrays"]}
        return Message(RecordDict(content), reply_to=message)

    app.train()(act)
    app.query("role")(act)
    return app
'''
REFERENCE = "handed_app:make"


def message(do="answer", kind="train"):
    arrays = {"a": Array(np.arange(6, dtype=np.float32).reshape(2, 3)), "n": Array(np.array(7))}
    content = RecordDict({"config": ConfigRecord({"do": do}), "arrays": ArrayRecord(arrays)})
    with task_identity():
        return numbered([Message(content, 7, kind)])[0]


def context(run=1, **node):
    state = RecordDict({"old": MetricRecord({"a": 1.5})})
    return Context(run, 7, node, state, {"lr": 0.1})


def write_app(folder, monkeypatch):
    """Put the app on the path, as a package that is installed."""
    (folder / "handed_app.py").write_text(APP, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "handed_app", raising=False)
