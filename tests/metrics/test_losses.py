"""The mean losses of outputs: PyTorch's, in float64."""

import numpy as np
import pytest
import torch

from fda_flower.clients.training import LOSSES
from fda_flower.metrics.losses import mean_loss
from fda_flower.names.tasks import Task

RANDOM = np.random.default_rng(0)
LABELS = {
    "classes": RANDOM.integers(0, 3, 50),
    "regression": RANDOM.standard_normal((50, 3)).astype("f"),
    "survival": RANDOM.standard_normal((50, 3)).astype("f"),
    "multilabel": (RANDOM.standard_normal((50, 3)) > 0).astype("f"),
}


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("task", LABELS)
def test_the_mean_loss_of_a_task_is_pytorchs(task: Task, scale: float) -> None:
    outputs, y = (scale * RANDOM.standard_normal((50, 3))).astype("f"), LABELS[task]
    labels = torch.from_numpy(y if y.dtype == np.int64 else y.astype(np.float64))
    theirs = LOSSES[task](torch.from_numpy(outputs).double(), labels)
    assert mean_loss(outputs, y, task) == pytest.approx(float(theirs), rel=1e-12)


@pytest.mark.parametrize(("output", "loss"), [(-np.inf, np.inf), (np.nan, np.nan)])
def test_the_loss_of_an_impossible_class_is_infinite(output: float, loss: float) -> None:
    outputs = np.zeros((2, 3), np.float32)
    outputs[0, 1] = output
    np.testing.assert_equal(mean_loss(outputs, np.array([1, 2]), "classes"), loss)
