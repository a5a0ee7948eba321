"""Flower's own strategies: the models that they make of ours are those that Flower makes alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.errors import RefusedError
from fda_flower.references.flower import (
    FlowerBulyan,
    FlowerFedAvg,
    FlowerFedMedian,
    FlowerFedTrimmedAvg,
    FlowerKrum,
    FlowerMultiKrum,
)
from fda_flower.running.run import run_config
from fda_flower.runs.methods import FLOWER, OF_FLOWER, find_method
from fda_flower.strategies.base import BadReplyError, ClientUpdate
from fda_flower.strategies.nodes import Node
from fda_flower.wire.protocol import to_layers, to_record

RULES = [
    (FlowerFedAvg(), flower.FedAvg()),
    (FlowerFedMedian(), flower.FedMedian()),
    (FlowerFedTrimmedAvg(cut=0.3), flower.FedTrimmedAvg(beta=0.3)),
    (FlowerKrum(num_malicious_nodes=1), flower.Krum(num_malicious_nodes=1)),
    (
        FlowerMultiKrum(num_malicious_nodes=1, num_nodes_to_select=5),
        flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5),
    ),
    (FlowerBulyan(num_malicious_nodes=1), flower.Bulyan(num_malicious_nodes=1)),
]


def nodes_of(count):
    return [Node(i, str(i), i == 0, {}) for i in range(count)]


def round_of(model):
    """A round that has only a number and a model."""
    return SimpleNamespace(number=1, model=model)


@pytest.mark.parametrize(("ours", "theirs"), RULES, ids=lambda each: type(each).__name__)
def test_the_model_is_flowers(in_a_run, ours, theirs):
    rng = np.random.default_rng(0)
    model = {"w": rng.standard_normal((3, 4)).astype(np.float32), "bn.num_batches_tracked": np.array(2)}
    count = np.array(5)
    models = [
        {"w": model["w"] + np.float32(rng.standard_normal((3, 4))), "bn.num_batches_tracked": count}
        for _ in range(7)
    ]
    models[3]["w"] *= -50
    examples = [4, 10, 20, 30, 40, 50, 60]
    updates = [ClientUpdate.between(model, each, n) for each, n in zip(models, examples, strict=True)]
    sources = {f"source-{i}": update for i, update in enumerate(updates[1:])}
    found = ours.aggregate(round_of(model), updates[0], sources).model
    replies = [
        Message(
            RecordDict({"arrays": to_record(each), "metrics": MetricRecord({"num-examples": n})}),
            dst_node_id=1,
            message_type="train",
        )
        for each, n in zip(models, examples, strict=True)
    ]
    arrays, _ = theirs.aggregate_train(1, replies)
    np.testing.assert_allclose(found["w"], to_layers(arrays)["w"], rtol=1e-5, atol=1e-6)
    assert {name: array.dtype for name, array in found.items()} == {
        "w": np.float32,
        "bn.num_batches_tracked": np.int64,
    }
    assert found["bn.num_batches_tracked"] == 5


def test_bulyan_refuses_few_clients_before_training_and_holds_a_round_of_few_replies(in_a_run):
    bulyan = FlowerBulyan(num_malicious_nodes=1)
    bulyan.validate_nodes(nodes_of(7))
    with pytest.raises(RefusedError, check=names("clients", 6, "more sources")):
        bulyan.validate_nodes(nodes_of(6))
    model = {"w": np.zeros(2, np.float32)}
    update = ClientUpdate.between(model, {"w": np.ones(2, np.float32)}, 3)
    with pytest.raises(BadReplyError, match="Bulyan"):
        bulyan.aggregate(round_of(model), update, {"a": update})


@pytest.mark.parametrize("rule", FLOWER)
def test_every_one_is_a_method_with_records_of_ours(small, rule):
    name = f"{OF_FLOWER}{rule}"
    assert find_method(name).label == f"{rule} (Flower)"
    config = RunConfig(**{**small, "method": name, "shift": "noise", "rounds": 1, "source_samples": 40})
    result = run_config(config)
    (record,) = result.history
    assert record["held"] is None
    assert len(record["sources"]) == 3
    assert record["target"]["domain"] == "target"
    assert 0 <= record["accuracy"] <= 1
    strategy: Any = config.entry.build()
    assert strategy.rule.__name__ == rule


def test_options_are_flowers_and_checked():
    options = {"num_malicious_nodes": "2", "num_nodes_to_select": "3"}
    config = RunConfig(method="flower:MultiKrum", method_options=options)
    assert dict(config.method_options) == {"num_malicious_nodes": 2, "num_nodes_to_select": 3}
    with pytest.raises(ConfigError, check=names("method-options", {"beta": 0.5})):
        RunConfig(method="flower:FedTrimmedAvg", method_options={"cut": 0.5})
    with pytest.raises(ConfigError, check=names("method", "flower:kram")):
        RunConfig(method="flower:kram")
    with pytest.raises(ConfigError, check=names("source_mean", "median")):
        RunConfig(method="flower:Krum", source_mean="median")
