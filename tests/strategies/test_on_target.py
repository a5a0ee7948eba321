"""Aggregation on the target: the same bits as on the server, and nothing of it seen there."""

import numpy as np
import pytest
from handmade import HandMade, Watched, bits, failing, initial, moves, steps_extra, weights

from fda_flower.clients import aggregate_on_target
from fda_flower.engines import LocalGrid
from fda_flower.strategies import KD3A, FedDA, FedDAJoint, FedGP

STEPS = [[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]]
SOURCES = [
    ("source", "a", moves([0.5, 0.25], domain="a", examples=30, **{"batch-size": 4})),
    ("source", "b", moves([0.1, -0.7], domain="b", examples=7, **{"batch-size": 4})),
]


def target(extra=steps_extra(STEPS)):  # noqa: B008
    told = {"steps": 3, "rate": 0.1, "examples": 5, "extra": extra, "batch-size": 2}
    return ("target", "t", moves(np.sum(STEPS, axis=0), "target", "t", **told))


def run(strategy, last=None, rounds=1, mods=(aggregate_on_target,)):
    grid = Watched(HandMade([*SOURCES, last or target()], mods=list(mods)))
    return strategy.start(grid, initial(), rounds), strategy.history, grid


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (FedDA, {"beta": 0.3}),
        (FedDA, {"beta": {"a": 0.2, "b": 0.9}, "updates": "aligned"}),
        (FedGP, {"beta": 0.7, "granularity": "model", "source_weights": "uniform"}),
        (FedDA, {"auto": True}),
        (FedDAJoint, {}),
        (FedGP, {"auto": True, "beta_formula": "filter-aware", "magnitude": "cosine"}),
        (FedGP, {"auto": True, "beta_formula": "reference-code", "magnitude": "reference-code"}),
        (FedDA, {"beta": 0.3, "warmup_rounds": 1}),
        (FedDA, {"beta": 0.3, "max_update_norm": 0.65}),
    ],
)
def test_the_same_bits_as_on_the_server_which_sees_neither_beta_nor_batch_updates(make, options):
    if "magnitude" in options:
        options = {**options, "batch_update_encoding": "full"}
    on_server, _, _ = run(make(**options), rounds=2)
    on_target, history, grid = run(make(**options, aggregate_on="target"), rounds=2)
    assert bits(on_target.arrays) == bits(on_server.arrays)
    assert all(record["held"] is None and not record["dropped"] for record in history)
    assert not {"beta", "weight"} & set(history[-1]["sources"]["a"])
    seen = {domain: names for kind, domain, names in grid.replied if kind == "train"}
    assert seen == {domain: {"arrays", "metrics", "info"} for domain in "abt"}
    assert history[-1]["target"]["examples"] == 5


@pytest.mark.parametrize(
    ("last", "mods", "says"),
    [
        (target(), (), "lacks the mod aggregate_on_target"),
        (("target", "t", failing(None)), (aggregate_on_target,), "off"),
    ],
)
def test_a_target_that_does_not_aggregate_holds_the_model(last, mods, says):
    result, (record,), _ = run(FedDA(aggregate_on="target"), last, mods=mods)
    assert record["held"] == "no usable reply of the target"
    assert says in record["dropped"][0]["reason"]
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])


@pytest.mark.parametrize("strategy", [FedDA(aggregate_on="target"), KD3A()])
def test_without_the_target_the_model_holds(strategy):
    class Leaving(LocalGrid):
        def get_node_ids(self):
            return list(super().get_node_ids())[: 3 - len(strategy.history)]

    app = HandMade([*SOURCES, target()], mods=[aggregate_on_target])
    strategy.start(Leaving(app.app, 3), initial(), 2)
    assert [record["held"] for record in strategy.history] == [None, "the target is not connected"]


def test_a_combined_model_that_is_too_far_is_clipped():
    result, (record,), _ = run(FedDA(beta=0.0, max_update_norm=0.1, aggregate_on="target"))
    assert np.linalg.norm(weights(result) - np.array([1.0, 2.0])) == pytest.approx(0.1, rel=1e-5)
    assert record["target"]["clipped"] < 1


def test_batch_updates_that_are_missing_leave_the_fixed_beta():
    fixed, _, _ = run(FedDA(beta=0.25))
    auto, _, _ = run(FedDA(beta=0.25, auto=True, aggregate_on="target"), target(extra=None))
    assert bits(auto.arrays) == bits(fixed.arrays)
