"""The gate of a SuperNode, between Flower's own functions that take messages and give replies."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal as flower
from flwr.supernode.nodestate import NodeStateFactory

from fda_flower.deployment.submission import write_app
from fda_flower.errors import ConfigError
from fda_flower.site.log import read_log
from fda_flower.supernode.gate import Gate
from fda_flower.wire.border import INSERT, PULL, PUSH, Crossing, insert
from fda_flower.wire.bundles import CONTENT, Form, split
from fda_flower.wire.internals import app_digest, task_identity
from fda_flower.wire.protocol import GATED

FLOWER: Any = flower
SECRET = "the patient 4711 has diabetes"
DOUBLES = (SECRET + " " * (-len(SECRET) % 8)).encode()
ALLOWED = "arrays,metrics.train_loss,metrics.num-examples,info.domain:20,info.role:20"


class SuperNode:
    """A SuperNode of a SuperLink that is not there; `app` is the folder of its run's app."""

    def __init__(self, app: Path, **node: Any) -> None:
        self.node = node
        self.fab = build_fab_from_disk(app)
        factory = NodeStateFactory(ObjectStoreFactory())
        self.state, self.store = factory.state(), factory.objectstore_factory.store()
        self.state.set_node_id(7)
        functions = (getattr(FLOWER, name) for name in (PULL, PUSH, INSERT))
        self.crossing = Crossing(Gate(node), *functions)
        self.started: list[str] = []
        self.confirmed: list[str] = []
        self.context: Any = None

    def ask(self, content: RecordDict, answer: Any, kind: str = "train", digest: str = "") -> Message:
        """Return the message that leaves; `answer` makes the app's reply."""
        with task_identity():
            message = Message(content, 7, kind, group_id="3")
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = get_all_nested_objects(message)
        run = replace(
            Run.create_empty(1), fab_hash=digest or hashlib.sha256(self.fab).hexdigest(), override_config={}
        )
        left: dict[str, bytes] = {}
        sent: list[Any] = []

        def send(reply: Message, tree: Any, duration: float) -> tuple[set[str], str]:
            sent.append((reply, tree))
            return {each.object_id for each in flatten(tree)}, "session"

        self.crossing.pull(
            state=self.state,
            object_store=self.store,
            node_config=self.node,
            receive=lambda: (message, get_object_tree(message)),
            get_run=lambda run_id: run,
            get_fab=lambda fab_hash, run_id: Fab(run.fab_hash, self.fab, {}),
            pull_object=lambda run_id, object_id: objects[object_id].deflate(),
            confirm_message_received=lambda run_id, message_id: self.confirmed.append(message_id),
            trusted_entities=None,
        )
        if self.state.get_run(1) is not None:
            self.started.append(kind)
            self.context = self.state.get_run_series_context(0)
            insert(FLOWER._insert_message, answer(message), message, self.state, self.store)
        self.crossing.push(
            state=self.state,
            object_store=self.store,
            send=send,
            push_object=lambda run_id, session, object_id, data: left.update({object_id: data}),
        )
        ((reply, tree),) = sent
        assert set(left) == {each.object_id for each in flatten(tree)}
        found = inflate_object_from_contents(tree.object_id, dict(left))
        assert isinstance(found, Message)
        assert found.metadata.reply_to_message_id == message.metadata.message_id
        assert (found.metadata.group_id, found.metadata.message_type) == ("3", kind)
        self.bytes_left = b"".join([*left.values(), repr(reply).encode()])
        return found


def flatten(tree: Any) -> list[Any]:
    return [tree, *(each for child in tree.children for each in flatten(child))]


def model(value: float = 0.5) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full((2, 3), value, np.float32)), "b": Array(np.full(3, value))})


def question() -> RecordDict:
    return RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 3})})


def quickstart(message: Message) -> Message:
    metrics = MetricRecord({"train_loss": 0.25, "num-examples": 40})
    return Message(RecordDict({"arrays": model(1.5), "metrics": metrics}), reply_to=message)


