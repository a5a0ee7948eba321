"""A message in few objects, between a server app and client apps."""

import json
from typing import Any

import numpy as np
import pytest
from asking import app_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from handmade import A, B, HandMade, T, reply_of
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from fda_flower.clients import answer_role_query, serve
from fda_flower.engines import LocalGrid, PollingGrid
from fda_flower.errors import ConfigError
from fda_flower.strategies import FedAvg
from fda_flower.wire.bundles import BUNDLE, CONTENT, LEAST, READS, Bundles, Form, bundled, split
from fda_flower.wire.internals import task_identity
from fda_flower.wire.protocol import Keys, TrainRequest, to_record

DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool", ">f4"]
ARRAYS = some.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
STYPES = some.sampled_from(["numpy.ndarray", "another.format"])
NOT_NUMPY = STYPES.map(lambda stype: ArrayRecord({"x": Array("float32", (7,), stype, b"not numpy")}))
NAMES = some.text(max_size=3) | some.sampled_from([BUNDLE, CONTENT, READS, "0/x", "/"])
RECORDS = some.dictionaries(NAMES, ARRAYS, max_size=4).map(to_record) | NOT_NUMPY
NUMBERS = [some.integers(-(2**63), 2**63 - 1), some.floats()]
VALUES = [*NUMBERS, some.booleans(), some.text(max_size=3), some.binary(max_size=3)]


def entries(kinds):
    return some.dictionaries(NAMES, some.one_of(*kinds, *map(some.lists, kinds)), max_size=4)


CONFIGS = entries([*VALUES, some.just(2**64 - 1)]).map(ConfigRecord)
METRICS = entries(NUMBERS).map(MetricRecord)
CONTENTS = some.dictionaries(
    some.sampled_from(["arrays", "config", "batch-updates", "metrics", "0", "ü"]), RECORDS | CONFIGS | METRICS
).map(RecordDict)
FORMS = [Form.BUNDLE, Form.ANNOUNCED, Form.RECORD]


def sent(content):
    """Records as they arrive over a SuperLink."""
    parts = {name: each.deflate() for name, each in get_all_nested_objects(content).items()}
    return inflate_object_from_contents(content.object_id, parts)


@pytest.mark.parametrize("form", FORMS)
@given(content=CONTENTS)
def test_split_makes_the_same_records_again_in_the_same_order(form, content):
    arrived = sent(form.write(content))
    assert Form.of(arrived) is form
    again = split(arrived)
    assert list(again) == list(content)
    assert again.object_id == content.object_id, "Flower's digest of all bytes, which have the values' types"


def test_the_forms_by_hand_are_a_handful_of_objects_and_one():
    content = RecordDict({"arrays": ArrayRecord([np.ones((2, i)) for i in range(1, 101)])})
    content["b"] = ArrayRecord([np.zeros(1)])
    content["config"] = ConfigRecord({"x/y": [1]})
    parts = [array.data for record in content.array_records.values() for array in record.values()]
    bundle, record = Form.BUNDLE.write(content), Form.RECORD.write(content)
    assert bundle[BUNDLE][BUNDLE].data == record[CONTENT][BUNDLE] == b"".join(parts)
    assert bundle[BUNDLE][BUNDLE].shape == (sum(map(len, parts)),)
    assert [name for name, _ in json.loads(str(bundle[CONTENT][CONTENT]))] == ["arrays", "b", "config"]
    assert {**record[CONTENT]}.items() >= {"2/x/y": [1]}.items()
    assert [len(get_all_nested_objects(each)) for each in (content, bundle, record)] == [206, 6, 2]


@pytest.mark.parametrize("more", [0, 1])
def test_many_bytes_are_sent_as_a_bundle(more):
    small = Array("uint8", (1,), "any", b"x" * (LEAST - 1 + more))
    content = Form.RECORD.write(RecordDict({"arrays": ArrayRecord({"x": small})}))
    assert Form.of(content) is (Form.ANNOUNCED if more else Form.RECORD)


