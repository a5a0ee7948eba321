"""Flower's private parts are as this package uses them."""

import math
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import metadata_to_proto  # type: ignore[attr-defined]
from flwr.proto import message_pb2, runtime_pb2
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.superlink.grid import InMemoryGrid, http_grid
from flwr.superlink.grid.http_grid import HttpGrid

from fda_flower.engines import LocalGrid, PollingGrid
from fda_flower.legacy.grid import ManagerGrid
from fda_flower.wire import internals
from fda_flower.wire.internals import (
    INFLATE,
    cause_of,
    context_from_bytes,
    context_to_bytes,
    empty_run,
    error_reply,
    message_from_parts,
    message_to_parts,
    numbered,
    pull_sooner,
    seconds_to_connect,
    set_task,
    survive_bad_replies,
    task,
    task_identity,
)

PULLS: list[Any] = [inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree]
IDENTITY = ("_task_id", "_run_id", "_node_id")


def message():
    return Message(RecordDict({"config": ConfigRecord({"a": 1})}), 7, "train")


def identity():
    return [getattr(internals.TaskIdentity, field) for field in IDENTITY]  # type: ignore[attr-defined]


@pytest.fixture
def identified(monkeypatch):
    """Be in a run of these numbers, or outside any."""

    def become(*numbers):
        for number, field in zip(numbers, IDENTITY, strict=True):
            monkeypatch.setattr(internals.TaskIdentity, field, number)  # type: ignore[attr-defined]

    return become


def test_messages_can_be_made_with_a_task_identity_which_is_a_runs_own_or_taken_back(identified):
    identified(None, None, None)
    with pytest.raises(RuntimeError, match="is not set"):
        message()
    with pytest.raises(ZeroDivisionError), task_identity():
        message().metadata.run_id / 0
    assert identity() == [None, None, None]
    set_task({"task_id": 11, "run_id": 12, "node_id": 13})
    with task_identity():
        assert identity() == list(task().values()) == [11, 12, 13]


def test_each_message_gets_an_id_of_its_own_that_replies_and_errors_refer_to(in_a_run):
    messages = [message(), message()]
    sent = numbered(iter(messages)) + numbered([message()])
    assert sent[:2] == messages
    ids = [each.metadata.message_id for each in sent]
    assert len(set(ids)) == 3
    assert all(ids)
    error = error_reply(sent[0], "the disk is full")
    for reply in (Message(RecordDict(), reply_to=sent[0]), error):
        assert (reply.metadata.reply_to_message_id, reply.metadata.src_node_id) == (ids[0], 7)
    assert error.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert error.error.reason == "the disk is full"


def test_a_message_is_the_same_after_its_way_to_another_process(in_a_run):
    (sent,) = numbered([message()])
    received = message_from_parts(*message_to_parts(sent))
    assert vars(received.metadata) == vars(sent.metadata)
    assert received.content == sent.content
    failed = message_from_parts(*message_to_parts(error_reply(sent, "the disk is full")))
    assert failed.error.reason == "the disk is full"
    assert failed.metadata.reply_to_message_id == sent.metadata.message_id


def test_a_context_is_the_same_after_its_way_to_another_process():
    state = RecordDict({"own": MetricRecord({"weight": 0.5})})
    context = Context(3, 7, {"domain": "a", "resident": True}, state, {"lr": 0.1, "rounds": 2})
    assert context_from_bytes(context_to_bytes(context)) == context


def test_parts_that_are_on_their_way_are_asked_for_again_sooner(monkeypatch):
    for pull in PULLS:
        monkeypatch.setattr(pull, "__kwdefaults__", dict(pull.__kwdefaults__))
    asked = list[float]()

    def part(object_id):
        asked.append(time.monotonic())
        if len(asked) < 4:
            raise inflatable_utils.ObjectUnavailableError(object_id)
        return b"here"

    pull_sooner()
    assert inflatable_utils.pull_objects(["a"], part) == {"a": b"here"}
    waited = [after - before for before, after in pairwise(asked)]
    assert len(waited) == 3
    assert sum(waited) < 0.9, "Flower alone waits 1, 2 and 4 seconds"
    assert {pull.__kwdefaults__["backoff_cap"] for pull in PULLS} == {1.0}


def test_a_flower_that_pulls_otherwise_is_left_as_it_is(monkeypatch):
    before = PULLS[1].__kwdefaults__["backoff_cap"]
    monkeypatch.delattr(inflatable_utils, "pull_objects")
    monkeypatch.setattr(inflatable_utils, "pull_and_inflate_object_from_tree", lambda tree: tree)
    pull_sooner()
    assert PULLS[1].__kwdefaults__["backoff_cap"] == before


