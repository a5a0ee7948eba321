"""A limit for the norm of updates: scaled down to it, and said in the record."""

import numpy as np
import pytest
from handmade import HandMade, initial, moves, steps_extra, weights
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.strategies import FedDA, FedGP, SourceOnly

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])


def nodes(huge=3000.0):
    return [
        ("source", "a", moves([huge, 0.0], domain="a", examples=1)),
        ("source", "b", moves([0.0, 0.5], domain="b", examples=1)),
        ("target", "t", moves(STEPS.sum(axis=0), "target", "t", steps=3, rate=0.1, extra=steps_extra(STEPS))),
    ]


def run(strategy, federation):
    return strategy.start(HandMade(federation).grid(), initial(), 1), strategy.history[0]


def test_a_long_update_is_clipped_to_the_limit():
    result, record = run(SourceOnly(max_update_norm=1.0), nodes())
    np.testing.assert_allclose(weights(result), [1.5, 2.25], rtol=1e-6)
    assert record["sources"]["a"]["clipped"] == pytest.approx(1 / 3000)
    assert "clipped" not in record["sources"]["b"]
    assert record["dropped"] == []


def test_an_update_as_long_as_the_limit_is_within_it():
    _, record = run(SourceOnly(max_update_norm=0.5), nodes(huge=0.5))
    assert "clipped" not in record["sources"]["a"]


def test_the_steps_of_a_clipped_target_are_not_used():
    _, record = run(FedDA(beta=0.25, auto=True, max_update_norm=0.1), nodes())
    assert record["target"]["clipped"] < 1
    assert "was clipped" in record["sources"]["b"]["fallback"]
    assert record["sources"]["b"]["beta"] == 0.25


@pytest.mark.parametrize("options", [{"max_update_norm": 0.0}, {"max_update_norm": np.nan}])
def test_a_limit_that_cannot_work_is_refused(options):
    with pytest.raises(ConfigError, check=names("max_update_norm")):
        FedGP(**options)


def test_a_limit_defines_the_run():
    assert FedGP(max_update_norm=1.0).settings() != FedGP().settings()
