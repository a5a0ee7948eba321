"""FedDWA on the server: personal models, their weights, buffers of one's own."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, failing, initial, moves, reply_of, weights

from fda_flower.strategies import FedDWA
from fda_flower.wire.asked.personal import Guided

MOVED = {"a": [0.5, 0.25], "b": [0.1, -0.7], "t": [0.25, 0.5]}


class Site:
    """Moves every parameter, and keeps what it is sent; it fails in some rounds."""

    def __init__(self, domain, off=(), overflows=()):
        self.role, self.domain = "target" if domain == "t" else "source", domain
        self.off, self.overflows, self.received = off, overflows, []

    def __call__(self, model, message):
        self.received.append(model["w"].tolist())
        number = message.content["config"]["server-round"]
        delta = 2e38 if number in self.overflows else MOVED[self.domain]
        answer = moves(delta, self.role, self.domain)
        return (failing(answer) if number in self.off else answer)(model, message)


def start(rounds=1, domains="abt", sites=(), **options):
    found = {domain: Site(domain) for domain in domains} | dict(sites)
    app, strategy = HandMade([(site.role, name, site) for name, site in found.items()]), FedDWA(**options)
    return strategy.start(app.grid(), initial(), rounds), strategy, found, app


@pytest.mark.parametrize("top", [1, 2, 3])
def test_three_rounds_by_hand(top):
    """The guidance is one step further than the model."""
    result, strategy, _, _ = start(rounds=3, top=top)
    moved, personal = np.array(list(MOVED.values())), np.tile([1.0, 2.0], (3, 1))
    for record in strategy.history:
        local, guidance = personal + moved, personal + 2 * moved
        p = 1 / ((guidance[:, None] - local[None]) ** 2).sum(axis=2)
        for row in p:
            row[np.argsort(-row)[top:]] = 0
        p /= p.sum(axis=1, keepdims=True)
        personal = p @ local
        found = [record["sources"][domain]["weight"] for domain in "ab"]
        np.testing.assert_allclose([*found, record["target"]["weight"]], p[2], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(weights(result), personal[2], rtol=1e-5)
    for domain, expected in zip("ab", personal, strict=False):
        np.testing.assert_allclose(strategy.state_dict()[domain]["w"], expected, rtol=1e-5)


def test_a_client_that_fails_keeps_its_model_and_counts_for_nothing_in_that_round():
    _, strategy, sites, _ = start(rounds=3, sites={"b": Site("b", off=(2,))})
    assert sites["b"].received[1] == sites["b"].received[2]
    second = strategy.history[1]
    assert list(second["sources"]) == ["a"]
    assert second["sources"]["a"]["weight"] + second["target"]["weight"] == 1


@pytest.mark.parametrize("fault", ["off", "overflows"])
def test_a_held_round_leaves_every_model_as_it_was(fault):
    _, strategy, sites, _ = start(rounds=3, sites={"t": Site("t", **{fault: (2,)})}, top=2)
    assert [record["held"] is None for record in strategy.history] == [True, False, True]
    for domain in "ab":
        first, second, third = sites[domain].received
        assert second == third != first


def test_a_clipped_clients_guidance_is_moved_towards_its_model_by_the_same_factor():
    results = []
    for step in (np.array([30, 40], np.float32), np.array([3, 4], np.float32)):

        def answer(model, message, step=step):
            content = reply_of({"w": model["w"] + step}, role="target", domain="t")
            content.update(Guided(guidance={"w": model["w"] + 2 * step}).records())
            return content

        nodes = [("source", domain, Site(domain)) for domain in "ab"]
        strategy = FedDWA(max_update_norm=5.0)
        result = strategy.start(HandMade([*nodes, ("target", "t", answer)]).grid(), initial(), 1)
        entry = strategy.history[0]["target"]
        results.append((weights(result), entry["weight"], entry.get("clipped")))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-6)
    assert [clipped for *_, clipped in results] == [pytest.approx(0.1), None]


def test_buffers_stay_each_clients_own():
    def node(domain, role, delta, mean):
        def answer(model, message):
            moved = {"w": model["w"] + np.float32(delta), "bn.running_mean": np.array([mean], np.float32)}
            return reply_of(moved, role=role, domain=domain)

        return role, domain, answer

    model = {"w": np.array([1, 2], np.float32), "bn.running_mean": np.array([0], np.float32)}
    arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
    app, strategy = HandMade([node("a", "source", 0.5, 3.0), node("t", "target", -0.5, 8.0)]), FedDWA()
    assert strategy.start(app.grid(), arrays, 1).arrays["bn.running_mean"].numpy() == 8
    assert strategy.state_dict()["a"]["bn.running_mean"] == 3
