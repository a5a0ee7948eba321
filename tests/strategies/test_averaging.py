"""The averaged model: what it is made of, who evaluates it, and that it changes nothing else."""

import doctest

import numpy as np
import pytest
from flwr.app import MetricRecord
from handmade import HandMade, initial, moves, weights
from naming import names

from fda_flower import run
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.files import json_safe
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import FedAvg, FedAvgFT, FedDAF, FedDWA, RunFolder, TargetOnly, averaging

A = ("source", "a", moves([0.5, 0.25], domain="a"))


def target(failing=()):
    """A target whose step grows with the rounds, and that fails in some."""

    def answer(model, message):
        number = message.content["config"]["server-round"]
        if number in failing:
            raise OSError("off")
        return moves([number, -number], "target", "t")(model, message)

    return "target", "t", answer


class Watched(LocalGrid):
    """A grid that keeps the models of evaluate messages, and their records and settings."""

    def __init__(self, app):
        super().__init__(app.app, len(app.nodes))
        self.evaluated: list[list[float]] = []
        self.contents: list[tuple[list[str], dict]] = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            if message.metadata.message_type == "evaluate":
                self.evaluated.append(message.content["arrays"]["w"].numpy().tolist())
                self.contents.append((list(message.content), dict(message.content["config"])))
        return super().send_and_receive(messages, timeout=timeout)


def start(strategy, rounds=3, nodes=None, **app):
    grid = Watched(HandMade([A, target()] if nodes is None else nodes, **app))
    return strategy.start(grid, initial(), rounds), grid


def without_times(history):
    return [{**record, "seconds": None} for record in json_safe(history)]


@pytest.mark.parametrize(
    ("average", "second", "third"),
    [("tail:2", [3, 0], [5.5, -2.5]), ("ema:0.75", [2.5, 0.5], [3.625, -0.625])],
)
def test_the_target_evaluates_the_average_after_the_model(average, second, third):
    strategy = TargetOnly(average=average)
    _, grid = start(strategy)
    assert grid.evaluated == [[2, 1], [2, 1], [4, -1], second, [7, -4], third]
    assert grid.contents[4] == (["arrays", "config"], {"server-round": 3, "confusion": True})
    assert grid.contents[5] == (["arrays", "config"], {"server-round": 3, "beside": True})
    for record in strategy.history:
        assert (record["accuracy-average"], record["loss-average"]) == (0.5, 1.0)
        assert (record["accuracy"], record["loss"]) == (0.5, 1.0)


def test_warm_up_rounds_are_no_part_of_it():
    strategy = TargetOnly(average="tail:2", warmup_rounds=2)
    _, grid = start(strategy, 4)
    assert ["accuracy-average" in record for record in strategy.history] == [False, False, True, True]
    models, averages = [*grid.evaluated[:3], grid.evaluated[4]], [grid.evaluated[3], grid.evaluated[5]]
    assert averages == [models[2], np.mean(models[2:], axis=0).tolist()]


def test_a_held_round_adds_nothing_and_the_average_is_evaluated_as_it_was():
    strategy = TargetOnly(average="tail:2")
    _, grid = start(strategy, 5, [A, target(failing={1, 3})])
    assert [record["held"] is None for record in strategy.history] == [False, True, False, True, True]
    assert ["accuracy-average" in record for record in strategy.history] == [False, True, True, True, True]
    unchanged = [[3, 0], [3, 0]]
    assert grid.evaluated == [[1, 2], *unchanged, *unchanged, [7, -4], [5, -2], [12, -9], [9.5, -6.5]]


def test_it_is_evaluated_by_a_method_that_evaluates_nothing_else():
    class Unseen(FedAvg):
        def evaluate_request(self, round):
            return None

    strategy = Unseen(average="tail:1")
    result, grid = start(strategy, 2)
    assert [(record.get("accuracy"), record["accuracy-average"]) for record in strategy.history] == [
        (None, 0.5),
        (None, 0.5),
    ]
    assert grid.evaluated[-1] == weights(result).tolist()


def test_beside_a_target_that_evaluates_what_it_has_trained():
    strategy = FedAvgFT(average="ema:0.5")
    start(strategy, 2, accuracy=0.25)
    last = strategy.history[-1]
    assert [last[key] for key in ("accuracy", "accuracy-global", "accuracy-average")] == [0.25] * 3
    assert "loss-global" in last
    assert "accuracy-global-average" not in last


def test_feddaf_evaluates_the_average_without_the_source_model():
    strategy = FedDAF(average="tail:2")
    _, grid = start(strategy, 2)
    assert [names for names, _ in grid.contents] == [["arrays", "config", "global"], ["arrays", "config"]] * 2


