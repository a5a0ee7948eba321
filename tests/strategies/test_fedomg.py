"""FedOMG on the server: the step it takes, whose updates it matches, and when it is Source Only."""

import numpy as np
import pytest
from handmade import HandMade, initial, moves, weights

from fda_flower.aggregation import matched_step
from fda_flower.strategies import FedOMG
from fda_flower.wire.protocol import to_record

MOVES = {"a": [0.5, 0.25], "b": [0.1, -0.7], "t": [0.25, 0.5]}
NODES = [
    ("target" if name == "t" else "source", name, moves(delta, "target" if name == "t" else "source", name))
    for name, delta in MOVES.items()
]


def start(strategy):
    return strategy.start(HandMade(NODES).grid(), initial(), 2)


@pytest.mark.parametrize(("clients", "names"), [("sources", "ab"), ("all", "tab")])
def test_the_step_is_that_of_the_clients_updates(clients, names):
    strategy = FedOMG(clients=clients, kappa=0.75, server_rate=0.5)
    found = start(strategy)
    updates = np.array([MOVES[name] for name in names])
    coefficients, expected = matched_step(updates @ updates.T, np.full(len(names), 1 / len(names)), 0.75)
    np.testing.assert_allclose(weights(found), [1, 2] + 2 * 0.5 * coefficients @ updates, rtol=1e-6)
    record = strategy.history[-1]
    entries = {**record["sources"], "t": record["target"]}
    assert [entries[name]["weight"] for name in names] == pytest.approx(expected.tolist(), abs=1e-6)
    assert (record["target"] is None) == (clients == "sources")


def test_a_source_whose_squared_norm_overflows_is_dropped():
    strategy = FedOMG()
    doubles = {"w": np.array([1.0, 2.0])}
    nodes = [*NODES, ("source", "h", moves(1e200, "source", "h"))]
    found = strategy.start(HandMade(nodes).grid(), to_record(doubles), 1)
    assert [each["domain"] for each in strategy.history[0]["dropped"]] == ["h"]
    assert np.isfinite(weights(found)).all()
