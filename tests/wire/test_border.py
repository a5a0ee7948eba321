"""The SuperNode's loop between Flower's two functions; what crosses the border is in ``test_gate.py``."""

import time
from itertools import accumulate
from typing import Any
from unittest.mock import Mock

import pytest
from flwr.supernode import start_client_internal

from fda_flower.wire import border
from fda_flower.wire.border import run_supernode

SUPERNODE: Any = start_client_internal


@pytest.fixture
def functions(monkeypatch):
    """Put Flower's functions back after a test that replaces them."""
    for name in (border.PULL, border.PUSH):
        monkeypatch.setattr(SUPERNODE, name, getattr(SUPERNODE, name))


def test_a_supernode_waits_for_a_share_of_the_time_since_the_last_message(monkeypatch, functions):
    now, slept = [0.0], list[float]()

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    def theirs():
        for _ in range(400):
            SUPERNODE.time.sleep(3)
        SUPERNODE.time.sleep(0.5)  # a message has come, and is answered
        SUPERNODE.time.sleep(3)

    monkeypatch.setattr(SUPERNODE, "time", time)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr("flwr.supernode.cli.flower_supernode", theirs)
    run_supernode(0.1, 0.05, Mock())
    begun = list(accumulate(slept, initial=0.0))
    for seconds, since in zip(slept[:400], begun, strict=False):
        assert seconds == pytest.approx(min(3, max(0.1, 0.05 * since)))
    assert slept[399] == 3
    assert slept[400:] == [0.1, 0.1]
    assert SUPERNODE.time.monotonic is time.monotonic


def test_a_supernode_that_waits_otherwise_is_left_as_it_is(monkeypatch, functions):
    started = list[bool]()
    monkeypatch.delattr(SUPERNODE, "time")
    monkeypatch.setattr("flwr.supernode.cli.flower_supernode", lambda: started.append(True))
    run_supernode(0.1, 0.05, Mock())
    assert started == [True]
    assert not hasattr(SUPERNODE, "time")