@pytest.mark.parametrize("make", [to_record, lambda layers: ArrayRecord(list(layers.values()))])
def test_requests_with_the_same_model_share_its_bytes(make):
    """A server that sends a model to N sites holds it once, whoever has made its arrays."""
    model, other = (make({"v": np.ones(3), "w": np.full(3, by)}) for by in (1.0, 2.0))
    requests = [TrainRequest(arrays, {"n": n}) for n, arrays in enumerate([model, model, model, other])]
    contents = [request.content(Keys()) for request in requests]
    with task_identity():
        asked = [Message(content, 7, "query.role") for content in contents]
    sent = [message.content for message in Bundles().outgoing(asked)]
    bundles = Bundles()
    sent = [message.content for message in bundles.outgoing(asked)]
    assert all(list(message.content) == ["arrays", "config"] for message in asked), "they are not changed"
    assert len({id(content[BUNDLE][BUNDLE].data) for content in sent}) == 2
    assert [split(content) for content in sent] == contents
    joined = {}
    records = [Form.RECORD.write(content, joined) for content in contents]
    assert len({id(content[CONTENT][BUNDLE]) for content in records}) == 2


class Seen(LocalGrid):
    """A grid that notes the forms of what passes."""

    def __init__(self, app):
        super().__init__(app, 3)
        self.seen = list[tuple[str, Form]]()

    def push_messages(self, messages):
        messages = list(messages)
        self.seen += [(each.metadata.message_type, Form.of(each.content)) for each in messages]
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        self.seen += [("reply", Form.of(each.content)) for each in replies]
        return replies


NODES = [A, B, T]


def older(message, context, call_next):
    """The mod of a version that knows no further form."""
    if CONTENT in message.content:
        assert message.content[CONTENT].pop(READS, None) in (None, ["one-record"])
        assert Form.of(message.content) is Form.BUNDLE
    return bundled(message, context, call_next)


def trained(grid):
    initial = to_record({"w": np.zeros(2)})
    return FedAvg(query_timeout=1).start(grid=grid, initial_arrays=initial, num_rounds=2).arrays["w"].numpy()


@pytest.mark.parametrize(
    ("mods", "answer", "others"),
    [
        ([bundled], Form.ANNOUNCED, Form.RECORD),
        ([older], Form.BUNDLE, Form.BUNDLE),
        ([], Form.PLAIN, Form.PLAIN),
    ],
)
def test_nodes_get_the_form_that_they_announce_and_answer_in_it_and_the_model_is_the_same(
    mods, answer, others
):
    grid = Seen(HandMade(NODES, mods=mods).app)
    with task_identity():
        model = trained(PollingGrid(grid))
        assert model.tobytes() == trained(HandMade(NODES).grid()).tobytes()
    queries, rest = grid.seen[:6], grid.seen[6:]
    assert queries == [("query.role", Form.ANNOUNCED)] * 3 + [("reply", answer)] * 3
    assert {kind for kind, _ in rest} == {"train", "evaluate", "reply"}
    assert {form for _, form in rest} == {others}


@pytest.mark.parametrize("form", Form)
def test_an_app_replies_in_the_form_of_the_message(form):
    with task_identity():
        message = Message(form.write(RecordDict({"config": ConfigRecord({"x": 1})})), 2, "train")
        context: Any = None
        reply = bundled(message, context, lambda message, _: Message(message.content, reply_to=message))
    assert Form.of(reply.content) is form
    assert split(reply.content)["config"] == {"x": 1}


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
        content = RecordDict({"arrays": to_record({"w": np.ones(2)}), "config": ConfigRecord()})
        content = Form.RECORD.write(content)
        (reply,) = grid.send_and_receive([Message(content, 2, "train")])
        assert Bundles().incoming(reply).has_error()


def broken(message, context, call_next):
    """A mod that answers with a table of contents that is none."""
    reply = bundled(message, context, call_next)
    if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
        reply.content.config_records[CONTENT][CONTENT] = "{"
    return reply


def test_a_message_that_cannot_be_split_costs_its_node_the_round_not_the_run():
    strategy = FedAvg(query_timeout=1)
    with task_identity():
        grid = PollingGrid(HandMade(NODES, mods=[broken]).grid())
        strategy.start(grid=grid, initial_arrays=to_record({"w": np.zeros(2)}), num_rounds=2)
    for record in strategy.history:
        (dropped,) = record["dropped"]
        assert dropped["domain"] == "b"
        assert "a bundle of records cannot be split: its table" in dropped["reason"]


def entry(name, value):
    """A change of an entry next to the table of contents."""
    return lambda content: content[CONTENT].update({name: value})


