"""FedDWA on the server: personal models, their weights, buffers of one's own."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves, reply_of, weights

from fda_flower.errors import ConfigError
from fda_flower.strategies import FedDWA, RunFolder

NODES = [
    ("source", "a", moves([0.5, 0.25], domain="a")),
    ("source", "b", moves([0.1, -0.7], domain="b")),
    ("target", "t", moves([0.25, 0.5], "target", "t")),
]


def start(nodes=NODES, rounds=1, **options):
    strategy = FedDWA(**options)
    return strategy.start(HandMade(nodes).grid(), initial(), rounds), strategy


def by_hand(personal, moved, top=3):
    """One round: the next personal models and the weights, the guidance being one step further."""
    local, guidance = personal + moved, personal + 2 * moved
    squared = ((guidance[:, None] - local[None]) ** 2).sum(axis=2)
    p = 1 / squared
    for row in p:
        row[np.argsort(-row)[top:]] = 0
    p /= p.sum(axis=1, keepdims=True)
    return p @ local, p


@pytest.mark.parametrize("top", [1, 2, 3])
def test_three_rounds_by_hand(top):
    moved = np.array([[0.5, 0.25], [0.1, -0.7], [0.25, 0.5]])
    personal = np.tile([1.0, 2.0], (3, 1))
    result, strategy = start(rounds=3, top=top)
    for record in strategy.history:
        personal, p = by_hand(personal, moved, top)
        found = [record["sources"]["a"]["weight"], record["sources"]["b"]["weight"]]
        np.testing.assert_allclose([*found, record["target"]["weight"]], p[2], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(weights(result), personal[2], rtol=1e-5)
    np.testing.assert_allclose(strategy.state_dict()["a"]["w"], personal[0], rtol=1e-5)
    np.testing.assert_allclose(strategy.state_dict()["b"]["w"], personal[1], rtol=1e-5)


def test_each_node_is_sent_its_own_model():
    seen = {}

    def watching(domain, role, delta):
        def answer(model, message):
            seen.setdefault(domain, []).append(model["w"].copy())
            return moves(delta, role, domain)(model, message)

        return role, domain, answer

    start([watching("a", "source", [0.5, 0.25]), watching("t", "target", [-0.5, 0.0])], rounds=2, top=1)
    assert np.array_equal(seen["a"][0], seen["t"][0])
    np.testing.assert_array_equal(seen["a"][1], [1.5, 2.25])
    np.testing.assert_array_equal(seen["t"][1], [0.5, 2.0])


def test_a_client_that_fails_keeps_its_model_and_counts_for_nothing_in_that_round():
    calls = []

    def fails_once(model, message):
        calls.append(model["w"].copy())
        if len(calls) == 2:
            raise OSError("off")
        return moves([0.1, -0.7], domain="b")(model, message)

    _, strategy = start([NODES[0], ("source", "b", fails_once), NODES[2]], rounds=3)
    np.testing.assert_array_equal(calls[1], calls[2])
    assert list(strategy.history[1]["sources"]) == ["a"]
    assert strategy.history[1]["sources"]["a"]["weight"] + strategy.history[1]["target"]["weight"] == 1


def test_buffers_stay_each_clients_own():
    def with_buffers(domain, role, delta, mean):
        def answer(model, message):
            moved = {"w": model["w"] + np.float32(delta), "bn.running_mean": np.array([mean], np.float32)}
            return reply_of(moved, role=role, domain=domain)

        return role, domain, answer

    arrays = ArrayRecord(
        {"w": Array(np.array([1, 2], np.float32)), "bn.running_mean": Array(np.array([0], np.float32))}
    )
    nodes = [with_buffers("a", "source", 0.5, 3.0), with_buffers("t", "target", -0.5, 8.0)]
    strategy = FedDWA()
    result = strategy.start(HandMade(nodes).grid(), arrays, 1)
    assert result.arrays["bn.running_mean"].numpy() == 8
    assert strategy.state_dict()["a"]["bn.running_mean"] == 3


def test_a_reply_without_guidance_is_refused_with_the_remedy(monkeypatch):
    import handmade

    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)
    _, strategy = start()
    assert "train one pass more" in strategy.history[0]["dropped"][0]["reason"]
    assert strategy.history[0]["held"] is not None


def test_the_headline_is_the_aggregated_model_or_the_trained_one():
    _, aggregated = start()
    assert aggregated.history[0]["accuracy"] == 0.5
    assert "accuracy-global" not in aggregated.history[0]
    _, trained = start(evaluate="trained")
    assert trained.history[0]["accuracy"] == trained.history[0]["target"]["accuracy"]
    assert trained.history[0]["accuracy-global"] == 0.5


def test_initial_rounds_ask_for_no_guidance():
    federation = HandMade(NODES)
    FedDWA(warmup_rounds=1).start(federation.grid(), initial(), 2)
    assert [config.get("guidance") for _, config in federation.configs] == [None, None, True, True, True]


def test_all_personal_models_survive_a_checkpoint(tmp_path):
    whole, strategy = start(rounds=4)
    start(rounds=2, output=RunFolder(tmp_path))
    resumed, again = start(rounds=4, output=RunFolder(tmp_path, resume=True))
    assert weights(resumed).tobytes() == weights(whole).tobytes()
    for domain, model in strategy.state_dict().items():
        assert again.state_dict()[domain]["w"].tobytes() == model["w"].tobytes()


@pytest.mark.parametrize("options", [{"top": 0}, {"evaluate": "best"}])
def test_options_that_cannot_work_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} is"):
        FedDWA(**options)
