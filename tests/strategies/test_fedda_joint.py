"""FedDA_Joint: its step, its record, its fallbacks."""

import numpy as np
import pytest
from handmade import HandMade, initial, moves, steps_extra, weights

from fda_flower.aggregation import joint_weights
from fda_flower.clients import aggregate_on_target
from fda_flower.strategies import FedDA, FedDAJoint

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])
MOVES = {"a": (0.5, 0.25), "b": (0.1, -0.7)}


def nodes(domains="ab", target=(), **replaced):
    settings = {"steps": 3, "rate": 0.1, "extra": steps_extra(STEPS), **dict(target)}
    sources = [
        (
            "source",
            name,
            moves(MOVES[name], domain=name, **{"steps": 2, "rate": 0.5, **replaced.get(name, {})}),
        )
        for name in domains
    ]
    return [*sources, ("target", "t", moves(STEPS.sum(axis=0), "target", "t", **settings))]


def run(strategy, federation, mods=None):
    result = strategy.start(HandMade(federation, mods=mods).grid(), initial(), 1)
    return weights(result), strategy.history[0]


def by_definition():
    """``w``, σ² and ``D`` from the gradients themselves."""
    gradients = STEPS / 0.1
    mean = gradients.mean(axis=0)
    sigma2 = ((gradients - mean) ** 2).sum() / (3 * 2)
    errors = np.array([np.array(MOVES[name]) / (2 * 0.5) - mean for name in "ab"])
    return joint_weights(errors @ errors.T - sigma2, sigma2), sigma2


def test_a_round_by_the_definition():
    expected, sigma2 = by_definition()
    found, record = run(FedDAJoint(), nodes())
    entries = [record["sources"][name] for name in "ab"]
    assert [entry["weight"] for entry in entries] == pytest.approx(expected.tolist(), rel=1e-5)
    assert 0 < sum(expected) < 1
    assert all(entry["sigma2"] == pytest.approx(sigma2, rel=1e-5) for entry in entries)
    assert all(entry["fallback"] is None and "beta" not in entry for entry in entries)
    step = (1 - expected.sum()) * STEPS.sum(axis=0) + expected @ np.array([MOVES["a"], MOVES["b"]])
    np.testing.assert_allclose(found, np.array([1, 2]) + step, rtol=1e-6)


@pytest.mark.parametrize("updates", ["raw", "aligned"])
def test_one_source_is_fedda_auto(updates):
    joint, record = run(FedDAJoint(updates=updates), nodes("a"))
    auto, expected = run(FedDA(auto=True, updates=updates), nodes("a"))
    np.testing.assert_allclose(joint, auto, rtol=1e-6)
    assert record["sources"]["a"]["weight"] == pytest.approx(expected["sources"]["a"]["beta"], rel=1e-9)


@pytest.mark.parametrize(
    "broken", [{"extra": None}, {"rate": 0.0}, {"steps": 1, "extra": steps_extra(STEPS[:1])}]
)
def test_without_an_estimate_it_is_fedda_with_the_fixed_beta_and_says_so(broken, caplog):
    federation = nodes(target=broken, a={"examples": 30})
    found, record = run(FedDAJoint(beta={"a": 0.4, "b": 0.8}), federation)
    expected, plain = run(FedDA(beta={"a": 0.4, "b": 0.8}), federation)
    assert found.tobytes() == expected.tobytes()
    assert [record["sources"][name]["weight"] for name in "ab"] == pytest.approx([0.75 * 0.4, 0.25 * 0.8])
    assert all(entry["fallback"] for entry in record["sources"].values())
    assert "fallback" not in plain["sources"]["a"]


def test_a_source_without_steps_keeps_its_share_and_the_others_have_the_rest():
    _, record = run(FedDAJoint(beta=0.4), nodes(b={"steps": 0}))
    _, alone = run(FedDAJoint(), nodes("a"))
    assert record["sources"]["b"]["weight"] == pytest.approx(0.5 * 0.4)
    assert record["sources"]["b"]["fallback"] == "no num-steps or learning-rate"
    rest = (1 - 0.2) * alone["sources"]["a"]["weight"]
    assert record["sources"]["a"]["weight"] == pytest.approx(rest)


def test_a_source_like_the_target_may_weigh_more_than_alpha():
    mean = STEPS.sum(axis=0) / 0.3  # Kη of the source is 1
    perfect = ("source", "b", moves(mean, domain="b", steps=2, rate=0.5))
    _, record = run(FedDAJoint(), [nodes("a")[0], perfect, nodes("a")[1]])
    _, auto = run(FedDA(beta=0.9, auto=True), [nodes("a")[0], perfect, nodes("a")[1]])
    assert record["sources"]["b"]["fallback"] is None
    assert record["sources"]["b"]["weight"] > 0.6 > 0.5 * auto["sources"]["b"]["beta"]


def test_on_the_target_it_has_the_same_bits():
    on_server, _ = run(FedDAJoint(), nodes())
    on_target, record = run(FedDAJoint(aggregate_on="target"), nodes(), [aggregate_on_target])
    assert on_target.tobytes() == on_server.tobytes()
    assert "weight" not in record["sources"]["a"]