def rows(**changed):
    """A change of the table of contents: by name of a record what its rows have, one or several."""

    def change(content):
        table = json.loads(content[CONTENT][CONTENT])
        table = {name: changed.get(name, [value]) for name, value in table} | changed
        content[CONTENT][CONTENT] = json.dumps([[name, value] for name in table for value in table[name]])

    return change


def lengths(*lengths):
    """A change that makes a message claim arrays of these lengths."""
    return rows(arrays=[[[f"w{i}", "float64", [2], "numpy.ndarray", n] for i, n in enumerate(lengths)]])


W = ["w", "float64", [2], "numpy.ndarray", 144]
IN_BOTH: list[tuple[Any, str]] = [
    (lengths(144, -144, 144), "no name, type, shape, format and number of bytes"),
    (lengths(10**12), "have 1000000000000 bytes"),
    (lengths("144"), "no name, type"),
    (lengths(True), "no name, type"),
    (rows(arrays=[[["w", "float64", [2.0], "numpy.ndarray", 144]]]), "no name, type"),
    (rows(arrays=[[[*W[:4], 72]] * 2]), "'arrays' has an array twice"),
    (rows(metrics=[[], []]), "the record 'metrics' twice"),
    (rows(metrics=["arrays"]), "a row of its table"),
    (entry(CONTENT, "[[1]]"), "a row of its table"),
    (entry(CONTENT, "{}"), "a row of its table"),
    (entry(CONTENT, b"[]"), "a row of its table"),
    (entry(CONTENT, "[" * 100_000), "cannot be read, RecursionError"),
    (entry("x", 1), "the unknown entry 'x'"),
    (lambda content: content.update({"more": ConfigRecord({})}), "the unknown record 'more'"),
    (lambda content: content.update({CONTENT: MetricRecord({"x": 1})}), "has no table of contents"),
]
IN_A_RECORD: list[tuple[Any, str]] = [
    (rows(more=[None]), "the kind of its record 'more' is missing"),
    (entry(BUNDLE, "text"), "its 'bundle' is no bytes"),
    (entry("1/loss", "a text"), "an entry of its record 'metrics' is none of metrics"),
    (entry("1/loss", True), "an entry of its record 'metrics' is none of metrics"),
    *((entry(f"{place}/x", 1), f"the unknown entry '{place}/x'") for place in ("01", "0", "-1", "7")),
]
IN_A_BUNDLE: list[tuple[Any, str]] = [
    (lambda content: content.pop(BUNDLE), "holds 0"),
    (lambda content: content.pop("metrics"), "its record 'metrics' is missing"),
    (lambda content: content.update({"metrics": ArrayRecord()}), "its record 'metrics' is missing"),
    (rows(metrics=["metrics"]), "its record 'metrics' is missing"),
    (rows(**{CONTENT: [None]}), "its record 'bundle-content' is missing"),
    (lambda content: content.update({BUNDLE: ConfigRecord({})}), "no array 'bundle'"),
    (lambda content: content[BUNDLE].update({"x": content[BUNDLE][BUNDLE]}), "no array 'bundle'"),
    (entry(READS, "one-record"), "no list of texts"),
    (entry(READS, [1]), "no list of texts"),
]


@pytest.mark.parametrize(
    ("form", "change", "reason"),
    [
        *((Form.RECORD, *case) for case in [*IN_BOTH, *IN_A_RECORD]),
        *((Form.ANNOUNCED, *case) for case in [*IN_BOTH, *IN_A_BUNDLE]),
    ],
)
def test_what_no_program_writes_is_named(form, change, reason):
    records: dict[str, Any] = {"arrays": to_record({"w": np.ones(2)}), "metrics": MetricRecord({"loss": 1.0})}
    content = form.write(RecordDict(records))
    change(content)
    with pytest.raises(ConfigError, match=reason):
        split(content)


def test_a_bundle_may_announce_forms_that_are_unknown():
    bundle = Form.ANNOUNCED.write(RecordDict({"config": ConfigRecord({"x": 1})}))
    reads: Any = bundle.config_records[CONTENT][READS]
    reads += ["another"]
    assert Form.of(bundle) is Form.ANNOUNCED
    assert split(bundle)["config"] == {"x": 1}
