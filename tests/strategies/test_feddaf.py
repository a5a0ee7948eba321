"""FedDAF on the server: two streams of models, and what it reads of the target's own."""

import handmade
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, reply_of, weights
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.strategies import FedDAF, RunFolder

SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]


def target(adapted=(7.0, 8.0), seen=None):
    """A target that replies with an adapted model of its own choice."""

    def answer(model, message):
        if seen is not None:
            seen.append(model["w"].tolist())
        content = reply_of({"w": model["w"] * 10}, role="target", domain="t", sim=0.5, theta=1.0, alpha=0.25)
        content["adapted"] = ArrayRecord({"w": Array(np.asarray(adapted, np.float32))})
        return content

    return ("target", "t", answer)


@pytest.fixture(autouse=True)
def replies_as_they_are(monkeypatch):
    """Unlike elsewhere nothing is added to what the tests' clients reply."""
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)


def start(nodes, rounds=1, arrays=None, **options):
    strategy = FedDAF(**options)
    return strategy.start(HandMade(nodes).grid(), arrays or initial(), rounds), strategy


def test_the_sources_mean_is_uniform_and_never_holds_the_target():
    seen = []
    _, strategy = start([*SOURCES, target(seen=seen)], rounds=3)
    # (1, 2), then (0.25, -0.5) more every round: the mean of the two updates
    assert seen == [[1, 2], [1.25, 1.5], [1.5, 1]]
    np.testing.assert_allclose(strategy.state_dict()["sources"]["w"], [1.75, 0.5])


def test_the_sources_mean_by_examples():
    _, strategy = start([*SOURCES, target()], source_weights="examples")
    np.testing.assert_allclose(strategy.state_dict()["sources"]["w"], [1.375, 1.75])


def test_the_runs_model_is_the_adapted_one():
    result, strategy = start([*SOURCES, target((7.0, 8.0))], rounds=2)
    np.testing.assert_array_equal(weights(result), [7, 8])
    assert list(strategy.state_dict()) == ["sources"]
    record = strategy.history[-1]
    assert {key: record["target"][key] for key in ("sim", "theta", "alpha")} == {
        "sim": 0.5,
        "theta": 1.0,
        "alpha": 0.25,
    }


