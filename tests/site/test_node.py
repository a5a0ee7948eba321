"""A node configuration is read once, whole, and by nobody but `Site`."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from naming import names

import fda_flower
from fda_flower import RunConfig
from fda_flower.client_app import make_client_app
from fda_flower.errors import ConfigError
from fda_flower.site import Site, node
from fda_flower.supernode.gate import Gate
from fda_flower.wire.internals import numbered
from fda_flower.wire.protocol import to_record

MODEL = to_record({"1.weight": np.zeros((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)})


@pytest.fixture
def reads(monkeypatch):
    """The configurations that are read, one after another."""
    seen, read = list[Any](), node._read_rules

    def noted(entries):
        seen.append(entries)
        return read(entries)

    monkeypatch.setattr(node, "_read_rules", noted)
    return seen


def of(entries):
    return Site.of(Context(1, 7, entries, RecordDict(), {}))


def test_a_supernode_and_an_app_read_a_configuration_once_whatever_they_hold(reads, tmp_path, in_a_run):
    """Rules, noise, a log and a ledger, for messages of two rounds."""
    settings: dict[str, Any] = {"sources": 2, "target_samples": 16, "source_samples": 20, "test_samples": 20}
    app = make_client_app(RunConfig(method="fedavg", model="logistic", device="cpu", **settings))
    entries: dict[str, Any] = {
        "domain": "source-1",
        "state-dir": str(tmp_path),
        "min-samples": 5,
        "dp-clip": 1.0,
    }
    entries |= {"dp-noise": 1.0, "allow-records": "arrays,metrics,info:4000"}
    gate, counts = Gate(entries), list[int]()
    for number in (1, 2):
        content = RecordDict({"arrays": MODEL, "config": ConfigRecord({"server-round": number})})
        (message,) = numbered([Message(content, 7, "train")])
        gate.take(message, Context(1, 7, entries, RecordDict(), {"method": "fedavg"}))
        reply = app(message, Context(1, 7, {**entries, **gate.marks}, RecordDict(), {}))
        left = gate.give(reply)
        assert set(left.content) == {"arrays", "metrics", "info"}
        counts.append(len(reads))
    assert counts == [3, 3], "at the start, for the first message, and in the app"


def test_a_value_of_another_type_is_another_configuration(reads):
    entries = {"require-secure": True, "min-samples": 991}
    assert of(entries) is of({**entries})
    assert len(reads) == 1
    for _ in range(2):
        with pytest.raises(ConfigError, check=names("require-secure", 1)):
            _ = of({**entries, "require-secure": 1}).rules
    assert len(reads) == 2


def test_nobody_else_reads_a_configuration():
    """Ray's engine reads the number that it has given a node itself."""
    root, readers = Path(fda_flower.__file__).parent, set()
    for path in root.rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(each, ast.Attribute) or each.attr != "node_config":
                continue
            if isinstance(each.ctx, ast.Load):
                readers.add(path.relative_to(root).as_posix())
    assert readers == {"site/node.py", "engines/ray.py"}
