"""Aggregation on the target: the same bits as on the server, and nothing of it seen there."""

import numpy as np
import pytest
from flwr.app import ArrayRecord
from handmade import HandMade, initial, moves, steps_extra, weights
from naming import names

from fda_flower.clients import LocalTraining, SourceClient, TargetClient, aggregate_on_target, serve
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.strategies import FedDA, FedGP

STEPS = [[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]]


def nodes(sources=2, **target):
    settings = {
        "steps": 3,
        "rate": 0.1,
        "examples": 5,
        "extra": steps_extra(STEPS),
        "batch-size": 2,
        **target,
    }
    size = {"batch-size": 4}
    answers = [
        moves([0.5, 0.25], domain="a", examples=30, **size),
        moves([0.1, -0.7], domain="b", examples=7, **size),
    ]
    found = [("source", name, answer) for name, answer in zip("ab", answers, strict=True)][:sources]
    return [*found, ("target", "t", moves(np.sum(STEPS, axis=0), "target", "t", **settings))]


def run(strategy, federation, rounds=2, mods=(aggregate_on_target,)):
    app = HandMade(federation, mods=list(mods))
    return strategy.start(app.grid(), initial(), rounds), strategy.history


@pytest.mark.parametrize(
    "make",
    [
        lambda place: FedDA(beta=0.3, aggregate_on=place),
        lambda place: FedDA(beta={"a": 0.2, "b": 0.9}, updates="aligned", aggregate_on=place),
        lambda place: FedGP(beta=0.7, granularity="model", source_weights="uniform", aggregate_on=place),
        lambda place: FedDA(auto=True, aggregate_on=place),
        lambda place: FedGP(
            auto=True,
            beta_formula="filter-aware",
            magnitude="cosine",
            batch_update_encoding="full",
            aggregate_on=place,
        ),
        lambda place: FedGP(
            auto=True,
            beta_formula="reference-code",
            magnitude="reference-code",
            batch_update_encoding="full",
            aggregate_on=place,
        ),
        lambda place: FedDA(beta=0.3, warmup_rounds=1, aggregate_on=place),
        lambda place: FedDA(beta=0.3, max_update_norm=0.65, aggregate_on=place),
    ],
)
def test_the_same_bits_as_on_the_server(make):
    on_server, _ = run(make("server"), nodes())
    on_target, history = run(make("target"), nodes())
    assert weights(on_target).tobytes() == weights(on_server).tobytes()
    assert all(record["held"] is None and not record["dropped"] for record in history)


def test_the_server_sees_neither_beta_nor_batch_updates():
    seen = []
    strategy = FedDA(auto=True, aggregate_on="target")

    class Spying(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            replies = list(super().send_and_receive(messages, timeout=timeout))
            if messages and messages[0].metadata.message_type == "train":
                seen.extend((r.content["info"]["domain"], set(r.content)) for r in replies)
            return replies

    app = HandMade(nodes(), mods=[aggregate_on_target])
    strategy.start(Spying(app.app, 3), initial(), 1)
    (record,) = strategy.history
    assert seen == [
        ("a", {"arrays", "metrics", "info"}),
        ("b", {"arrays", "metrics", "info"}),
        ("t", {"arrays", "metrics", "info"}),
    ]
    assert "beta" not in record["sources"]["a"]
    assert record["target"]["examples"] == 5


def test_a_target_without_the_mod_is_refused_and_told():
    result, (record,) = run(FedDA(aggregate_on="target"), nodes(), rounds=1, mods=())
    assert record["held"] == "no usable reply of the target"
    assert "lacks the mod aggregate_on_target" in record["dropped"][0]["reason"]
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])


def test_a_target_that_fails_holds_the_model():
    def fails(model, message):
        raise OSError("disk full")

    federation = [*nodes()[:2], ("target", "t", fails)]
    result, (record,) = run(FedDA(aggregate_on="target"), federation, rounds=1)
    assert record["held"] == "no usable reply of the target"
    assert "disk full" in record["dropped"][0]["reason"]
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])


def test_without_the_target_the_model_holds():
    class Leaving(LocalGrid):
        def get_node_ids(self):
            return list(super().get_node_ids())[: 3 - len(strategy.history)]

    strategy = FedDA(aggregate_on="target")
    app = HandMade(nodes(), mods=[aggregate_on_target])
    strategy.start(Leaving(app.app, 3), initial(), 2)
    assert [record["held"] for record in strategy.history] == [None, "the target is not connected"]


def test_a_combined_model_that_is_too_far_is_clipped():
    result, (record,) = run(FedDA(beta=0.0, max_update_norm=0.1, aggregate_on="target"), nodes(), rounds=1)
    moved = weights(result) - np.array([1.0, 2.0])
    assert np.linalg.norm(moved) == pytest.approx(0.1, rel=1e-5)
    assert record["target"]["clipped"] < 1


def test_batch_updates_that_are_missing_leave_the_fixed_beta():
    fixed, _ = run(FedDA(beta=0.25), nodes(), rounds=1)
    auto, _ = run(FedDA(beta=0.25, auto=True, aggregate_on="target"), nodes(extra=None), rounds=1)
    assert weights(auto).tobytes() == weights(fixed).tobytes()


def test_another_place_is_refused():
    with pytest.raises(ConfigError, check=names("aggregate_on", "client")):
        FedGP(aggregate_on="client")  # type: ignore[arg-type]


def test_the_packages_own_clients_have_the_mod():
    spec = DataSpec("digits", "rotate", num_sources=2, target_samples=24)
    federation = load_federation(spec)

    def model():
        return build_model("mlp", federation.shape, federation.classes, 0)

    def client(context):
        name = spec.domain_names[int(context.node_config["partition-id"])]
        kind = TargetClient if name == federation.target else SourceClient
        return kind(federation.domains[name], model(), LocalTraining(0.01, 8))

    results = []
    for place in ("server", "target"):
        strategy = FedGP(auto=True, sketch_size=64, aggregate_on=place)
        arrays = ArrayRecord(model().state_dict())
        results.append(strategy.start(LocalGrid(serve(client), 3), arrays, 2).arrays)
        assert all(record["held"] is None for record in strategy.history)
    for name, array in results[0].items():
        assert results[1][name].numpy().tobytes() == array.numpy().tobytes()