def test_metrics_of_other_names_are_kept_apart():
    def renamed(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate":
            reply.content["metrics"] = MetricRecord({"eval_acc": 0.75, "num-examples": 4})
        return reply

    strategy = FedAvg(average="tail:1")
    start(strategy, 1, mods=[renamed])
    (record,) = strategy.history
    assert record["metrics"] == record["metrics-average"] == {"eval_acc": 0.75}
    assert "accuracy-average" not in record


def test_an_evaluation_that_fails_is_named():
    strategy = FedAvg(average="tail:1")
    start(strategy, 1, accuracy=float("nan"))
    (record,) = strategy.history
    assert "finite" in record["evaluation-failed-average"]
    assert "accuracy-average" not in record


@pytest.mark.parametrize("average", ["tail:3", "ema:0.9"])
@pytest.mark.parametrize("strategy_class", [FedAvg, FedDAF, FedDWA])
def test_it_survives_a_checkpoint_with_the_same_bits(strategy_class, average, tmp_path):
    whole = strategy_class(average=average)
    result, grid = start(whole, 5)
    start(strategy_class(average=average, output=RunFolder(tmp_path)), 3)
    resumed = strategy_class(average=average, output=RunFolder(tmp_path, resume=True))
    second, rest = start(resumed, 5)
    assert grid.evaluated[6:] == rest.evaluated
    assert weights(second).tobytes() == weights(result).tobytes()
    assert without_times(resumed.history) == without_times(whole.history)
    state = RunFolder(tmp_path).load_checkpoint().state
    kept = [name for name in state if name.startswith("average/")]
    assert len(kept) == (3 if average == "tail:3" else 1)
    assert {name for name in state if name not in kept} == set(whole.state)
    assert not any(name.startswith("average/") for name in resumed.state)


def test_a_run_killed_before_its_first_average_is_resumed(tmp_path):
    strategy = FedAvg(average="ema:0.5", warmup_rounds=2, output=RunFolder(tmp_path))
    strategy.progress.on_round = lambda record: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        start(strategy)
    resumed = FedAvg(average="ema:0.5", warmup_rounds=2, output=RunFolder(tmp_path, resume=True))
    start(resumed)
    assert ["accuracy-average" in record for record in resumed.history] == [False, False, True]


def test_another_average_is_another_run(tmp_path):
    start(FedAvg(average="tail:2", output=RunFolder(tmp_path)))
    with pytest.raises(ConfigError, match=r"another run .*tail:2.*tail:3"):
        start(FedAvg(average="tail:3", output=RunFolder(tmp_path, resume=True)))
    assert FedAvg(average="ema:0.9").settings() == {**FedAvg().settings(), "average": "ema:0.9"}


def test_an_average_is_read():
    assert doctest.testmod(averaging) == (0, 2)


@pytest.mark.parametrize(
    "text", ["", "ema", "ema:", "ema:0", "ema:1", "ema:nan", "tail:", "tail:0", "tail:1.5", "0.9", "mean:3"]
)
def test_what_is_no_average_is_refused_when_it_is_given(text):
    with pytest.raises(ConfigError, check=names("average")):
        FedAvg(average=text)


def test_a_tail_that_is_longer_than_the_run_is_refused_before_training():
    app = HandMade([A, target()])
    with pytest.raises(ConfigError, check=names("average", "tail:3")):
        FedAvg(average="tail:3", warmup_rounds=1).start(app.grid(), initial(), 3)
    assert app.configs == []
    start(FedAvg(average="tail:2", warmup_rounds=1))


@pytest.mark.parametrize("method", [m for m in METHODS if "batch-norm" not in METHODS[m].needs])
def test_every_method_has_an_average_beside_the_same_run(method):
    settings = {"method": method, "model": "mlp", "rounds": 2, "warmup_rounds": 1, "target_samples": 10}
    settings |= {"source_samples": 8}
    settings |= {"method_options": {"every": 1}} if METHODS[method].takes("every") else {}
    plain, averaged = run(**settings), run(**settings, average="tail:2")
    for name, array in plain.model.items():
        np.testing.assert_array_equal(averaged.model[name], array)
    first, second, third = averaged.history
    own = METHODS[method].build().evaluates_trained or method in ("apfl", "knn-per")
    global_model = second["accuracy-global" if own else "accuracy"]
    if "mixture" in second:
        global_model = second["mixture"]["members"]["sources"]["test"]
    assert second["accuracy-average"] == global_model
    best = 100 * max(record["accuracy-average"] for record in (second, third))
    assert averaged.summary["average"]["best"] == best
    assert averaged.summary["last5"] == plain.summary["last5"]
    assert "accuracy-average" not in first
    for record in (second, third):
        for name in [name for name in record if name.endswith("-average")]:
            del record[name]
    assert without_times(averaged.history) == without_times(plain.history)
