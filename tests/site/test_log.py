"""A site's log of what left it."""

import os
import re
import stat
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.files import versions
from fda_flower.site import SentLog, read_log, totals
from fda_flower.site.log import Facts
from fda_flower.site.words import REFUSED_CODE
from fda_flower.wire.internals import task_identity
from fda_flower.wire.protocol import BUDGET_CODE, to_record

ARRAYS = to_record({"w": np.zeros((2, 3), np.float32), "b": np.array(1, np.int64)})
CONTEXT = Context(7, 2, {"domain": "north"}, RecordDict(), {})


def asking(kind="train", number=None):
    config = {} if number is None else {"server-round": number}
    with task_identity():
        return Message(RecordDict({"config": ConfigRecord(dict(config))}), 2, kind)


def replying(content):
    with task_identity():
        return Message(content, reply_to=asking())


@pytest.fixture
def log(tmp_path):
    return SentLog(tmp_path / "state" / "sent.jsonl")


def test_a_line_says_what_left_by_record(log):
    content = RecordDict({"arrays": ARRAYS, "metrics": MetricRecord({"loss": 0.5})})
    content["info"] = ConfigRecord({"domain": "a", "names": []})
    log.note(asking(number=3), CONTEXT, replying(content))
    [line] = read_log(log.path.parent)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "run": 7,
        "domain": "north",
        "round": 3,
        "message": "train",
        "records": {
            "arrays": {
                "kind": "arrays",
                "bytes": ARRAYS.count_bytes(),
                "arrays": {"w": ["float32", [2, 3]], "b": ["int64", []]},
            },
            "metrics": {"kind": "metric", "bytes": content["metrics"].count_bytes(), "entries": ["loss"]},
            "info": {"kind": "config", "bytes": len("domaina"), "entries": ["domain", "names"]},
        },
        "bytes": ARRAYS.count_bytes() + content["metrics"].count_bytes() + len("domaina"),
        "releases": {
            "model": ["arrays"],
            "figures": ["metrics.loss"],
            "nothing": ["info.domain"],
            "undeclared": ["info.names"],
        },
        "versions": versions(),
    }
    assert re.search(r"[ :\[]0\.5", log.path.read_text()) is None


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Error(REFUSED_CODE, "not that"), {"refused": "not that"}),
        (Error(BUDGET_CODE, "it is spent"), {"refused": "it is spent"}),
        (Error(2, "the disk is full"), {"failed": "the disk is full"}),
        (OSError("no"), {"failed": "OSError('no')"}),
        ({"problem": "not that", "refused": True}, {"refused": "not that"}),
        ({"problem": "no data"}, {"failed": "no data"}),
    ],
)
def test_a_reason_that_was_sent_is_in_the_line(reply, told, log):
    if isinstance(reply, dict):
        reply = RecordDict({"info": ConfigRecord(reply)})
    log.note(asking("query.role"), CONTEXT, reply if isinstance(reply, Exception) else replying(reply))
    [line] = read_log(log.path.parent)
    assert {key: line[key] for key in ("refused", "failed") if key in line} == told
    assert line["round"] is None


def test_the_code_of_a_refusal_is_flowers_and_of_a_spent_budget_is_not():
    assert REFUSED_CODE == ErrorCode.MOD_FAILED_PRECONDITION
    assert BUDGET_CODE not in vars(ErrorCode).values()


def test_the_log_is_for_its_owner_alone_and_grows(log):
    for _ in range(2):
        log.note(asking(), CONTEXT, replying(RecordDict()))
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert len(read_log(log.path.parent)) == 2


def test_half_a_line_harms_no_other(log):
    log.note(asking(), CONTEXT, replying(RecordDict()))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + whole[: len(whole) // 2])
    log.note(asking(), CONTEXT, replying(RecordDict()))
    assert [line["run"] for line in read_log(log.path.parent)] == [7, 7]


def test_a_line_that_does_not_fit_on_the_disk_is_an_error(log, monkeypatch):
    monkeypatch.setattr(os, "write", lambda file, data: len(data) // 2)
    with pytest.raises(OSError, match="part of the line"):
        log.note(asking(), CONTEXT, replying(RecordDict()))


def test_a_folder_without_a_log_is_an_error(tmp_path):
    with pytest.raises(ConfigError, check=names(str(tmp_path))):
        read_log(tmp_path)


def test_totals_are_by_run_message_and_record():
    sent = [
        (1, "train", {"arrays": 10, "metrics": 1}),
        (1, "train", {"arrays": 30}),
        (2, "evaluate", {"metrics": 5}),
    ]
    lines: list[dict[str, Any]] = [
        {"run": run, "message": kind, "records": {name: {"bytes": size} for name, size in sizes.items()}}
        for run, kind, sizes in sent
    ]
    assert totals(lines) == [
        {"run": 1, "message": "train", "record": "arrays", "replies": 2, "bytes": 40, "most": 30},
        {"run": 1, "message": "train", "record": "metrics", "replies": 1, "bytes": 1, "most": 1},
        {"run": 2, "message": "evaluate", "record": "metrics", "replies": 1, "bytes": 5, "most": 5},
    ]


def test_a_line_says_under_which_rules_what_left_and_of_how_many(log):
    """What a secure environment's reviewer asks of each release."""
    node: dict[str, Any] = {
        "domain": "north",
        "role": "source",
        "data-dir": "/srv/fl",
        "min-samples": 10,
        "dp-clip": 1.0,
    }
    node |= {"dp-noise": 2.0, "state-dir": str(log.path.parent), "require-secure": True}
    context = Context(7, 2, node, RecordDict(), {"method": "fedavg"})
    told = {"samples": 24, "units": 6, "test-samples": 8, "epsilon-before": 1.0, "epsilon-after": 2.0}
    facts = Facts("5d41", {**told, "rows": "0.5,0.25"})
    log.note(asking(), context, replying(RecordDict({"arrays": ARRAYS})), facts)
    [line] = read_log(log.path.parent)
    assert {
        name: line[name] for name in ("method", "role", "app", "rules", "counts", "epsilon", "releases")
    } == {
        "method": "fedavg",
        "role": "source",
        "app": "sha256:5d41",
        "rules": {"dp-clip": 1.0, "dp-noise": 2.0, "min-samples": 10, "require-secure": True},
        "counts": {"samples": 24, "units": 6, "test-samples": 8},
        "epsilon": {"before": 1.0, "after": 2.0, "delta": 1e-5, "unit": "site"},
        "releases": {"model": ["arrays"]},
    }
    assert line["versions"]["fda-flower"]


@pytest.mark.parametrize("kind", ["names", "arrays", "reason"])
def test_a_line_has_a_bound_whatever_leaves(kind, log):
    content = RecordDict({"info": ConfigRecord({f"{i:06}{'x' * 5000}": 1 for i in range(1200)})})
    if kind == "arrays":
        content = RecordDict({"arrays": to_record({f"{i:06}{'x' * 500}": np.zeros(1) for i in range(1200)})})
    log.note(asking(), CONTEXT, RuntimeError("x" * 10**6) if kind == "reason" else replying(content))
    assert len(log.path.read_bytes()) < 500_000
    assert read_log(log.path.parent)
