"""How intervals are read from an evaluation's reply."""

import pytest
from handmade import A, B, HandMade, T, initial

from fda_flower.strategies import FedAvg

GOOD = {"auroc": 0.8, "auroc-low": 0.7, "auroc-high": 0.9, "loss": 1.0}


@pytest.mark.parametrize(
    ("metrics", "intervals", "said"),
    [
        (GOOD, {"auroc": [0.7, 0.9]}, ""),
        ({**GOOD, "auroc-low": 0.95}, None, "'auroc-low' is 0.95, it must not be above 'auroc-high', 0.9"),
        ({**GOOD, "auroc-high": 1.5}, None, "'auroc-high' is 1.5, it must lie between 0 and 1"),
        ({**GOOD, "auroc-high": float("nan")}, None, "'auroc-high'"),
        ({"auroc": 0.8, "auroc-low": 0.7, "loss": 1.0}, None, ""),
    ],
)
def test_an_interval_has_two_ends_in_order_and_in_the_metrics_range(
    metrics, intervals, said, flower_log, caplog
):
    strategy = FedAvg()
    strategy.start(HandMade([A, B, T], metrics=metrics).grid(), initial(), 1)
    (record,) = strategy.history
    assert (record["auroc"], record.get("intervals")) == (0.8, intervals)
    assert "metrics" not in record
    assert said in flower_log.text
