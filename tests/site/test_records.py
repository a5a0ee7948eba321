"""The rule ``allow-records``, by itself: kinds, names and sizes of what leaves."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from naming import names
from sites import run_sites

from fda_flower import RunConfig
from fda_flower.errors import ConfigError, RunError
from fda_flower.site import SiteGate, read_log
from fda_flower.site.records import KINDS, RecordRule
from fda_flower.wire.internals import message_to_parts, numbered, task_identity

MODEL = ArrayRecord({"w": Array(np.zeros((2, 3), np.float32))})
QUESTION = RecordDict({"arrays": MODEL, "config": ConfigRecord({"server-round": 1})})


def refuses(rule, **records):
    return RecordRule.read(rule).refuses(QUESTION, RecordDict(records))


@pytest.mark.parametrize(
    ("rule", "records", "passes"),
    [
        ("arrays", {"arrays": MODEL}, True),
        ("arrays.w", {"arrays": MODEL}, True),
        ("arrays *", {"arrays": MODEL}, True),
        ("arrays other", {"other": MODEL}, False),
        ("arrays", {"arrays": ArrayRecord({"v": MODEL["w"]})}, False),
        ("arrays.v", {"arrays": ArrayRecord({"v": MODEL["w"]})}, False),
        ("arrays", {"arrays": ConfigRecord({"w": 1.0})}, False),
        ("arrays other:200", {"other": MODEL}, True),
        ("arrays other:100", {"other": MODEL}, False),
        (
            "metrics",
            {"metrics": MetricRecord({"accuracy": 0.5, "validation-loss": 1.0, "eval_acc": 1.0})},
            True,
        ),
        ("metrics", {"metrics": MetricRecord({"patient 7": 0.5})}, False),
        ("metrics.*", {"metrics": MetricRecord({"patient 7": 0.5})}, False),
        ("metrics.patient 7", {"metrics": MetricRecord({"patient 7": 0.5})}, True),
        ("metrics:17", {"metrics": MetricRecord({"patient 7": 0.5})}, True),
        ("metrics:16", {"metrics": MetricRecord({"patient 7": 0.5})}, False),
        ("metrics.loss", {"metrics": MetricRecord({"loss": [0.5, 0.25]})}, False),
        ("metrics.loss:16", {"metrics": MetricRecord({"loss": [0.5, 0.25]})}, True),
        ("metrics.loss", {"metrics": ConfigRecord({"loss": 0.5})}, False),
        ("metrics.loss", {"metrics.loss": MetricRecord({"loss": 0.5})}, False),
        ("metrics", {"metrics": MetricRecord()}, True),
        ("metrics.loss", {"metrics": MetricRecord()}, False),
        ("metrics *", {"patient 7": MetricRecord()}, False),
        ("config own.n", {"own": ConfigRecord({"n": 3})}, True),
        ("config own", {"own": ConfigRecord({"n": 3})}, False),
        ("config own.n", {"own": MetricRecord({"n": 3})}, False),
        ("info.role", {"info": ConfigRecord({"role": "source"})}, False),
        ("info.role:6", {"info": ConfigRecord({"role": "source"})}, True),
        ("info.*:9", {"info": ConfigRecord({"role": "source"})}, False),
        ("info.*:10", {"info": ConfigRecord({"role": "source"})}, True),
        ("config in?o.role:9", {"info": ConfigRecord({"role": "source"})}, False),
        ("config in?o.role:10", {"info": ConfigRecord({"role": "source"})}, True),
        ("info.x:3", {"info": ConfigRecord({"x": ["", "", "", ""]})}, False),
        ("info.x:3,info.y:3", {"info": ConfigRecord({"x": b"abc", "y": "abc"})}, True),
        ("info:12", {"info": ConfigRecord({"x": b"abc", "y": "abc"}), "config": ConfigRecord()}, False),
    ],
)
def test_what_a_pattern_lets_out(rule, records, passes):
    assert (refuses(rule, **records) is None) == passes


@pytest.mark.parametrize(
    "rule",
    [
        "mine",
        "*",
        "arrays,mine.x:4",
        "arrays,,info",
        "info:4kB",
        "info:\u0664",
        "metrics.",
        ".loss",
        "info:-1",
    ],
)
def test_a_pattern_that_is_not_understood_is_an_error(rule):
    wrong = {"arrays,mine.x:4": "mine.x:4", "arrays,,info": ""}.get(rule, rule)
    with pytest.raises(ConfigError, check=names("allow-records", wrong)):
        RecordRule.read(rule)


LETTER, NUMBER = "S", float(np.frombuffer(b"SSSSSSSS")[0])
"""What a hostile app wants to leave with, in a text and in a number."""


def arrays_with(n: int) -> dict[str, Array]:
    long = LETTER * n
    values = np.frombuffer(long.encode(), np.uint8)
    return {
        "values": Array(values),
        "form": Array("float32", (2, 3), "numpy.ndarray", long.encode()),
        "type": Array(long, (2, 3), "numpy.ndarray", b""),
        "format": Array("float32", (2, 3), long, b""),
    }


@st.composite
def replies(draw: Any) -> RecordDict:
    """Records of each kind, with entries of each type, that hold many of `LETTER`."""
    found = RecordDict()
    words = st.sampled_from(["arrays", "metrics", "info", "config", "w", "loss", "own", LETTER * 40])
    for name in draw(st.lists(words, min_size=1, max_size=3, unique=True)):
        kind, n = draw(st.sampled_from(sorted(KINDS))), draw(st.integers(0, 60))
        entries: dict[str, Any] = {}
        for entry in draw(st.lists(words, max_size=3, unique=True)):
            if kind == "arrays":
                entries[entry] = draw(st.sampled_from([MODEL["w"], *arrays_with(n).values()]))
            elif kind == "metrics":
                entries[entry] = draw(st.sampled_from([1.0, 3, [NUMBER] * n, [n] * n]))
            else:
                text = LETTER * n
                types = [
                    True,
                    0.5,
                    text,
                    text.encode(),
                    [text],
                    [LETTER] * n,
                    [text.encode()] * 2,
                    [NUMBER] * n,
                ]
                entries[entry] = draw(st.sampled_from(types))
        found[name] = KINDS[kind](entries)
    return found


@st.composite
def rules(draw: Any) -> tuple[str, int]:
    """A rule, and the bytes that it lets out in all."""
    patterns, total = [], 0
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from([None, 0, 0, 30, 300]))
        kind, name = (
            draw(st.sampled_from(sorted(KINDS))),
            draw(st.sampled_from(["arrays", "metrics", "info", "*"])),
        )
        entry = draw(st.sampled_from(["", "", ".*", ".w", ".loss", ".??*"]))
        patterns.append(f"{kind} {name}{entry}" + ("" if size is None else f":{size}"))
        total += size or 0
    return ",".join(patterns), total


@given(replies(), rules())
def test_no_more_bytes_leave_than_the_patterns_sizes_say_whatever_the_types(reply, rule):
    text, size = rule
    if RecordRule.read(text).refuses(QUESTION, reply) is None:
        with task_identity():
            message = Message(reply, 7, "train")
            vars(message.metadata)["_created_at"] = 0.0  # the bytes of the time may be a letter's
            left = b"".join(message_to_parts(message)[1])
        assert left.count(LETTER.encode()) <= size


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedavg", "confusion:4000"),
        ("fedgp-auto", "confusion:4000, batch-updates:60000"),
        ("mixture", "confusion:4000, answer:4000, config answer/*:4000"),
    ],
)
def test_the_documents_rule_for_fda_run_lets_all_of_it_pass(method, more, tmp_path):
    settings: dict[str, Any] = {
        "target_samples": 60,
        "source_samples": 60,
        "test_samples": 40,
        "device": "cpu",
    }
    config = RunConfig(method=method, model="logistic", sources=1, rounds=1, validation="20%", **settings)
    rule = {"allow-records": "arrays,metrics,info:4000"}
    target = {**rule, "allow-records": f"{rule['allow-records']},{more}", "state-dir": str(tmp_path)}
    nodes = [
        {"domain": "source-1", "role": "source", **rule},
        {"domain": "target", "role": "target", **target},
    ]
    _, history = run_sites(config, nodes)
    assert history
    assert [line for line in read_log(tmp_path) if "refused" in line or "failed" in line] == []


def test_a_node_configuration_that_is_invalid_is_told_and_logged(tmp_path, in_a_run):
    (question,) = numbered([Message(QUESTION, 7, "train")])
    node: dict[str, Any] = {"domain": "north", "state-dir": str(tmp_path), "dp-unit": "patient"}
    context = Context(1, 7, node | {"max-epsilon": 4.0}, RecordDict(), {})
    reply = SiteGate()(question, context, lambda message, context: Message(QUESTION, reply_to=message))
    assert "dp-group is ''" in str(reply.error.reason)
    (line,) = read_log(tmp_path)
    assert "dp-group" in line["refused"]


@pytest.mark.parametrize("value", [LETTER * 50, b"S" * 50, [LETTER] * 50, [NUMBER] * 7])
def test_a_mod_of_an_app_withholds_what_is_no_number_too(value, in_a_run):
    (question,) = numbered([Message(QUESTION, 7, "train")])

    def app(message, context):
        return Message(RecordDict({"metrics": ConfigRecord({"train_loss": value})}), reply_to=message)

    node: dict[str, Any] = {"domain": "north", "allow-records": "arrays,metrics.train_loss"}
    with pytest.raises(RunError, match=r"^this site withholds what its app replies"):
        SiteGate()(question, Context(1, 7, node, RecordDict(), {}), app)