def test_the_target_evaluates_the_adapted_model_and_beside_it_the_source_model():
    seen = []

    class Spying(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            for message in messages:
                if message.metadata.message_type == "evaluate":
                    records = message.content.array_records
                    seen.append({name: record["w"].numpy().tolist() for name, record in records.items()})
            return super().send_and_receive(messages, timeout=timeout)

    app = HandMade([*SOURCES, target((7.0, 8.0))])
    FedDAF(warmup_rounds=1).start(Spying(app.app, 3), initial(), 3)
    assert seen == [
        {"arrays": [1.375, 1.75]},
        {"arrays": [7, 8], "global": [1.625, 1.25]},
        {"arrays": [7, 8], "global": [1.875, 0.75]},
    ]


def test_the_mu_is_told_to_the_target_alone():
    federation = HandMade([*SOURCES, target()])
    FedDAF(mu=-2.5).start(federation.grid(), initial(), 1)
    assert {domain: config.get("mu") for domain, config in federation.configs} == {
        "a": None,
        "b": None,
        "t": -2.5,
    }


def test_the_initial_rounds_are_of_both_streams():
    seen = []
    start([*SOURCES, target(seen=seen)], rounds=3, warmup_rounds=1)
    # the warm-up round averages by examples, 30 and 10: (0.375, -0.25)
    np.testing.assert_allclose(seen, [[1.375, 1.75], [1.625, 1.25]])  # type: ignore[arg-type]


def test_without_an_adapted_model_the_reply_is_refused_with_the_remedy():
    result, strategy = start([*SOURCES, ("target", "t", moves(1.0, "target", "t"))])
    (dropped,) = strategy.history[0]["dropped"]
    assert "no ArrayRecord 'adapted'" in dropped["reason"]
    assert "FedDAFTarget" in dropped["reason"]
    np.testing.assert_array_equal(weights(result), [1, 2])


@pytest.mark.parametrize(
    ("adapted", "reason"), [([np.nan, 0.0], "NaN or infinity"), ([1.0, 2.0, 3.0], "not like the model's")]
)
def test_an_adapted_model_of_no_use_is_refused(adapted, reason):
    _, strategy = start([*SOURCES, target(adapted)])
    assert reason in strategy.history[0]["dropped"][0]["reason"]


@pytest.mark.parametrize("alpha", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused(alpha):
    def answer(model, message):
        content = reply_of(model, role="target", domain="t", alpha=float(alpha))
        content["adapted"] = ArrayRecord(dict(content["arrays"]))
        return content

    _, strategy = start([*SOURCES, ("target", "t", answer)])
    assert "'alpha'" in strategy.history[0]["dropped"][0]["reason"]


def test_an_adapted_model_that_cannot_be_read_is_refused():
    def answer(model, message):
        content = reply_of(model, role="target", domain="t")
        array = content["arrays"]["w"]
        damaged = Array(array.dtype, array.shape, array.stype, array.data[:-3])
        content["adapted"] = ArrayRecord({"w": damaged})
        return content

    _, strategy = start([*SOURCES, ("target", "t", answer)])
    assert "array 'w' cannot be read" in strategy.history[0]["dropped"][0]["reason"]


def test_a_held_round_leaves_both_streams_as_they_are():
    def fails(model, message):
        raise OSError("off")

    _, strategy = start([*SOURCES, ("target", "t", fails)], rounds=2)
    assert strategy.state_dict() == {}
    assert [record["held"] for record in strategy.history] == ["no usable reply of the target"] * 2


def test_sources_that_overflow_hold_the_round():
    huge = moves(np.float32(3e38), domain="a")
    arrays = ArrayRecord({"w": Array(np.array([3e38, 0], np.float32))})
    nodes = [("source", "a", huge), ("target", "t", moves(0.0, "target", "t"))]
    result, strategy = start(nodes, arrays=arrays)
    assert np.isfinite(weights(result)).all()
    assert strategy.history[0]["held"] is not None


def test_a_target_that_lost_its_own_model_is_told_of():
    def forgets(model, message):
        content = reply_of({"w": model["w"] + 1}, role="target", domain="t", **{"fresh-start": 1})
        content["adapted"] = ArrayRecord(dict(message.content["arrays"]))
        return content

    _, strategy = start([*SOURCES, ("target", "t", forgets)], rounds=2)
    first, second = strategy.history
    assert {key: first["target"][key] for key in ("sim", "theta", "alpha")} == {
        "sim": None,
        "theta": None,
        "alpha": None,
    }
    assert "fallback" not in first["target"]
    assert "no model of its own" in second["target"]["fallback"]


def test_a_run_resumed_in_its_initial_rounds_has_lost_nothing(tmp_path):
    nodes = [*SOURCES, ("target", "t", moves(1.0, "target", "t"))]

    def stop(record):
        if record["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(nodes, rounds=3, warmup_rounds=1, output=RunFolder(tmp_path), on_round=stop)

    def forgets(model, message):
        content = reply_of(model, role="target", domain="t", **{"fresh-start": 1})
        content["adapted"] = ArrayRecord(dict(message.content["arrays"]))
        return content

    nodes[-1] = ("target", "t", forgets)
    _, strategy = start(nodes, rounds=2, warmup_rounds=1, output=RunFolder(tmp_path, resume=True))
    assert strategy.history[1]["target"]["alpha"] is None
    assert "fallback" not in strategy.history[1]["target"]


@pytest.mark.parametrize("mu", [np.nan, np.inf])
def test_a_mu_that_is_not_finite_is_refused(mu):
    with pytest.raises(ConfigError, check=names("mu")):
        FedDAF(mu=mu)
