"""All arrays of a message in one, between a server app and client apps."""

import json

import numpy as np
import pytest
from asking import app_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from handmade import A, B, HandMade, T, reply_of
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from fda_flower.clients import answer_role_query, serve
from fda_flower.engines import LocalGrid, PollingGrid
from fda_flower.strategies import FedAvg
from fda_flower.wire.bundles import BUNDLE, CONTENT, Bundles, bundled, join, split
from fda_flower.wire.internals import task_identity
from fda_flower.wire.protocol import Keys, TrainRequest, to_record

DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool", ">f4"]
ARRAYS = some.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
STYPES = some.sampled_from(["numpy.ndarray", "another.format"])
NOT_NUMPY = STYPES.map(lambda stype: ArrayRecord({"x": Array("float32", (7,), stype, b"not numpy")}))
RECORDS = some.dictionaries(some.text(max_size=3), ARRAYS, max_size=4).map(to_record) | NOT_NUMPY
CONFIGS = some.just(ConfigRecord({"server-round": 3, "asks": ["a", "b"]}))
METRICS = some.just(MetricRecord({"loss": float("inf"), "losses": [0.1, 0.2]}))
CONTENTS = some.dictionaries(
    some.sampled_from(["arrays", "config", "batch-updates", "metrics", "ü"]), RECORDS | CONFIGS | METRICS
).map(RecordDict)


@given(CONTENTS)
def test_split_makes_the_same_records_again_in_the_same_order(content):
    joined = join(content)
    again = split(joined)
    assert list(again) == list(content)
    assert again.object_id == content.object_id, "Flower's digest of all bytes"
    assert len([name for name, each in joined.items() if isinstance(each, ArrayRecord)]) <= 1


def test_a_bundle_by_hand_is_a_handful_of_objects():
    content = RecordDict({"arrays": ArrayRecord([np.ones((2, i)) for i in range(1, 101)])})
    content["b"] = ArrayRecord([np.zeros(1)])
    parts = [array.data for record in content.array_records.values() for array in record.values()]
    joined = join(content)
    assert joined[BUNDLE][BUNDLE].data == b"".join(parts)
    assert joined[BUNDLE][BUNDLE].shape == (sum(map(len, parts)),)
    assert [name for name, _ in json.loads(str(joined[CONTENT][CONTENT]))] == ["arrays", "b"]
    assert (len(get_all_nested_objects(content)), len(get_all_nested_objects(joined))) == (205, 5)


@pytest.mark.parametrize("make", [to_record, lambda layers: ArrayRecord(list(layers.values()))])
def test_requests_with_the_same_model_share_its_bytes(make):
    """A server that sends a model to N sites holds it once, whoever has made its arrays."""
    model, other = (make({"v": np.ones(3), "w": np.full(3, by)}) for by in (1.0, 2.0))
    requests = [TrainRequest(arrays, {"n": n}) for n, arrays in enumerate([model, model, model, other])]
    contents = [request.content(Keys()) for request in requests]
    with task_identity():
        asked = [Message(content, 7, "query.role") for content in contents]
    sent = [message.content for message in Bundles().outgoing(asked)]
    assert all(list(message.content) == ["arrays", "config"] for message in asked), "they are not changed"
    assert len({id(content[BUNDLE][BUNDLE].data) for content in sent}) == 2
    assert [split(content) for content in sent] == contents


class Seen(LocalGrid):
    """A grid that notes the records of what passes."""

    def __init__(self, app):
        super().__init__(app, 3)
        self.seen = list[tuple[str, bool, bool]]()

    def push_messages(self, messages):
        messages = list(messages)
        self.seen += [(each.metadata.message_type, *found_in(each)) for each in messages]
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        self.seen += [("reply", *found_in(each)) for each in replies]
        return replies


def found_in(message):
    return CONTENT in message.content, BUNDLE in message.content


NODES = [A, B, T]


def trained(grid):
    initial = to_record({"w": np.zeros(2)})
    return FedAvg(query_timeout=1).start(grid=grid, initial_arrays=initial, num_rounds=2).arrays["w"].numpy()