def hostile(how: str) -> Any:
    """An app that sends what it must not."""

    def answer(message: Message) -> Message:
        data = np.frombuffer(SECRET.encode(), np.uint8)
        extra: dict[str, Any] = {
            "another array": {"arrays": ArrayRecord({**model(), "x": Array(data)})},
            "another record": {"data": ArrayRecord({"x": Array(data)})},
            "an array of another form": {"arrays": ArrayRecord({**model(), "w": Array(data)})},
            "a text": {"config": ConfigRecord({"note": SECRET})},
            "the name of a record": {SECRET: MetricRecord({"train_loss": 0.5})},
            "the name of a metric": {"metrics": MetricRecord({SECRET: 0.5})},
            "the name of an empty record": {SECRET: MetricRecord({})},
            "the type of an array": {
                "arrays": ArrayRecord({**model(), "w": Array(SECRET, (2, 3), "numpy.ndarray", b"x")})
            },
            "a long text where a short one may be": {"info": ConfigRecord({"domain": SECRET})},
            "a text where a number may be": {"metrics": ConfigRecord({"train_loss": SECRET})},
            "bytes where a number may be": {"metrics": ConfigRecord({"train_loss": SECRET.encode()})},
            "a list of texts": {"metrics": ConfigRecord({"train_loss": [SECRET]})},
            "a list of numbers": {"metrics": MetricRecord({"train_loss": np.frombuffer(DOUBLES).tolist()})},
            "a text where an array may be": {"arrays": ConfigRecord({"w": SECRET})},
        }
        if how == "an error":
            return Message(Error(0, SECRET), reply_to=message)
        content = {**quickstart(message).content, **extra.get(how, {})}
        reply = Message(RecordDict(content), reply_to=message)
        if how == "the metadata":
            reply.metadata.__dict__["_group_id"] = SECRET
        return reply

    return answer


