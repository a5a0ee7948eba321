"""Outcomes of test samples, and the settings ``test-samples`` and ``target-epochs`` on whole runs.

`tests/prediction/test_predictors.py` compares the outcomes of every method with its predictions.
"""

from typing import Any

import numpy as np
import pytest
from whole_runs import same_bits

from fda_flower import RunConfig, run
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.running.run import Execution, run_config
from fda_flower.strategies.evaluations import read_outcomes

SMALL: dict[str, Any] = {"model": "mlp", "device": "cpu", "target_samples": 16, "source_samples": 40}


@pytest.mark.parametrize("more", [{"method": "ditto"}, {"method": "fedavg", "dp_clip": 1.0, "dp_noise": 0.1}])
def test_outcomes_change_nothing_else_not_even_noise(more: dict[str, Any]) -> None:
    settings = {**SMALL, "rounds": 2, **more}
    plain, with_outcomes = run(**settings), run_config(RunConfig(**settings), Execution(outcomes=True))
    assert "outcomes" not in plain.history[-1]
    assert plain.accuracies == with_outcomes.accuracies
    assert same_bits(plain.model, with_outcomes.model)


def test_a_regression_has_no_outcomes() -> None:
    config = RunConfig(dataset="rbf", model="sigmoid", target_samples=16, method="fedavg", rounds=1)
    result = run_config(config, Execution(outcomes=True))
    assert "outcomes" not in result.history[-1]


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"right": np.zeros(2, np.uint8)},
        {"right": np.zeros(2, np.uint8), "examples": np.array(17)},
        {"right": np.zeros(2, np.float32), "examples": np.array(16)},
        {"right": np.zeros(2, np.uint8), "examples": np.array(16.0)},
        {"right": np.zeros(2, np.uint8), "examples": np.array([16, 16])},
    ],
)
def test_outcomes_that_cannot_be_read_are_left_out(arrays: dict[str, Any]) -> None:
    assert read_outcomes(arrays) == {}
    good = {"right": np.packbits([1, 0, 1, 1, 0, 0, 0, 0, 1]), "examples": np.array(9)}
    assert read_outcomes(good) == {"outcomes": "b080", "test-examples": 9}


def test_test_samples_cut_the_targets_test_set_alone() -> None:
    whole, cut = (load_federation(DataSpec("digits", test_samples=amount)) for amount in (None, "20%"))
    for name, domain in cut.domains.items():
        other = whole.domains[name]
        assert np.array_equal(domain.train.x, other.train.x)
        expected = round(0.2 * len(other.test)) if name == cut.target else len(other.test)
        assert len(domain.test) == expected
    assert len({int(y) for y in cut.domains[cut.target].test.y}) == 10
