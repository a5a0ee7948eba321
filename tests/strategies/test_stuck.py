"""The warning where FedGP cannot move: once in a run, in the third slow round in a row."""

import logging

import pytest
from handmade import HandMade, initial, moves

from fda_flower.strategies import FedDA, FedGP, RunFolder
from fda_flower.strategies.adaptive import warn_if_stuck

ADVICE = "FedGP's step is never longer than the target's"
FAST, SLOW = 1.0, 0.019


def record(own, *norms):
    sources = {str(i): {} if norm is None else {"norm": norm} for i, norm in enumerate(norms)}
    return {"target": None if own is None else {"norm": own}, "sources": sources}


def warnings(caplog):
    return [each for each in caplog.records if ADVICE in each.getMessage()]


def rounds_of(caplog, records):
    """The rounds in which it warns."""
    found = []
    for end in range(1, len(records) + 1):
        caplog.clear()
        warn_if_stuck(records[:end])
        if warnings(caplog):
            found.append(end)
    return found


@pytest.fixture(autouse=True)
def logged(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING, "flwr")


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([SLOW] * 6, [3]),
        ([SLOW, SLOW, FAST, SLOW, SLOW], []),
        ([FAST, SLOW, SLOW, SLOW, FAST, SLOW, SLOW, SLOW], [4]),
        ([SLOW, SLOW, None, SLOW, SLOW], []),
        ([0.051] * 5, []),
        ([0.049] * 3, [3]),
    ],
)
def test_three_in_a_row_once(caplog, norms, expected):
    assert rounds_of(caplog, [record(own, 1.0, 1.0) for own in norms]) == expected


def test_it_is_the_median_of_the_sources_that_counts(caplog):
    assert rounds_of(caplog, [record(0.1, 1.0, 1.0, 50.0)] * 4) == []
    assert rounds_of(caplog, [record(0.1, 1.0, 3.0, 50.0)] * 4) == [3]


def test_rounds_without_norms_do_not_count(caplog):
    assert rounds_of(caplog, [record(SLOW), record(SLOW, None), {"warmup": True}] * 3) == []


def nodes():
    return [
        ("source", "a", moves([1.0, 0.5])),
        ("source", "b", moves([1.0, 0.0], domain="b")),
        ("target", "t", moves([0.01, 0.01], "target", "t")),
    ]


def run(strategy, rounds):
    strategy.start(HandMade(nodes()).grid(), initial(), rounds)


def test_a_run_warns_once_also_if_it_is_resumed(caplog, tmp_path):
    run(FedGP(output=RunFolder(tmp_path)), 2)
    assert warnings(caplog) == []
    run(FedGP(output=RunFolder(tmp_path, resume=True)), 4)
    assert len(warnings(caplog)) == 1
    caplog.clear()
    run(FedGP(output=RunFolder(tmp_path, resume=True)), 6)
    assert warnings(caplog) == []


@pytest.mark.parametrize("strategy", [FedGP(magnitude="cosine"), FedDA()])
def test_a_rule_whose_step_may_be_longer_does_not_warn(caplog, strategy):
    run(strategy, 4)
    assert warnings(caplog) == []