HOSTILE = [
    *("another array", "another record", "an array of another form", "a text", "the name of a record"),
    *("the name of a metric", "the name of an empty record", "the type of an array"),
    *("a long text where a short one may be", "an error", "the metadata"),
    *("a text where a number may be", "bytes where a number may be", "a list of texts", "a list of numbers"),
    "a text where an array may be",
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app").mkdir()
    write_app(tmp_path / "app")
    return tmp_path / "app"


@pytest.mark.parametrize("how", HOSTILE)
def test_of_a_hostile_app_nothing_leaves_and_the_log_says_why(how, folder, tmp_path):
    node = SuperNode(folder, **{"allow-records": ALLOWED, "state-dir": str(tmp_path), "domain": "north"})
    reply = node.ask(question(), hostile(how))
    assert SECRET.encode() not in node.bytes_left
    (line,) = read_log(tmp_path)
    if how == "the metadata":  # the answer is written again as one to the message that came
        assert reply.content["metrics"]["train_loss"] == 0.25
        return
    assert reply.has_error()
    assert line["round"] == 3
    if how == "an error":
        assert line["failed"] == SECRET
    else:
        assert "allow-records" in line["refused"]


def test_an_app_that_says_what_is_allowed_passes_unchanged_and_is_logged(folder, tmp_path):
    node = SuperNode(folder, **{"allow-records": ALLOWED, "state-dir": str(tmp_path), "domain": "north"})
    reply = node.ask(question(), quickstart)
    assert np.array_equal(reply.content["arrays"]["w"].numpy(), model(1.5)["w"].numpy())
    (line,) = read_log(tmp_path)
    assert line["records"]["arrays"]["arrays"] == {"w": ["float32", [2, 3]], "b": ["float64", [3]]}
    assert node.context.node_config[GATED] is True, "the app leaves the log to the SuperNode"


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("of_app", Form)
def test_each_form_is_judged_by_what_it_holds_and_what_leaves_has_the_apps(form, of_app, folder, tmp_path):
    node = SuperNode(folder, **{"allow-records": ALLOWED, "state-dir": str(tmp_path)})

    def written(answer: Any) -> Any:
        return lambda message: Message(of_app.write(answer(message).content), reply_to=message)

    reply = node.ask(form.write(question()), written(quickstart))
    assert Form.of(reply.content) is of_app
    assert split(reply.content)["arrays"]["w"].numpy()[0, 0] == 1.5
    for how in set(HOSTILE) - {"an error", "the metadata"}:
        assert node.ask(form.write(question()), written(hostile(how))).has_error()
    assert SECRET.encode() not in node.bytes_left
    first, *others = read_log(tmp_path)
    assert first["records"]["arrays"]["arrays"] == {"w": ["float32", [2, 3]], "b": ["float64", [3]]}
    assert {"allow-records" in line["refused"] for line in others} == {True}


@pytest.mark.parametrize(
    "entries", [{CONTENT: SECRET}, {CONTENT: "[]", SECRET: 1}, {CONTENT: "[]", "bundle": SECRET}]
)
@pytest.mark.parametrize("rules", [{"allow-records": ALLOWED}, {"domain": "north"}])
def test_of_what_has_no_form_nothing_leaves(rules, entries, folder, tmp_path):
    node = SuperNode(folder, **rules, **{"state-dir": str(tmp_path)})
    content = RecordDict({CONTENT: ConfigRecord(entries)})
    assert node.ask(Form.RECORD.write(question()), lambda each: Message(content, reply_to=each)).has_error()
    assert SECRET.encode() not in node.bytes_left
    assert node.ask(content, quickstart).has_error(), "the message"


@pytest.mark.parametrize("form", Form)
def test_what_a_message_asks_for_is_refused_in_each_form(form, folder, tmp_path):
    node = SuperNode(folder, **{"allow-batch-updates": "none", "state-dir": str(tmp_path)})
    wanted = RecordDict({"arrays": model(), "other": ConfigRecord({"batch-updates": "full"})})
    assert "allow-batch-updates" in str(node.ask(form.write(wanted), quickstart).error.reason)
    (line,) = read_log(tmp_path)
    assert "allow-batch-updates" in line["refused"]


@pytest.mark.parametrize(
    ("rules", "answer", "words"),
    [
        ({"min-samples": 100}, quickstart, "min-samples"),
        ({"allow-batch-updates": "none"}, hostile("another record"), "allow-batch-updates"),
        ({"allow-methods": "fedavg"}, quickstart, "allow-methods"),
        ({}, quickstart, None),
        ({}, hostile("a text"), None),
    ],
)
def test_the_other_rules_hold_whatever_the_app_is(rules, answer, words, folder):
    reply = SuperNode(folder, domain="north", **rules).ask(question(), answer)
    assert reply.has_error() == (words is not None)
    if words is not None:
        assert words in str(reply.error.reason)


def test_only_approved_apps_start(folder, tmp_path):
    digest = app_digest(folder)
    node = {"domain": "north", "state-dir": str(tmp_path)}
    approved = SuperNode(folder, apps=f"sha256:{'0' * 64}, sha256:{digest}", **node)
    assert not approved.ask(question(), quickstart).has_error()
    assert approved.started == ["train"]

    other = SuperNode(folder, apps=f"sha256:{'0' * 64}", **node)
    reply = other.ask(RecordDict({"config": ConfigRecord({})}), quickstart, "query.role")
    assert reply.content["info"] == {
        **{"domain": "north", "refused": True},
        "problem": f"the site has not approved the app sha256:{digest} (the site's apps)",
    }
    reply = other.ask(question(), quickstart)
    assert (reply.error.code, digest in str(reply.error.reason)) == (6, True)
    assert other.started == []
    assert len(other.confirmed) == 2, "the SuperLink sends neither message again"
    assert "refused" in read_log(tmp_path)[-1]

    swapped = SuperNode(folder, apps=f"sha256:{digest}", **node)
    swapped.fab += b" "
    assert swapped.ask(question(), quickstart, digest=digest).has_error(), "a bundle of another hash"
    assert swapped.started == []


@pytest.mark.parametrize(
    ("rules", "thing", "value"),
    [
        ({"apps": "sha256:12"}, "apps", "sha256:12"),
        ({"apps": "0" * 64}, "apps", "0" * 64),
        ({"allow-records": "arrays,,info"}, "allow-records", ""),
        ({"allow-records": "info:4kB"}, "allow-records", "info:4kB"),
        ({"allow-record": "arrays"}, "entry of the node configuration", "allow-record"),
        ({"domain": "a", "dp-clip": 1.0, "dp-noise": 1.0}, "a", None),
    ],
)
def test_a_rule_that_is_not_understood_keeps_the_supernode_from_starting(rules, thing, value):
    with pytest.raises(ConfigError) as refused:
        Gate(rules)
    assert (refused.value.thing, refused.value.value) == (thing, value)


@pytest.mark.parametrize("extra", [{}, {"problem": "x"}])
@pytest.mark.parametrize(
    ("answer", "leaves"),
    [
        ({"x": SECRET * 200}, False),
        ({"class-names": ["A class"] * 1000, "features": ["a column of a table"] * 1000}, True),
        ({"class-names": [SECRET * 200] * 30}, False),
    ],
)
def test_the_answer_to_the_role_query_has_a_limit_too(answer, leaves, extra, folder):
    def role(message: Message) -> Message:
        info = ConfigRecord({"domain": "north", "examples": 50, **answer, **extra})
        return Message(RecordDict({"info": info}), reply_to=message)

    node = SuperNode(folder, domain="north", **{"allow-batch-updates": "none", "min-samples": 10})
    reply = node.ask(RecordDict({"config": ConfigRecord({})}), role, "query.role")
    assert ("refused" not in reply.content["info"]) == leaves
    assert ("allow-batch-updates" not in str(reply.content["info"].get("problem"))) == leaves


@pytest.mark.parametrize("former", ["north-privacy.json", "privacy.json"])
def test_a_new_name_does_not_bring_a_spent_budget_back(tmp_path, former):
    node = {"domain": "south", "state-dir": str(tmp_path), "dp-clip": 1.0, "dp-noise": 1.0}
    for own in ("south-privacy.json", ".north-privacy.json.lock"):
        (tmp_path / own).touch()
    Gate(node)
    (tmp_path / former).touch()
    with pytest.raises(ConfigError) as refused:
        Gate(node)
    assert (refused.value.thing, refused.value.value) == ("state-dir", str(tmp_path))
