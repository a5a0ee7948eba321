"""Balanced class weights: the weighted loss, and the clients that train with it."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy

from fda_flower import RunConfig, run
from fda_flower.clients import LocalTraining
from fda_flower.clients.training import training_loss
from fda_flower.errors import ConfigError

BALANCED = LocalTraining(0.1, 4, class_weights="balanced")
SMALL = {"model": "mlp", "rounds": 2, "target_samples": 13, "source_samples": 20, "test_samples": 50}


def test_the_weights_by_hand():
    # Three labels of class 0, one of class 2: weights 4 / (2 · 3) and 4 / (2 · 1).
    y = torch.tensor([0, 0, 0, 2])
    outputs = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    batch = torch.tensor([0, 2])
    losses = cross_entropy(outputs, batch, reduction="none")
    expected = (2 / 3 * losses[0] + 2 * losses[1]) / (2 / 3 + 2)
    found = training_loss(y, BALANCED)(outputs, batch)
    torch.testing.assert_close(found, expected)
    assert compute_class_weight("balanced", classes=np.array([0, 2]), y=y.numpy()).tolist() == pytest.approx(
        [2 / 3, 2]
    )


def test_balanced_labels_have_the_plain_loss():
    y, outputs = torch.tensor([0, 1, 0, 1]), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(training_loss(y, BALANCED)(outputs, y), cross_entropy(outputs, y))


def test_numbers_and_none_have_the_loss_without_weights():
    assert training_loss(torch.zeros(2, 1), BALANCED) is torch.nn.functional.mse_loss
    assert training_loss(torch.tensor([0, 1]), LocalTraining(0.1, 4)) is cross_entropy


@pytest.mark.parametrize("method", ["fedavg", "ditto", "apfl", "irm", "feddaf", "mixture", "fedda-joint"])
def test_every_training_on_labels_is_weighted(method):
    settings = {**SMALL, "method": method, "partition": "dirichlet", "partition_options": {"alpha": 0.3}}
    plain, weighted, again = (
        run(**settings, class_weights=each) for each in ("none", "balanced", "balanced")
    )
    assert any((weighted.model[name] != array).any() for name, array in plain.model.items())
    assert all((weighted.model[name] == array).all() for name, array in again.model.items())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"class_weights": "rare"}, ["class-weights", "'rare'", "none or balanced"]),
        ({"class_weights": "balanced", "dataset": "rbf"}, ["'balanced'", "'rbf' is a regression"]),
        ({"class_weights": "balanced", "method": "central:erm"}, ["no local training"]),
        ({"metric": "speed"}, ["metric 'speed'", "accuracy, balanced-accuracy"]),
        ({"metric": "auroc", "dataset": "rbf"}, ["metric 'auroc'", "r2, rmse, mae, loss"]),
    ],
)
def test_what_cannot_work_is_refused(settings, words):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**settings)
    assert all(word in str(caught.value) for word in words)
