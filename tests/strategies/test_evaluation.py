"""What a round's record has of an evaluation: figures by name, the confusion matrix, and sizes."""

import handmade
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from handmade import HandMade, initial, moves

from fda_flower.strategies import FedAvg, FedAvgFT
from fda_flower.strategies.replies import read_confusion, read_outcomes

NODES = [("source", "a", moves(0.5, domain="a")), ("target", "t", moves(1.0, "target", "t"))]
COUNTS = np.array([[2, 1], [0, 3]])


class Evaluating(HandMade):
    """The target replies to an evaluation with `figures`, and with counts where it is asked for them."""

    def __init__(self, figures, info=()):
        self.asked: list[dict] = []

        def evaluates(message, context, call_next):
            if message.metadata.message_type != "evaluate":
                return call_next(message, context)
            config = dict(message.content["config"])
            self.asked.append(config)
            content = RecordDict({"metrics": MetricRecord({**figures, "num-examples": 6})})
            if config.get("confusion"):
                content["confusion"] = ArrayRecord({"counts": Array(COUNTS)})
            return Message(content, reply_to=message)

        super().__init__(NODES, info=info, mods=[evaluates])


def run(federation, strategy=None, rounds=2):
    strategy = strategy or FedAvg()
    strategy.start(federation.grid(), initial(), rounds)
    return strategy.history


def test_each_figure_has_its_own_name_and_what_is_none_is_a_metric():
    figures = {"accuracy": 0.5, "auroc": 0.75, "ece": 0.1, "auroc-global": 0.25, "spelling": 0.3}
    record = run(Evaluating(figures))[0]
    assert {name: record[name] for name in ("accuracy", "auroc", "ece", "auroc-global")} == {
        name: value for name, value in figures.items() if name != "spelling"
    }
    assert record["metrics"] == {"spelling": 0.3}
    assert record["test-examples"] == 6


def test_the_counts_are_asked_for_in_the_last_round_alone_and_named_by_the_targets_classes():
    federation = Evaluating({"accuracy": 0.5}, info={"t": {"class-names": ["cat", "dog"]}})
    first, last = run(federation)
    assert [config.get("confusion") for config in federation.asked] == [None, True]
    assert all("confusion" not in config for _, config in federation.configs)
    assert "confusion" not in first
    assert last["confusion"] == {"classes": ["cat", "dog"], "counts": [[2, 1], [0, 3]]}


def test_without_names_the_classes_are_numbers():
    assert run(Evaluating({"accuracy": 0.5}))[-1]["confusion"]["classes"] == ["0", "1"]


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"counts": np.zeros(4, np.int64)},
        {"counts": np.zeros((2, 3), np.int64)},
        {"counts": np.eye(2)},
        {"counts": -np.eye(2, dtype=np.int64)},
        {"counts": np.zeros((3000, 3000), np.uint8)},
    ],
    ids=["none", "flat", "not square", "no counts", "negative", "huge"],
)
def test_counts_that_cannot_be_read_are_left_out(arrays):
    assert read_confusion(arrays, []) == {}


@pytest.mark.parametrize("examples", [np.nan, np.inf, 8.0, -8])
def test_outcomes_of_an_impossible_number_of_samples_are_left_out(examples):
    assert read_outcomes({"right": np.zeros(1, np.uint8), "examples": np.array(examples)}) == {}


def trained(figures):
    def add(content, model, config, accuracy):
        if config.get("evaluate-trained"):
            content["metrics"].update(figures)
            if config.get("confusion"):
                content["confusion"] = ArrayRecord({"counts": Array(COUNTS.T)})

    return add


def test_the_trained_models_figures_are_the_headline_and_the_others_beside_it(monkeypatch):
    own = {"eval-accuracy": 0.75, "eval-auroc": 0.9, "eval-loss": 0.5, "eval-num-examples": 4}
    monkeypatch.setattr(handmade, "add_what_is_asked", trained(own))
    record = run(Evaluating({"accuracy": 0.25, "auroc": 0.5, "loss": 2.0}), FedAvgFT(), rounds=1)[0]
    names = ("accuracy", "auroc", "loss", "test-examples", "accuracy-global", "auroc-global", "loss-global")
    assert [record[name] for name in names] == [0.75, 0.9, 0.5, 4, 0.25, 0.5, 2.0]
    assert record["confusion"]["counts"] == COUNTS.T.tolist()
    assert isinstance(record["test-examples"], int)


def test_a_regression_is_asked_for_r2(monkeypatch):
    monkeypatch.setattr(handmade, "add_what_is_asked", trained({"eval-r2": 0.75, "eval-rmse": 0.5}))
    numbers = {"t": {"regression": True}}
    record = run(Evaluating({"r2": 0.25}, info=numbers), FedAvgFT(), rounds=1)[0]
    assert (record["r2"], record["rmse"], record["r2-global"]) == (0.75, 0.5, 0.25)
    assert "accuracy" not in record
    lacking = run(Evaluating({"r2": 0.25}), FedAvgFT(), rounds=1)[0]
    assert "'eval-accuracy'" in lacking["dropped"][0]["reason"]


def test_sizes_are_what_the_nodes_tell():
    told = {
        "t": {"examples": 5, "unlabelled": 20, "test-examples": 9, "validation-examples": 2},
        "a": {"examples": 30},
    }
    assert run(Evaluating({"accuracy": 0.5}, info=told))[0]["sizes"] == {
        "a": {"labelled": 30, "train": 30},
        "t": {"labelled": 5, "unlabelled": 20, "validation": 2, "test": 9, "train": 25},
    }
    assert "sizes" not in run(Evaluating({"accuracy": 0.5}))[0]
