"""Histories made by hand."""

import pytest


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
