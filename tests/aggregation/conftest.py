"""Builders of small rounds. They are functions, so one for the whole session is safe under hypothesis."""

import numpy as np
import pytest

from fda_flower.aggregation import BatchUpdates, Update


def _layers(values, dtype):
    values = values if isinstance(values, dict) else {"w": values}
    return {name: np.asarray(value, dtype) for name, value in values.items()}


@pytest.fixture(scope="session")
def make_update():
    """An `Update` from one list (the layer 'w') or a dictionary of layers."""

    def build(values, *, buffers=None, examples=1, steps=0, rate=0.0, dtype=np.float32):
        return Update(_layers(values, dtype), buffers or {}, examples, steps, rate)

    return build


@pytest.fixture(scope="session")
def make_target(make_update):
    """A target's `Update` and the batch updates that it sends, from its steps as rows of shape ``(B, m)``."""

    def build(rows, rate, sketch=None, form="full"):
        rows = np.asarray(rows, np.float64)
        target = make_update(rows.sum(axis=0), steps=len(rows), rate=rate, dtype=np.float64)
        arrays = {"norms": (rows**2).sum(axis=1), "full": rows}
        if form == "sketch":
            arrays["sketch"] = np.stack([sketch({"w": row}) for row in rows])
        return target, BatchUpdates.from_arrays(arrays, form, len(rows), rows.shape[1], sketch)

    return build


@pytest.fixture(params=["whole", "thin"])
def kernels(request, monkeypatch):
    """Ridge's kernels, also of few rows by the singular vectors of as many as a row has numbers."""
    if request.param == "thin":
        monkeypatch.setattr("fda_flower.aggregation.kernel.FEW", 0)
