"""Histories made by hand."""

from dataclasses import fields
from typing import Any

import pytest

from fda_flower.reporting import Design, RecordedRun, Results

DESIGN = {field.name for field in fields(Design)}


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
def runs_of():
    """A maker of the runs of a row from their histories, by seed."""

    def make(label, *histories, **each):
        return [RecordedRun(label, seed, history, **each) for seed, history in enumerate(histories)]

    return make


@pytest.fixture
def results(history, runs_of):
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
        } | each
        metrics = each.get("metrics", {})
        runs = {}
        for place, values in (accuracies or {}).items():
            metric = metrics.get((place[0], place[2]), "accuracy")
            histories = [[record | {metric: v / 100} for record in history(*[v / 100] * 2)] for v in values]
            runs[place] = runs_of(place[1], *histories, metric=metric)
        shown = {name: given.pop(name) for name in DESIGN & given.keys()}
        return Results(Design(**shown), **({"runs": runs} | given))

    return make


@pytest.fixture
def uneven():
    """Gives the last round of each cell the record of 40 test samples, three in four of one class."""

    def mark(results):
        most = {"class": "ill", "accuracy": 0.75, "balanced-accuracy": 0.5, "macro-f1": 3 / 7, "auroc": 0.5}
        for run in results.all_runs:
            confusion = {"classes": ["well", "ill"], "counts": [[5, 5], [15, 15]], "most-frequent": most}
            run.history[-1].update({"confusion": confusion, "test-examples": 40, "auroc": 0.625})
        return results

    return mark