def test_nodes_that_can_get_bundles_and_answer_with_them_and_the_model_is_the_same():
    grid = Seen(HandMade(NODES, mods=[bundled]).app)
    with task_identity():
        model = trained(PollingGrid(grid))
        assert model.tobytes() == trained(HandMade(NODES).grid()).tobytes()
    queries, others = grid.seen[:6], grid.seen[6:]
    assert queries == [("query.role", True, False)] * 3 + [("reply", True, False)] * 3
    assert {kind for kind, *_ in others} == {"train", "evaluate", "reply"}
    assert all(can for _, can, _ in others)
    assert all(has_arrays for kind, _, has_arrays in others if kind == "train")


def test_other_nodes_get_messages_as_they_are():
    grid = Seen(HandMade(NODES).app)
    with task_identity():
        trained(PollingGrid(grid))
    assert [each for each in grid.seen if each[1]] == [("query.role", True, False)] * 3
    assert not any(has_arrays for *_, has_arrays in grid.seen)


def test_an_untouched_app_that_answers_the_role_query_is_asked_no_more_than_it_knows():
    @app_of
    def app(message, context):
        assert list(message.content) == ["arrays", "config"]
        return Message(reply_of({"w": np.ones(2)}, domain=str(context.node_id)), reply_to=message)

    answer_role_query(app)
    bundles = Bundles()
    with task_identity():
        grid = LocalGrid(app, 1)
        for kind in ("query.role", "train"):
            content = RecordDict({"arrays": to_record({"w": np.ones(2)}), "config": ConfigRecord()})
            (reply,) = grid.send_and_receive(bundles.outgoing([Message(content, 2, kind)]))
            assert CONTENT not in bundles.incoming(reply).content


def test_an_error_passes():
    class Broken(NumPyClient):
        def fit(self, parameters, config):
            raise ValueError("no data")

    with task_identity():
        grid = LocalGrid(serve(lambda context: Broken()), 1)
        content = join(RecordDict({"arrays": to_record({"w": np.ones(2)}), "config": ConfigRecord()}))
        (reply,) = grid.send_and_receive([Message(content, 2, "train")])
        assert Bundles().incoming(reply).has_error()


def broken(change):
    """A mod that answers with a bundle that is none."""

    def mod(message, context, call_next):
        reply = bundled(message, context, call_next)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            change(reply.content)
        return reply

    return mod


def with_lengths(*lengths):
    """A change that makes a bundle claim arrays of these lengths."""
    arrays = [[f"w{i}", "float64", [2], "numpy.ndarray", length] for i, length in enumerate(lengths)]
    return lambda content: content[CONTENT].update({CONTENT: json.dumps([["arrays", arrays]])})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_lengths(144, -144, 144), "have 144 bytes"),
        (with_lengths(10**12), "have 1000000000000 bytes"),
        (with_lengths("144"), "TypeError"),
        (lambda content: content.pop(BUNDLE), "holds 0"),
        (lambda content: content[CONTENT].update({CONTENT: "[[1]]"}), "not enough values to unpack"),
        (lambda content: content[CONTENT].update({CONTENT: "{"}), "JSONDecodeError"),
        (lambda content: content[CONTENT].update({CONTENT: "[" * 100_000}), "RecursionError"),
        (lambda content: content.update({CONTENT: MetricRecord({"x": 1})}), "KeyError"),
    ],
)
def test_a_bundle_that_cannot_be_taken_apart_costs_its_node_the_round_not_the_run(change, reason):
    strategy = FedAvg(query_timeout=1)
    with task_identity():
        grid = PollingGrid(HandMade(NODES, mods=[broken(change)]).grid())
        strategy.start(grid=grid, initial_arrays=to_record({"w": np.zeros(2)}), num_rounds=2)
    for record in strategy.history:
        (dropped,) = record["dropped"]
        assert dropped["domain"] == "b"
        assert "bundle" in dropped["reason"]
        assert reason in dropped["reason"]
