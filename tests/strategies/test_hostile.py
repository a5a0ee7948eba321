"""Numbers out of range, in replies that are otherwise good; see also test_fuzz.py."""

import numpy as np
import pytest
from handmade import HandMade, initial, moves, steps_extra, weights

from fda_flower.strategies import FedDA, FedGP, VREx

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])

COSINE = {"magnitude": "cosine", "batch_update_encoding": "full"}


def target(**replaced):
    settings = {"steps": 3, "rate": 0.1, "extra": steps_extra(STEPS), **replaced}
    return ("target", "t", moves(STEPS.sum(axis=0), "target", "t", **settings))


def one_round(strategy, *nodes):
    return strategy.start(HandMade(nodes).grid(), initial(), 1), strategy.history[0]


@pytest.mark.parametrize("number", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("strategy", [FedGP, FedDA])
def test_a_learning_rate_out_of_range_makes_no_model_that_is_not_finite(strategy, number):
    options = (
        {"magnitude": "cosine", "batch_update_encoding": "full"}
        if strategy is FedGP
        else {"updates": "aligned"}
    )
    nodes = target(), ("source", "a", moves([0.5, 0.25], domain="a", rate=number))
    result, record = one_round(strategy(beta=0.5, auto=True, **options), *nodes)
    assert np.isfinite(weights(result)).all()
    assert record["held"] is None or "learning rate are out of range" in record["held"]


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_a_huge_update_makes_no_model_that_is_not_finite(size):
    nodes = target(), ("source", "a", moves([size, -size], domain="a"))
    result, record = one_round(FedGP(auto=True, batch_update_encoding="full"), *nodes)
    assert np.isfinite(weights(result)).all()
    assert record["held"] is None


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"norms": [9.0, 9.0, 9.0], "full": STEPS}, "do not have the norms"),
        (steps_extra(-STEPS), "they do not sum to it"),
        (steps_extra(100 * STEPS), "they do not sum to it"),
        (steps_extra(0.01 * STEPS), "do not fit the target's update"),
    ],
)
def test_steps_that_do_not_fit_the_update_leave_the_fixed_beta(extra, says):
    extra = {name: np.asarray(array, np.float32) for name, array in extra.items()}
    extra["norms"] = extra["norms"].astype(np.float64)
    source = ("source", "a", moves([0.5, 0.25], domain="a"))
    _, record = one_round(
        FedGP(beta=0.3, auto=True, batch_update_encoding="full"), target(extra=extra), source
    )
    assert record["sources"]["a"]["beta"] == 0.3
    assert says in record["sources"]["a"]["fallback"]


def test_a_source_that_alone_makes_the_model_overflow_is_dropped():
    honest = [("source", name, moves([0.5, 0.25], domain=name)) for name in "ab"]
    lie = ("source", "h", moves([0.25, 0.5], domain="h", **{"loss-at-start": 1e300}))
    nodes = target(), *honest, lie
    result, record = one_round(VREx(), *nodes)
    np.testing.assert_array_equal(weights(result), [1.5, 2.25])
    assert list(record["sources"]) == ["a", "b"]
    ((domain, reason),) = [each.values() for each in record["dropped"]]
    assert domain == "h"
    assert "NaN or infinity" in reason
