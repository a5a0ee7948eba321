"""What becomes of BatchNorm's running statistics: the clients' mean, the target's own, or AdaBN."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, reply_of, steps_extra, weights

from fda_flower import ConfigError, RunConfig, run
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import (
    KD3A,
    FedAvg,
    FedAvgFT,
    FedBN,
    FedDA,
    FedDWA,
    FedGP,
    Mixture,
    RunFolder,
    SourceOnly,
)

WORDS = ("mean", "target", "adabn")
STEPS = [[0.2, 0.0], [0.3, 0.4]]
REFUSING = ("source-only", "irm", "vrex", "groupdro", "kd3a", "fedbn", "mixture", "feddwa")
"""The methods that cannot do as ``"target"`` says."""


def model(mean: float = 0.0) -> ArrayRecord:
    arrays = {
        "w": np.array([1.0, 2.0], np.float32),
        "bn.running_mean": np.full(2, mean, np.float32),
        "bn.running_var": np.ones(2, np.float32),
        "bn.num_batches_tracked": np.array(0),
    }
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def normalised(role: str, domain: str, step: Any, mean: float, examples: int, **more: Any) -> Any:
    """A node that moves the parameters by `step`; its running mean grows by `mean` in every round."""

    def answer(arrays: Any, message: Any) -> Any:
        moved = {
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


def build(method: str, **options: Any) -> Any:
    if method == "fedgp-auto":
        options["batch_update_encoding"] = "full"
    return METHODS[method].build(**{"warmup_rounds": 0, **options})


def start(strategy: Any, rounds: int = 1, nodes: Any = NODES) -> dict[str, np.ndarray]:
    result = strategy.start(HandMade(nodes).grid(), model(), rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}


# By hand


def test_the_three_words_by_hand() -> None:
    mean, target, adabn = (start(FedAvg(buffers=word)) for word in WORDS)  # type: ignore[arg-type]
    np.testing.assert_allclose(mean["bn.running_mean"], [2, 2])  # (30·1 + 10·5)/40
    np.testing.assert_allclose(mean["bn.running_var"], [2.5, 2.5])
    assert target["bn.running_mean"].tolist() == [5, 5]
    assert target["bn.running_var"].tolist() == [4, 4]
    assert target["bn.num_batches_tracked"] == 10
    for name in mean:
        assert adabn[name].tobytes() == mean[name].tobytes()
    assert target["w"].tobytes() == mean["w"].tobytes()
    assert list(target) == list(mean)
    assert [array.dtype for array in target.values()] == [array.dtype for array in mean.values()]


def test_in_the_next_round_the_clients_begin_with_the_targets() -> None:
    assert start(FedAvg(buffers="target"), rounds=2)["bn.running_mean"].tolist() == [10, 10]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in REFUSING])
def test_with_target_the_buffers_are_those_of_the_targets_reply_with_every_method(method: str) -> None:
    found, plain = (start(build(method, buffers=word)) for word in ("target", "mean"))
    assert found["bn.running_mean"].tolist() == [5, 5]
    assert found["bn.running_var"].tolist() == [4, 4]
    assert found["w"].tobytes() == plain["w"].tobytes()


def test_in_warm_up_rounds_the_sources_mean_stays() -> None:
    strategy = FedAvg(buffers="target", warmup_rounds=1)
    means = []
    strategy.progress.on_round = lambda record: means.append(strategy.model["bn.running_mean"].tolist())
    start(strategy, rounds=2)
    assert means == [[1, 1], [6, 6]]


def test_a_clipped_update_has_the_targets_buffers_all_the_same() -> None:
    found = start(FedAvg(buffers="target", max_update_norm=0.1))
    assert found["bn.running_mean"].tolist() == [5, 5]


def test_a_held_round_changes_no_buffer() -> None:
    def fails(arrays: Any, message: Any) -> Any:
        raise OSError("off")

    found = start(FedAvg(buffers="target"), nodes=[NODES[0], ("target", "t", fails)])
    assert found["bn.running_mean"].tolist() == [0, 0]


def test_the_average_is_of_the_targets_buffers() -> None:
    strategy = FedAvg(buffers="target", average="tail:2")
    start(strategy, rounds=2)
    first, second = (strategy.model_average.state_dict()[f"average/{i}"] for i in range(2))
    assert [layers["bn.running_mean"].tolist() for layers in (first, second)] == [[5, 5], [10, 10]]


# What the target is asked


def asked(strategy: Any) -> list[tuple[str, Any]]:
    """Whether each train message, and the last evaluate message, asks for AdaBN."""
    federation = HandMade(NODES)
    strategy.start(federation.grid(), model(), strategy.warmup_rounds + 1)
    told = [(domain, config.get("adabn")) for domain, config in federation.configs]
    return [*told, ("evaluate", strategy.round.config.get("adabn"))]


def test_the_target_is_asked_for_adabn_before_it_evaluates() -> None:
    assert asked(FedAvg(buffers="adabn")) == [("a", None), ("t", None), ("evaluate", True)]
    trained = asked(FedAvgFT(buffers="adabn"))
    assert trained == [("a", None), ("t", True), ("evaluate", True)]
    for word in ("mean", "target"):
        assert asked(FedAvgFT(buffers=word)) == [("a", None), ("t", None), ("evaluate", None)]


def test_a_warm_up_round_is_evaluated_with_adabn_too() -> None:
    told = []
    strategy = FedAvg(buffers="adabn", warmup_rounds=1)
    strategy.progress.on_round = lambda record: told.append(strategy.round.config["adabn"])
    start(strategy, rounds=2)
    assert told == [True, True]


# What changes nothing, and what is refused


@pytest.mark.parametrize("method", METHODS)
def test_without_buffers_the_words_change_no_bit(method: str) -> None:
    nodes = [
        ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
        ("target", "t", moves(np.sum(STEPS, axis=0), "target", "t", rate=0.1, extra=steps_extra(STEPS))),
    ]
    words = [word for word in WORDS if word != "target" or method not in REFUSING]
    models = {
        weights(build(method, buffers=word).start(HandMade(nodes).grid(), initial(), 2)).tobytes()
        for word in words
    }
    assert len(models) == 1


def test_a_network_without_running_statistics_gives_the_same_bits() -> None:
    runs = [
        run(model="mlp", shift="noise", method="fedda", rounds=2, device="cpu", buffers=word)
        for word in WORDS
    ]
    for other in runs[1:]:
        for name, array in runs[0].model.items():
            assert other.model[name].tobytes() == array.tobytes()
        assert [r["accuracy"] for r in other.history] == [r["accuracy"] for r in runs[0].history]


@pytest.mark.parametrize(
    ("make", "options", "says"),
    [
        (SourceOnly, {}, "SourceOnly the server gets no model that the target has trained"),
        (Mixture, {}, "Mixture the server gets no model that the target has trained"),
        (FedDA, {"aggregate_on": "target"}, "FedDA the server gets no model that the target has trained"),
        (FedGP, {"aggregate_on": "target"}, "FedGP the server gets no model that the target has trained"),
        (FedDWA, {}, "FedDWA the run's model is the target's own, with its own running statistics"),
        (FedBN, {}, "FedBN every client keeps its running statistics, which the server never sees"),
        (KD3A, {}, "KD3A the new statistics are the weighted mean of all clients'"),
    ],
)
def test_methods_that_have_no_statistics_of_the_target_refuse_the_word(
    make: Any, options: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=f"buffers is 'target', but with {says}: choose mean or adabn"):
        make(buffers="target", **options)
    make(buffers="adabn", **options)


@pytest.mark.parametrize("method", METHODS)
def test_another_word_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match="buffers is 'median': choose mean or target or adabn"):
        build(method, buffers="median")


def test_a_run_refuses_before_training() -> None:
    with pytest.raises(ConfigError, match="buffers is 'none': choose mean or target or adabn"):
        RunConfig(buffers="none")
    with pytest.raises(ConfigError, match=r"with SourceOnly .* choose mean or adabn"):
        RunConfig(method="source-only", buffers="target")
    assert RunConfig(method="fedavg", buffers="target").strategy_options()["buffers"] == "target"


# The run


def test_the_word_defines_the_run() -> None:
    plain = FedAvg().settings()
    assert FedAvg(buffers="mean").settings() == plain
    assert FedAvg(buffers="adabn").settings() == {**plain, "buffers": "adabn"}


@pytest.mark.parametrize("method", ["fedavg", "feddaf", "ditto"])
def test_a_resumed_run_has_the_same_bits(method: str, tmp_path: Any) -> None:
    whole = start(build(method, buffers="target"), rounds=4)
    start(build(method, buffers="target", output=RunFolder(tmp_path)), rounds=2)
    resumed = start(build(method, buffers="target", output=RunFolder(tmp_path, resume=True)), rounds=4)
    for name, array in whole.items():
        assert resumed[name].tobytes() == array.tobytes()
    with pytest.raises(ConfigError, match=r"'buffers': 'target'.* there"):
        start(build(method, output=RunFolder(tmp_path, resume=True)), rounds=5)
