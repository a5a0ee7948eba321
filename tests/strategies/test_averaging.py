"""Averages of a run's models, of the sources, and of buffers: what they are, and what they leave as it is."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import (
    HandMade,
    Watched,
    bits,
    build,
    failing,
    initial,
    moves,
    reply_of,
    rounds_with,
    steps_extra,
    weights,
)
from naming import names

from fda_flower import ConfigError, RunConfig, run
from fda_flower.aggregation import Mean, Median, TrimmedMean
from fda_flower.files import json_safe
from fda_flower.runs.methods import METHODS, find_method
from fda_flower.strategies import (
    FedAvg,
    FedAvgFT,
    FedDA,
    FedDAF,
    FedGP,
    RunFolder,
    SourceOnly,
    TargetOnly,
)
from fda_flower.strategies.averaging import read_source_mean

A = ("source", "a", moves([0.5, 0.25], domain="a"))


def target(off=()):
    """A target whose step grows with the rounds, and that fails in some."""

    def answer(model, message):
        number = message.content["config"]["server-round"]
        return moves([number, -number], "target", "t")(model, message)

    return "target", "t", failing(answer, *off) if off else answer


def start(strategy, rounds=3, last=None, **app):
    """The result, the models that are evaluated, and what their messages hold."""
    grid = Watched(HandMade([A, last or target()], **app))
    result = strategy.start(grid, initial(), rounds)
    asked = [content for kind, _, content, _ in grid.seen if kind == "evaluate"]
    return result, [content["arrays"]["w"].numpy().tolist() for content in asked], asked


# The average of the models


@pytest.mark.parametrize(
    ("average", "second", "third"),
    [("tail:2", [3, 0], [5.5, -2.5]), ("ema:0.75", [2.5, 0.5], [3.625, -0.625])],
)
def test_the_target_evaluates_the_average_after_the_model(average, second, third):
    strategy = TargetOnly(average=average)
    _, evaluated, asked = start(strategy)
    assert evaluated == [[2, 1], [2, 1], [4, -1], second, [7, -4], third]
    assert dict(asked[4]["config"]) == {"server-round": 3, "confusion": True}
    assert dict(asked[5]["config"]) == {"server-round": 3, "beside": True}
    assert [set(content) for content in asked[4:]] == [{"arrays", "config"}] * 2
    for record in strategy.history:
        assert (record["accuracy-average"], record["loss-average"]) == (0.5, 1.0)
        assert (record["accuracy"], record["loss"]) == (0.5, 1.0)


def test_warm_up_rounds_are_no_part_of_it():
    strategy = TargetOnly(average="tail:2", warmup_rounds=2)
    _, evaluated, _ = start(strategy, 4)
    assert rounds_with(strategy, "accuracy-average") == [3, 4]
    models, averages = [*evaluated[:3], evaluated[4]], [evaluated[3], evaluated[5]]
    assert averages == [models[2], np.mean(models[2:], axis=0).tolist()]


def test_a_held_round_adds_nothing_and_the_average_is_evaluated_as_it_was():
    strategy = TargetOnly(average="tail:2")
    _, evaluated, _ = start(strategy, 5, target(off=(1, 3)))
    assert [record["held"] is None for record in strategy.history] == [False, True, False, True, True]
    assert rounds_with(strategy, "accuracy-average") == [2, 3, 4, 5]
    unchanged = [[3, 0], [3, 0]]
    assert evaluated == [[1, 2], *unchanged, *unchanged, [7, -4], [5, -2], [12, -9], [9.5, -6.5]]


def test_it_is_evaluated_by_a_method_that_evaluates_nothing_after_the_warm_up():
    class Unseen(FedAvg):
        def evaluate_request(self, round):
            return None

    strategy = Unseen(average="tail:1", warmup_rounds=1)
    result, evaluated, _ = start(strategy, 3)
    assert (rounds_with(strategy, "accuracy"), rounds_with(strategy, "accuracy-average")) == ([1], [2, 3])
    assert evaluated[-1] == weights(result).tolist()
    assert rounds_with(strategy, "evaluation-failed") == []


def test_beside_other_models_it_is_evaluated_alone():
    strategy = FedAvgFT(average="ema:0.5")
    start(strategy, 2, accuracy=0.25)
    last = strategy.history[-1]
    assert [last[key] for key in ("accuracy", "accuracy-global", "accuracy-average")] == [0.25] * 3
    assert ("loss-global" in last, "accuracy-global-average" in last) == (True, False)
    _, _, asked = start(FedDAF(average="tail:2"), 2)
    assert [content["config"].get("beside") for content in asked] == [None, True, True] * 2


def test_other_metrics_are_kept_apart_and_an_evaluation_that_fails_is_named():
    strategy = FedAvg(average="tail:1")
    start(strategy, 1, metrics={"eval_acc": 0.75})
    (record,) = strategy.history
    assert record["metrics"] == record["metrics-average"] == {"eval_acc": 0.75}
    assert "accuracy-average" not in record
    strategy = FedAvg(average="tail:1")
    start(strategy, 1, accuracy=float("nan"))
    (record,) = strategy.history
    assert all("finite" in record[f"evaluation-failed{end}"] for end in ("", "-average"))
    assert "accuracy" not in record


def test_a_run_killed_before_its_first_average_is_resumed_but_not_with_another(tmp_path):
    strategy = FedAvg(average="ema:0.5", warmup_rounds=2, output=RunFolder(tmp_path))
    strategy.progress.on_round = lambda record: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        start(strategy)
    resumed = FedAvg(average="ema:0.5", warmup_rounds=2, output=RunFolder(tmp_path, resume=True))
    start(resumed)
    assert rounds_with(resumed, "accuracy-average") == [3]
    with pytest.raises(ConfigError, check=names(str(tmp_path))):
        start(FedAvg(average="tail:3", warmup_rounds=2, output=RunFolder(tmp_path, resume=True)), 5)


def test_words_are_read():
    assert [read_source_mean(text) for text in ("mean", "trimmed")] == [Mean(), TrimmedMean(0.2)]


@pytest.mark.parametrize(
    "text", ["", "ema", "ema:", "ema:0", "ema:1", "ema:nan", "tail:", "tail:0", "tail:1.5", "0.9", "mean:3"]
)
def test_what_is_no_average_is_refused_when_it_is_given(text):
    with pytest.raises(ConfigError, check=names("average", text)):
        FedAvg(average=text)


def test_a_tail_that_is_longer_than_the_run_is_refused_before_training():
    app = HandMade([A, target()])
    with pytest.raises(ConfigError, check=names("average", "tail:3")):
        FedAvg(average="tail:3", warmup_rounds=1).start(app.grid(), initial(), 3)
    assert app.configs == []
    start(FedAvg(average="tail:2", warmup_rounds=1))


OF_MANY_ROUNDS = [name for name, method in METHODS.items() if method.rounds is None]


@pytest.mark.parametrize("method", [m for m in OF_MANY_ROUNDS if "batch-norm" not in METHODS[m].needs])
def test_every_method_has_an_average_beside_the_same_run(method):
    settings: dict[str, Any] = {"method": method, "model": "mlp", "rounds": 2, "warmup_rounds": 1}
    settings |= {"target_samples": 10, "source_samples": 8}
    settings |= {"model": "logistic"} if "frozen body" in METHODS[method].needs else {}
    settings |= {"method_options": {"every": 1}} if METHODS[method].takes("every") else {}
    plain, averaged = run(**settings), run(**settings, average="tail:2")
    assert bits(averaged.model) == bits(plain.model)
    first, second, third = averaged.history
    own = "accuracy-global" in second and method != "feddaf"
    global_model = second["accuracy-global" if own else "accuracy"]
    if "mixture" in second:
        global_model = second["mixture"]["members"]["sources"]["test"]
    assert second["accuracy-average"] == global_model
    best = max(record["accuracy-average"] for record in (second, third))
    assert averaged.summary["average"]["best"] == best
    assert averaged.summary["last5"] == plain.summary["last5"]
    assert "accuracy-average" not in first
    for record in (second, third):
        for name in [name for name in record if name.endswith("-average")]:
            del record[name]
    histories = [[{**r, "seconds": None} for r in json_safe(each.history)] for each in (averaged, plain)]
    assert histories[0] == histories[1]


# The mean of the sources

AVERAGING = ["source-only", "feddaf", "irm", "mixture"]
SMALL: dict[str, Any] = {"model": "mlp", "target_samples": 16, "batch_size": 32, "shift": "noise"}
FEW: dict[str, Any] = {**SMALL, "source_samples": 40}


@pytest.mark.parametrize("text", ["", "Median", "median:0.2", "trimmed:", "trimmed:half", "trimmed:0.5"])
def test_what_is_no_mean_is_refused(text):
    with pytest.raises(ConfigError, check=names("source_mean", text)):
        SourceOnly(source_mean=text)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_it_if_it_averages_sources_or_warms_up(method):
    entry = find_method(method)
    assert entry.strategy_class.averages_sources == (method in AVERAGING)
    if method in AVERAGING or method == "finetune-offline":
        assert entry.build(source_mean="median").settings()["source-mean"] == "median"
    else:
        with pytest.raises(ConfigError, check=names("source_mean", "median")):
            entry.build(source_mean="median")
    assert "source-mean" not in entry.build(source_mean="mean").settings()
    assert entry.build(source_mean="median", warmup_rounds=1).mean_of_sources == Median()
    assert entry.build().mean_of_sources == (Median() if method == "mixture" else Mean())


def test_the_default_of_mixture_and_of_a_centralised_reference_is_no_other_run():
    assert RunConfig(method="central:erm").fingerprint()["source_mean"] == "mean"
    prints = [
        RunConfig(method="mixture", source_mean=text).fingerprint() for text in (None, "median", "mean")
    ]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("method", ["source-only", "feddaf", "mixture"])
def test_the_median_of_three_is_the_trimmed_mean_and_not_the_mean(method):
    settings = {**FEW, "method": method, "rounds": 2}
    found = [bits(run(**settings, source_mean=each).model) for each in ("mean", "median", "trimmed:0.3")]
    assert found[0] != found[1] == found[2]


# Buffers

WORDS = ("mean", "target", "adabn")
STEPS = [[0.2, 0.0], [0.3, 0.4]]
REFUSING = (
    *("source-only", "irm", "vrex", "groupdro", "fedomg"),
    *("kd3a", "fada", "fedbn", "ridge", "mixture", "feddwa"),
)
"""The methods that cannot do as ``"target"`` says."""


def normalised(role, domain, step, mean, examples, **more):
    """A node that moves the parameters by `step`; its running mean grows by `mean` in every round."""

    def answer(arrays, message):
        moved = {
            **arrays,
            "w": arrays["w"] + np.asarray(step, np.float32),
            "bn.running_mean": arrays["bn.running_mean"] + np.float32(mean),
            "bn.running_var": arrays["bn.running_var"] * np.float32(4 if role == "target" else 2),
            "bn.num_batches_tracked": arrays["bn.num_batches_tracked"] + examples,
        }
        return reply_of(moved, examples, role=role, domain=domain, rate=0.1, **more)

    return role, domain, answer


NODES = [
    normalised("source", "a", [0.5, 0.25], 1.0, 30),
    normalised("target", "t", np.sum(STEPS, axis=0), 5.0, 10, extra=steps_extra(STEPS)),
]


def normalise(strategy, rounds=1, nodes=NODES, method=None):
    """The model after some rounds, the settings of the messages, and the running mean of each round."""
    model = {
        "w": np.array([1.0, 2.0], np.float32),
        "bn.running_mean": np.zeros(2, np.float32),
        "bn.running_var": np.ones(2, np.float32),
        "bn.num_batches_tracked": np.array(0),
    }
    arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
    arrays.update(initial(method=method))
    federation, means = HandMade(nodes), []
    strategy.progress.on_round = lambda record: means.append(strategy.model["bn.running_mean"][0])
    result = strategy.start(federation.grid(), arrays, rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}, federation, means


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ridge"])
def test_buffers_are_those_of_the_clients_or_of_the_target_and_no_parameter_changes_with_the_word(method):
    words = [word for word in WORDS if word != "target" or method not in REFUSING]
    plain, *others = (normalise(build(method, buffers=word), method=method)[0] for word in words)
    assert (plain["bn.running_var"] >= 2).all()
    assert plain["bn.num_batches_tracked"] in (10, 30)
    for found in others:
        assert [(n, array.dtype) for n, array in found.items()] == [(n, a.dtype) for n, a in plain.items()]
        assert found["w"].tobytes() == plain["w"].tobytes()
    assert bits(others[-1]) == bits(plain)
    if "target" in words:
        assert others[0]["bn.running_mean"].tolist() == [5, 5]
        assert others[0]["bn.running_var"].tolist() == [4, 4]
        assert others[0]["bn.num_batches_tracked"] == 10
    if method == "fedavg":
        np.testing.assert_allclose(plain["bn.running_mean"], [2, 2])  # (30·1 + 10·5)/40


@pytest.mark.parametrize(
    ("options", "means"),
    [({}, [5, 10]), ({"warmup_rounds": 1}, [1, 6]), ({"max_update_norm": 0.1}, [5, 10])],
)
def test_clients_begin_with_the_targets_in_the_next_round_after_the_warm_up_clipped_or_not(options, means):
    assert normalise(FedAvg(buffers="target", **options), rounds=2)[2] == means


def test_a_held_round_changes_no_buffer_and_the_average_is_of_the_targets():
    fails = ("target", "t", failing(None))
    assert normalise(FedAvg(buffers="target"), nodes=[NODES[0], fails])[2] == [0]
    strategy = FedAvg(buffers="target", average="tail:2")
    normalise(strategy, rounds=2)
    kept = strategy.model_average.models
    assert [layers["bn.running_mean"].tolist() for layers in kept] == [[5, 5], [10, 10]]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", [FedAvg, FedAvgFT])
def test_the_target_is_asked_for_adabn_before_it_evaluates_in_warm_up_rounds_too(kind, word):
    _, federation, _ = normalise(kind(buffers=word, warmup_rounds=1), rounds=2)
    asked = True if word == "adabn" else None
    assert set(federation.told("adabn").values()) == {None}
    assert {content["config"].get("adabn") for content in federation.evaluated} == {asked}


@pytest.mark.parametrize(
    "build",
    [
        *(METHODS[name].build for name in REFUSING),
        lambda **options: FedDA(aggregate_on="target", **options),
        lambda **options: FedGP(aggregate_on="target", **options),
    ],
)
def test_methods_that_have_no_statistics_of_the_target_refuse_the_word(build):
    with pytest.raises(ConfigError, check=names("buffers", "target", remedy="mean or adabn")):
        build(buffers="target")
    build(buffers="adabn")


def test_the_word_defines_the_run_which_refuses_it_before_training(tmp_path):
    plain = FedAvg().settings()
    assert FedAvg(buffers="mean").settings() == plain
    assert FedAvg(buffers="adabn").settings() == {**plain, "buffers": "adabn"}
    with pytest.raises(ConfigError, check=names("buffers", "target")):
        RunConfig(method="source-only", buffers="target")
    assert RunConfig(method="fedavg", buffers="target").strategy_options()["buffers"] == "target"
    normalise(FedAvg(buffers="target", output=RunFolder(tmp_path)))
    with pytest.raises(ConfigError, check=names(str(tmp_path))):
        normalise(FedAvg(output=RunFolder(tmp_path, resume=True)), rounds=2)