class Link:
    """What Flower's grid asks of a SuperLink: replies, in parts that it does not read."""

    def __init__(self, replies):
        self.replies, self.parts = list(replies), {}
        for reply in self.replies:
            about, parts = message_to_parts(reply)
            self.parts |= dict(zip(about["objects"], parts, strict=True))
            reply.metadata.__dict__["_message_id"] = about["objects"][-1]

    def PullMessages(self, request):  # noqa: N802 - Flower's name
        return runtime_pb2.PullAppMessagesResponse(
            messages_list=[
                message_pb2.Message(metadata=metadata_to_proto(each.metadata)) for each in self.replies
            ],
            message_object_trees=[get_object_tree(each) for each in self.replies],
        )

    def PullObject(self, request):  # noqa: N802
        content = self.parts[request.object_id]
        return message_pb2.PullObjectResponse(
            object_found=True, object_available=True, object_content=content
        )

    def ConfirmMessageReceived(self, request):  # noqa: N802
        pass


def content_of(n):
    content = RecordDict({"arrays": ArrayRecord([np.full(2, n)])})
    content["metrics"], content["info"] = MetricRecord({"n": n}), ConfigRecord({"n": n})
    return content


def with_body(part, body, kind=None):
    """A part of a message with other content, which a SuperLink takes as well."""
    head = part.partition(b"\0")[0].decode().split(" ")
    return f"{kind or head[0]} {head[1]} {len(body)}".encode() + b"\0" + body


DAMAGE = {
    "noise": lambda part: with_body(part, b"\xff" * 40),
    "another kind": lambda part: with_body(part, part.partition(b"\0")[2], "ArrayChunk"),
    "other types": lambda part: with_body(
        part, b'{"dtype": 5, "shape": "x", "stype": [], "arraychunk_ids": [0]}'
    ),
    "copies": lambda part: with_body(
        part,
        b'{"dtype": "i8", "shape": [2], "stype": "numpy.ndarray", "arraychunk_ids": [0%s]}' % (b",0" * 10**5),
    ),
}


@pytest.mark.parametrize(
    "kind", ["Message", "RecordDict", "ArrayRecord", "Array", "MetricRecord", "ConfigRecord"]
)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_reply_that_cannot_be_put_together_is_an_error_and_the_others_arrive(
    kind, damage, monkeypatch, in_a_run
):
    monkeypatch.setattr(http_grid, INFLATE, vars(http_grid)[INFLATE])  # to be as before
    replies = [Message(content_of(n), reply_to=asked) for n, asked in enumerate(numbered([message()] * 3))]
    link, grid = Link(replies), HttpGrid(token="any")
    grid.set_run(empty_run())
    monkeypatch.setattr(grid, "_client", link)
    about, parts = message_to_parts(replies[1])
    damaged = [
        i for i, part in zip(about["objects"], parts, strict=True) if part.startswith(kind.encode() + b" ")
    ]
    link.parts |= {i: DAMAGE[damage](link.parts[i]) for i in damaged}
    survive_bad_replies(grid)
    first, bad, last = grid.pull_messages([])
    assert [first.content, last.content] == [content_of(0), content_of(2)]
    assert bad.has_error()


IN_RAY = """<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'ray::ClientAppActor.run() (pid={pid})
           ^^^^^^^^
  File "/env/site-packages/flwr/client_app.py", line 161, in __call__
    return registered(message, context)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/app/task.py", line 7, in load
    net.load_state_dict(arrays)
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "w".

The above exception was the direct cause of the following exception:

ray::ClientAppActor.run() (pid={pid})
  File "/env/site-packages/flwr/ray_actor.py", line 65, in run
    raise ClientAppException(str(ex)) from ex
flwr.ClientAppException: Message: 'lost'
'>"""


def test_the_cause_in_a_traceback_is_the_first_error_in_its_own_words_and_the_same_at_each_node():
    told = {cause_of(IN_RAY.format(pid=pid)) for pid in (1, 2)}
    missing = 'Missing key(s) in state_dict: "w".'
    assert told == {f"RuntimeError: Error(s) in loading state_dict for Net: {missing} (task.py, line 7)"}
    assert cause_of("no traceback\nat all") == "no traceback\nat all"


def test_only_a_simulation_has_all_its_nodes_in_a_moment():

    of_simulation, deployed = InMemoryGrid.__new__(InMemoryGrid), HttpGrid.__new__(HttpGrid)
    proxies = [GridClientProxy(1, deployed, 1), GridClientProxy(2, of_simulation, 1)]
    managers = [
        SimpleNamespace(all=lambda found=found: found) for found in ({}, *({"c": p} for p in proxies))
    ]
    here = LocalGrid(ClientApp(), 1)
    grids = [here, PollingGrid(here), of_simulation, deployed, *(ManagerGrid(each) for each in managers)]  # type: ignore[arg-type]
    assert [*map(seconds_to_connect, grids)] == [0, 0, 10, math.inf, math.inf, math.inf, 10]
