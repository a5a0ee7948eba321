"""Replies become updates and figures, or are refused with the reason; what a record has of them."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from handmade import HandMade, initial, moves, reply_of, steps_extra, weights
from naming import names

from fda_flower.clients.settings import LocalTraining
from fda_flower.errors import ConfigError
from fda_flower.metrics import of_most_frequent
from fda_flower.strategies import FedAvg, FedAvgFT, FedDA, FedGP, SourceOnly, TargetOnly, VREx
from fda_flower.strategies.evaluations import left_out, read_confusion, read_metrics
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.replies import BadReplyError, read_update
from fda_flower.wire.asked.generalisation import LossMeasured
from fda_flower.wire.protocol import TrainRequest

MODEL = {"w": np.zeros((2, 2), np.float32), "n": np.array(1)}
GOOD = {"w": np.ones((2, 2), np.float32), "n": np.array(2)}


def answering(content):
    """A reply with this content, or with an error."""
    return Message(content, reply_to=Message(RecordDict(), 5, "train"))


def read(content, model=MODEL, info=None, config=None, schedule=None):
    node, request = Node(5, "a", False, info or {}), TrainRequest(ArrayRecord(), config or {})
    return read_update(answering(content), node, request, model, ("n",), None, schedule)[0]


def tells(*shown):
    """The pattern of a reason: what it names, and its value."""
    return ".*".join(re.escape(str(each)) for each in shown)


def test_a_good_reply_is_split_into_update_and_buffers():
    update = read(reply_of(GOOD, examples=12, steps=3, rate=0.1))
    np.testing.assert_array_equal(update.parameters["w"], np.ones((2, 2)))
    assert update.buffers["n"] == 2
    assert (update.examples, update.steps, update.learning_rate) == (12, 3, 0.1)
    assert update.scale == pytest.approx(0.3)


def test_a_plain_flower_reply_is_enough():
    model = ArrayRecord({name: Array(array) for name, array in GOOD.items()})
    update = read(RecordDict({"arrays": model, "metrics": MetricRecord({"num-examples": 4})}))
    assert (update.examples, update.steps, update.learning_rate, update.scale) == (4, 0, 0, 0)


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ({"w": GOOD["w"]}, ["'n'", 1]),
        ({**GOOD, "x": np.zeros(1)}, ["'x'"]),
        ({**GOOD, "w": np.ones(4, np.float32)}, ["'w'", [4], [2, 2]]),
        ({**GOOD, "w": np.ones((2, 2))}, ["'w'", "float64", "float32"]),
        ({**GOOD, "n": np.array(2.0)}, ["'n'", "float64", "int64"]),
        ({**GOOD, "w": np.full((2, 2), np.nan, np.float32)}, ["'w'", "NaN"]),
        ({**GOOD, "w": np.full((2, 2), -np.inf, np.float32)}, ["'w'", "infinity"]),
    ],
)
def test_bad_arrays(model, shown):
    with pytest.raises(BadReplyError, match=tells(*shown)):
        read(reply_of(model))


@pytest.mark.parametrize(
    ("told", "value", "name"),
    [
        *(("examples", value, "num-examples") for value in (0, -3, float("nan"), 0.5, 2.5, 1.7e308, [1, 2])),
        *(("rate", value, "learning-rate") for value in (-0.5, float("inf"))),
        ("steps", -1, "num-steps"),
        ("batch-size", -4, "batch-size"),
        ("role", "target", ""),
    ],
)
def test_bad_numbers_and_roles(told, value, name):
    with pytest.raises(BadReplyError, match=tells(name, value)):
        read(reply_of(GOOD, **{told: value}))


@pytest.mark.parametrize(
    ("name", "record", "shown"),
    [
        ("metrics", MetricRecord({"loss": 1.0}), "'num-examples'"),
        ("metrics", ConfigRecord(), "'num-examples'"),
        ("arrays", MetricRecord(), "ArrayRecord 'arrays'"),
        ("info", ConfigRecord({"role": b"source"}), "b'source'"),
    ],
)
def test_records_that_are_not_as_they_should_be(name, record, shown):
    content = {each: found for each, found in reply_of(GOOD).items() if each != name}
    with pytest.raises(BadReplyError, match=shown):
        read(RecordDict({**content, name: record}))


def test_an_error_reply_and_none():
    with pytest.raises(BadReplyError, match=tells(8, "out of memory")):
        read(Error(8, "out of\n memory"))
    with pytest.raises(BadReplyError, match="timeout"):
        read_metrics(None)


@pytest.mark.parametrize(
    ("claim", "config", "shown"),
    [
        ({"examples": 13}, {}, ["num-examples", 13, 12]),
        ({"examples": 10**9}, {}, ["num-examples", 10**9, 12]),
        ({"rate": 1e4}, {}, ["learning-rate", 10000, 0.1]),
        ({"rate": 0.1}, {"rate-factor": 0.5}, ["learning-rate", 0.1, 0.05]),
        ({"steps": 7}, {}, ["num-steps", 7, 12, 6]),
        ({"steps": 4}, {"epochs": 1}, ["num-steps", 4, 12, 3]),
    ],
)
def test_a_source_cannot_claim_what_would_have_it_trusted_more(claim, config, shown):
    schedule = LocalTraining(learning_rate=0.1, batch_size=4, epochs=2)
    told = {"info": {"examples": 12}, "config": config, "schedule": schedule}
    honest = {"examples": 12, "steps": 3, "rate": 0.05}
    assert read(reply_of(GOOD, **honest), **told).examples == 12
    with pytest.raises(BadReplyError, match=tells(*shown)):
        read(reply_of(GOOD, **{**honest, **claim}), **told)


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({"num-examples": -3}, ["num-examples", -3]),
        ({"num-examples": 2.5}, ["num-examples", 2.5]),
        ({f"m{i}": 0.0 for i in range(1001)}, [1002, 1000]),
        ({"num-examples": 24, "test-units": 24}, ["'test-units'", 24]),
        ({"num-examples": 24, "test-units": 0}, ["'test-units'", 0]),
        ({"num-examples": 24, "test-units": 2.5}, ["'test-units'", 2.5]),
        ({"test-units": 6}, ["'test-units'", 6]),
        ({"num-examples": 24, "test-units": 6, "test-effective": 24.5}, ["'test-effective'", 24.5]),
        ({"num-examples": 24, "test-units": 6, "test-effective": 0.0}, ["'test-effective'", 0]),
        ({"num-examples": 24, "test-units": 1, "test-effective": 2.0}, ["'test-effective'", 2]),
        ({"num-examples": 24, "test-effective": 2.0}, ["'test-effective'", 2]),
        ({"num-examples": 24, "test-units": 6, "sets-effective": 1e9}, ["'sets-effective'", "1e+09"]),
        ({"x" * 300: 0.0}, ["x" * 300]),
        ({"accuracy\nFDA-RESULT": 0.0}, [r"accuracy\nFDA-RESULT"]),
    ],
)
def test_an_evaluation_that_cannot_be_true_is_refused(metrics, shown):
    content = RecordDict({"metrics": MetricRecord({"loss": -2.0, **metrics})})
    with pytest.raises(BadReplyError, match=tells(*shown)):
        read_metrics(answering(content))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("accuracy", 62.5, "between 0 and 1: return the share, 0.625"),
        ("accuracy", 750.0, "between 0 and 1"),
        ("validation-auroc", -0.5, "between 0 and 1"),
        ("r2", 1.5, "between -inf and 1"),
        ("rmse", -1.0, "between 0 and inf"),
    ],
)
def test_of_an_evaluation_a_metric_that_is_impossible_is_left_out_alone(name, value, shown):
    reply = answering(RecordDict({"metrics": MetricRecord({"loss": -2.0, name: value, "mine": 7.5})}))
    assert dict(read_metrics(reply)) == {"loss": -2, "mine": 7.5}
    assert left_out(reply, evaluation=True) == f"'{name}' is {value:g}, it must lie {shown}"
    assert left_out(reply) == "", "of a train reply they are the project's own"


NO_NUMBERS = [np.nan, np.inf, -np.inf, 10**400, [], [0.5], [1, 2]]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("name", ["auc", "auroc", "loss", "validation-accuracy"])
def test_of_an_evaluation_a_metric_that_is_no_finite_number_is_left_out_alone(name, value):
    reply = answering(RecordDict({"metrics": MetricRecord({"accuracy": 0.5, name: value})}))
    assert dict(read_metrics(reply)) == {"accuracy": 0.5}
    assert left_out(reply).startswith(f"'{name}': ")
    alone = answering(RecordDict({"metrics": MetricRecord({name: value, "loss": 0.5, "num-examples": 3})}))
    if name == "auc" and isinstance(value, list):
        assert dict(read_metrics(alone)) == {"loss": 0.5, "num-examples": 3}, "a project's own"
    elif name != "loss":
        with pytest.raises(BadReplyError, match=name):
            read_metrics(alone)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: str(value)[:9])
def test_of_a_train_reply_a_metric_that_is_only_recorded_is_left_out_alone(value):
    content = reply_of(GOOD, auc=value, f1=0.5, **{"train-loss": value})
    node, request = Node(5, "a", False, {}), TrainRequest(ArrayRecord())
    update, entry = read_update(answering(content), node, request, MODEL, ("n",))
    assert (update.examples, entry["train-loss"]) == (10, None)
    assert entry["metrics"] == {"f1": 0.5}
    assert left_out(answering(content)).startswith("'auc', 'train-loss': ")
    assert left_out(answering(reply_of(GOOD))) == left_out(None) == ""
    required = request.adding(requires={"train-loss": "it"})
    with pytest.raises(BadReplyError, match="train-loss"):
        read_update(answering(content), node, required, MODEL, ("n",))


@pytest.mark.parametrize(
    ("array", "remedy"),
    [
        (np.array([0.0, -np.inf], np.float32), "persistent=False"),
        (np.array([np.nan]), "finite"),
        (np.ones(2, np.complex64), "floats"),
        (np.array(["a"]), "floats"),
    ],
)
def test_an_initial_model_that_no_reply_could_have_is_named_before_training(array, remedy):
    app = HandMade([source("a"), ("target", "t", moves(1.0, "target", "t"))])
    arrays = ArrayRecord({**initial(), "mask": Array(array)})
    with pytest.raises(ConfigError, check=names("initial_arrays", "mask", remedy)):
        FedAvg().start(app.grid(), arrays, 1)
    assert app.configs == []


TREES = {"0": Array(np.arange(5, dtype=np.uint8))}


@pytest.mark.parametrize("make", [FedAvg, FedDA, TargetOnly])
@pytest.mark.parametrize(
    ("arrays", "options", "why"),
    [
        ({}, {}, "it is empty"),
        (TREES, {}, "all its arrays, 0, are integers .* floats; for trees"),
        ({**initial()}, {"buffer_names": ["w"]}, "all its arrays, w, .* or buffers"),
    ],
)
def test_an_initial_model_without_parameters_is_refused_before_training(make, arrays, options, why):
    app = HandMade([source("a"), ("target", "t", moves(1.0, "target", "t"))])
    with pytest.raises(ConfigError, match=f"initial model has no parameters: {why}"):
        make(**options).start(app.grid(), ArrayRecord(arrays), 1)
    assert app.configs == []


def test_an_update_that_overflows():
    with pytest.raises(BadReplyError, match="'w'"):
        read(reply_of({"w": np.full(2, 3e38, np.float32)}), {"w": np.full(2, -3e38, np.float32)})


# Numbers out of range, in replies that are otherwise good

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])
FULL: dict[str, Any] = {"batch_update_encoding": "full"}


def source(domain, delta=(0.5, 0.25), **told):
    return ("source", domain, moves(delta, domain=domain, **told))


def one_round(strategy, *sources, extra=steps_extra(STEPS)):  # noqa: B008
    move = moves(STEPS.sum(axis=0), "target", "t", steps=3, rate=0.1, extra=extra)
    return strategy.start(HandMade([("target", "t", move), *sources]).grid(), initial(), 1), strategy.history[
        0
    ]


@pytest.mark.parametrize("rate", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize(
    ("kind", "options"), [(FedGP, {"magnitude": "cosine", **FULL}), (FedDA, {"updates": "aligned"})]
)
def test_a_learning_rate_out_of_range_makes_no_model_that_is_not_finite(kind, options, rate):
    result, record = one_round(kind(beta=0.5, auto=True, **options), source("a", rate=rate))
    assert np.isfinite(weights(result)).all()
    assert record["held"] is None or "learning rate are out of range" in record["held"]


def test_a_source_that_alone_makes_the_model_overflow_is_dropped():
    def lie(model, message):
        content = moves([0.25, 0.5], domain="h")(model, message)
        content.update(LossMeasured(loss_at_start=1e300).records())
        return content

    result, record = one_round(VREx(), source("a"), source("b"), ("source", "h", lie))
    np.testing.assert_array_equal(weights(result), [1.5, 2.25])
    assert list(record["sources"]) == ["a", "b"]
    ((domain, reason),) = [each.values() for each in record["dropped"]]
    assert (domain, "NaN or infinity" in reason) == ("h", True)


def test_a_long_update_is_clipped_to_the_limit_and_the_steps_of_a_clipped_target_are_not_used():
    sources = source("a", [3000.0, 0.0], examples=1), source("b", [0.0, 1.0], examples=1)
    result, record = one_round(SourceOnly(max_update_norm=1.0), *sources)
    np.testing.assert_allclose(weights(result), [1.5, 2.5], rtol=1e-6)
    assert record["sources"]["a"]["clipped"] == pytest.approx(1 / 3000)
    assert "clipped" not in record["sources"]["b"], "as long as the limit is within it"
    assert record["dropped"] == []
    _, record = one_round(FedDA(beta=0.25, auto=True, max_update_norm=0.1), *sources)
    assert record["target"]["clipped"] < 1
    assert "was clipped" in record["sources"]["b"]["fallback"]
    assert record["sources"]["b"]["beta"] == 0.25


# What a record has of an evaluation

NODES = [source("a", 0.5), ("target", "t", moves(1.0, "target", "t"))]
COUNTS = np.array([[2, 1], [0, 3]])


def evaluated(figures, strategy=None, info=(), rounds=1):
    """The last record of a run whose target replies with these figures, and counts where it is asked."""

    def counts(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate" and message.content["config"].get("confusion"):
            reply.content["confusion"] = ArrayRecord({"counts": Array(COUNTS)})
        return reply

    strategy = strategy or FedAvg()
    federation = HandMade(NODES, info=info, mods=[counts], metrics=figures)
    strategy.start(federation.grid(), initial(), rounds)
    return strategy.history[-1], federation


def test_each_figure_has_its_own_name_and_what_is_none_is_a_metric():
    figures = {"accuracy": 0.5, "auroc": 0.75, "ece": 0.1}
    record, _ = evaluated({**figures, "spelling": 0.3})
    assert {name: record[name] for name in figures} == figures
    assert record["metrics"] == {"spelling": 0.3}
    assert record["test-examples"] == 4


@pytest.mark.parametrize(("names", "classes"), [(["cat", "dog"], ["cat", "dog"]), (["cat"], ["0", "1"])])
def test_the_counts_are_asked_for_in_the_last_round_alone_and_named_by_the_targets_classes(names, classes):
    last, federation = evaluated({"accuracy": 0.5}, info={"t": {"class-names": names}}, rounds=2)
    assert [content["config"].get("confusion") for content in federation.evaluated] == [None, True]
    assert set(federation.told("confusion").values()) == {None}
    most = {"class": classes[0], **of_most_frequent(COUNTS)}
    assert last["confusion"] == {"classes": classes, "counts": COUNTS.tolist(), "most-frequent": most}


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


@pytest.mark.parametrize("counts", [np.zeros((2, 2), np.int64), np.full((2, 2), 2**63 - 1)])
def test_a_server_survives_counts_of_no_sample_and_of_more_than_there_are(counts):
    found = read_confusion({"counts": counts}, [])["confusion"]
    assert found.get("most-frequent", {}).get("accuracy", 0.5) == 0.5


@pytest.mark.parametrize(
    ("own", "figures", "info", "expected"),
    [
        (
            {"accuracy": 0.75, "auroc": 0.9},
            {"accuracy": 0.25, "auroc": 0.5},
            {},
            {"accuracy": 0.75, "auroc": 0.9, "accuracy-global": 0.25, "auroc-global": 0.5},
        ),
        (
            {"r2": 0.75, "rmse": 0.5},
            {"r2": 0.25},
            {"t": {"regression": True}},
            {"r2": 0.75, "rmse": 0.5, "r2-global": 0.25, "mean-of-labels": {"r2": 0.0, "rmse": 1.0}},
        ),
    ],
    ids=["classes", "a regression"],
)
def test_the_personal_models_figures_are_the_headline(own, figures, info, expected):
    strategy = FedAvgFT()
    record, _ = evaluated(lambda domain, asked: own if "question" in asked else figures, strategy, info)
    assert {name: record[name] for name in expected} == expected
    assert record["test-examples"] == 4
    assert "test-examples-global" not in record


def test_sizes_are_what_the_nodes_tell():
    info: dict[str, Any] = {
        "t": {"examples": 5, "unlabelled": 20, "test-examples": 9, "validation-examples": 2}
    }
    info["a"] = {"examples": 30}
    strategy = FedAvg()
    evaluated({"accuracy": 0.5}, strategy, info, rounds=2)
    first, second = strategy.history
    assert "sizes" not in second, "they are as before"
    assert first["sizes"] == {
        "a": {"labelled": 30, "train": 30},
        "t": {"labelled": 5, "unlabelled": 20, "validation": 2, "test": 9, "train": 25},
    }
    assert "sizes" not in evaluated({"accuracy": 0.5})[0]
    info["t"] |= {"groups": 2, "test-groups": 3, "validation-groups": 1}
    record, _ = evaluated({"accuracy": 0.5}, info=info)
    units = {name: number for name, number in record["sizes"]["t"].items() if name.endswith("-units")}
    assert units == {"labelled-units": 2, "test-units": 3, "validation-units": 1}


def test_what_is_known_of_the_units_of_test_samples_is_recorded():
    told = {"test-units": 2, "test-effective": 3.5}
    record, _ = evaluated({"accuracy": 0.5, **told, "sets-effective": 2.5})
    assert {name: record[name] for name in told} == told
    assert type(record["test-units"]) is int
    assert (record["sets"], "metrics" in record) == ({"effective": 2.5}, False)
