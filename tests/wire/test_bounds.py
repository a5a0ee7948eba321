"""Numbers of a message or a node that decide how much memory the other side takes: each has a bound."""

from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from naming import names
from torch import nn

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients.gradients import batch_gradients
from fda_flower.clients.recorder import make_recorder
from fda_flower.errors import ConfigError, RunError
from fda_flower.server_app import form_of_data
from fda_flower.strategies.nodes import Node
from fda_flower.wire import protocol
from fda_flower.wire.asked.features import EvaluateGaussians
from fda_flower.wire.questions import check_settings

NUMBERS = 40 * 50 + 50
MODEL = nn.Linear(40, 50)


def step_sketches(config):
    return make_recorder(list(MODEL.parameters()), {"batch-updates": "sketch", **config})


def gradient_sketch(config):
    batches = [(torch.ones(1, 40), torch.ones(1, 50))]
    return batch_gradients(MODEL, batches, nn.functional.mse_loss, {"gradients": "sketch", **config})


@pytest.mark.parametrize("record", [step_sketches, gradient_sketch])
@pytest.mark.parametrize("size", [0, NUMBERS + 1, 1 << 22])
def test_a_sketch_has_at_most_as_many_numbers_as_the_model(record, size):
    assert record({"sketch-seed": 1, "sketch-size": NUMBERS}) is not None
    with pytest.raises(ConfigError, check=names("sketch-size", size)):
        record({"sketch-seed": 1, "sketch-size": size})


def test_a_small_model_has_sketches_of_the_usual_size():
    assert protocol.sketch_in({"sketch-seed": 1, "sketch-size": 1024}, 10).size == 1024
    with pytest.raises(ConfigError, match="the model has 10 numbers"):
        protocol.sketch_in({"sketch-seed": 1, "sketch-size": 1025}, 10)


@pytest.mark.parametrize("folds", [1, 101, 1 << 40])
def test_folds_are_few(folds):
    with pytest.raises(ConfigError, check=names("question folds", folds)):
        EvaluateGaussians.read(RecordDict({"question": ConfigRecord({"folds": folds, "ridge": 0.1})}))
    with pytest.raises(ConfigError, check=names("folds", folds)):
        MixturePlan(folds=folds)


def test_a_mixture_keeps_few_snapshots():
    assert MixturePlan(epochs=tuple(range(1, 21))).models == 1 + 5 + 20 * 5
    with pytest.raises(ConfigError, check=names("epochs", tuple(range(1, 22)))):
        MixturePlan(epochs=tuple(range(1, 22)))


@pytest.mark.parametrize("told", [{"classes": 1 << 17}, {"shape": [3, 1 << 25]}, {"classes": -1}])
def test_a_node_tells_no_enormous_data(told):
    check_settings({"classes": 1 << 16, "shape": [1 << 24]}, protocol.PROPERTIES)
    with pytest.raises(ConfigError):
        check_settings(told, protocol.PROPERTIES)


def test_the_server_builds_no_model_for_enormous_samples():
    def node(shape: list[int]) -> Any:
        return Node(1, "north", False, {"shape": shape, "classes": 2})

    assert form_of_data([node([512, 512, 512])])["classes"] == 2
    with pytest.raises(RunError, check=names("shape", [1 << 20, 1 << 9])):
        form_of_data([node([1 << 20, 1 << 9])])
