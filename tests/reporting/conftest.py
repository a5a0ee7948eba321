"""Histories made by hand."""

from typing import Any

import pytest

from fda_flower.reporting import CellResult, Results


@pytest.fixture(autouse=True)
def _drawn(pictures):
    """Have the figures of these tests drawn."""


@pytest.fixture
def record():
    """A maker of records of a round."""

    def make(number, accuracy=None, *, held=None, dropped=(), betas=None, estimated=True, seconds=1.0):
        record = {
            "round": number,
            "held": held,
            "target": {"domain": "target"},
            "sources": {},
            "dropped": [{"domain": domain, "reason": "late"} for domain in dropped],
            "seconds": {"train": seconds, "aggregate": 0.25, "evaluate": 0.25},
        }
        if accuracy is not None:
            record["accuracy"] = accuracy
        for domain, beta in (betas or {}).items():
            record["sources"][domain] = {"domain": domain, "beta": beta}
            if estimated:
                record["sources"][domain] |= {"sigma2": 1.0, "d2": 2.0}
        return record

    return make


@pytest.fixture
def history(record):
    """A maker of a history from the accuracy of each round; None where the target did not evaluate."""

    def make(*accuracies, **each):
        return [record(number, accuracy, **each) for number, accuracy in enumerate(accuracies, start=1)]

    return make


@pytest.fixture
def results(history):
    """A maker of results from the last figure of each seed, in percent, by place."""

    def make(accuracies=None, **each):
        given: dict[str, Any] = {
            "name": "shift",
            "title": "Accuracy under shift",
            "source": "Somebody et al., Table 1",
            "note": "",
            "axis": "Noise (standard deviation)",
            "rows": ("FedAvg", "FedGP"),
            "columns": ("0.2", "0.4"),
            "rounds": 2,
        }
        metrics = each.get("metrics", {})
        cells = []
        for place, values in (accuracies or {}).items():
            metric = metrics.get((place[0], place[2]), "accuracy")
            for seed, value in enumerate(values):
                rounds = [each_round | {metric: value / 100} for each_round in history(*[value / 100] * 2)]
                cells.append(CellResult(place, seed, rounds, 1000, metric=metric))
        return Results(**(given | {"cells": cells} | each))

    return make


@pytest.fixture
def uneven():
    """Gives the last round of each cell the record of 40 test samples, three in four of one class."""

    def mark(results):
        most = {"class": "ill", "accuracy": 0.75, "balanced-accuracy": 0.5, "macro-f1": 3 / 7, "auroc": 0.5}
        for cell in results.cells:
            confusion = {"classes": ["well", "ill"], "counts": [[5, 5], [15, 15]], "most-frequent": most}
            cell.history[-1].update({"confusion": confusion, "test-examples": 40, "auroc": 0.625})
        return results

    return mark
