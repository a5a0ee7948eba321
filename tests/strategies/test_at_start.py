"""Estimates from gradients at the global model: what is asked, what follows, and what may be missing."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, Watched, bits, initial, moves

from fda_flower.aggregation import CountSketch, joint_weights
from fda_flower.clients import aggregate_on_target
from fda_flower.strategies import FedDA, FedDAJoint, FedGP

ROWS = {
    "a": np.array([[1.0, 3.0], [3.0, 3.0]]),
    "b": np.array([[-2.0, 1.0], [-2.0, 1.0]]),
    "t": np.array([[0.0, 1.0], [4.0, 1.0]]),
}
EACH = pytest.mark.parametrize("make", [FedDA, FedDAJoint, FedGP])


def at_start(make, beta=0.5, **options):
    auto = {} if make is FedDAJoint else {"auto": True}
    return make(beta=beta, estimate_at="start", **auto, **options)


def gradients(rows, config, **changed):
    """The record that a client sends."""
    B, mean = len(rows), rows.mean(axis=0)
    arrays = {"norm": mean @ mean, "variance": ((rows - mean) ** 2).sum() / (B * (B - 1)), "batches": B}
    size, seed = config["sketch-size"], config["sketch-seed"]
    arrays |= {"sketch-size": size, "sketch-seed": seed, "sketch": CountSketch(size, seed)({"w": mean})}
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in {**arrays, **changed}.items()})


def node(domain, delta=(0.5, 0.25), silent=False, changed=None, **kwargs):
    role = "target" if domain == "t" else "source"
    move = moves(delta, role, domain, **kwargs)

    def answer(model, message):
        content, config = move(model, message), message.content["config"]
        if "gradients" in config and not silent:
            content["gradients"] = gradients(ROWS[domain], config, **(changed or {}))
        return content

    return (role, domain, answer)


def run(strategy, rounds=1, mods=None, **replaced):
    app = HandMade([node(name, **replaced.get(name, {})) for name in ROWS], mods=mods)
    grid = Watched(app)
    result = strategy.start(grid, initial(), rounds)
    return bits(result.arrays), strategy.history, app, grid


def fallbacks(record):
    return [entry["fallback"] for entry in record["sources"].values()]


@pytest.mark.parametrize(
    ("make", "field", "expected"),
    [
        # ḡ_T = (2, 1), v_T = 4; ḡ_a = (2, 3), v_a = 1; ḡ_b = (-2, 1), v_b = 0.
        (FedDA, "sigma2", [4, 4]),
        (FedDA, "d2", [-1, 12]),
        (FedDA, "beta", [1, 0.25]),
        (FedDAJoint, "weight", joint_weights(np.array([[-1.0, -4.0], [-4.0, 12.0]]), 4.0).tolist()),
        (FedGP, "delta", [1, 0]),
        (FedGP, "beta", [1, 1]),
    ],
)
def test_the_record_by_hand(make, field, expected):
    _, (record,), _, _ = run(at_start(make))
    assert [entry[field] for entry in record["sources"].values()] == pytest.approx(expected)
    if make is FedGP:
        assert record["sources"]["a"]["tau2-d2"] == pytest.approx(
            1 - (49 - 13 * 5 / 1024) / (1 + 1 / 1024) / 12
        )


@EACH
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"silent": True}, "it has no ArrayRecord 'gradients'"),
        ({"changed": {"sketch-seed": 9}}, "sketch of size 1024 with seed 9"),
    ],
)
@pytest.mark.parametrize("domain", ["a", "t"])
def test_without_usable_gradients_the_fixed_beta_serves_and_the_round_says_so(make, broken, says, domain):
    _, (record,), _, _ = run(at_start(make, 0.25), **{domain: broken})
    assert (record["held"], record["dropped"]) == (None, [])
    for name, entry in record["sources"].items():
        if domain in (name, "t"):
            assert says in entry["fallback"]
            assert entry["fallback"].startswith("the target: ") == (domain == "t")
            assert entry.get("beta", 2 * entry.get("weight", 0)) == 0.25
        else:
            assert entry["fallback"] is None


@EACH
@pytest.mark.parametrize("silent", ["", "a", "t"])
def test_on_the_target_the_same_bits_as_on_the_server(make, silent):
    quiet = {silent: {"silent": True}} if silent else {}
    on_server, _, _, _ = run(at_start(make, warmup_rounds=1), 3, **quiet)
    strategy = at_start(make, aggregate_on="target", warmup_rounds=1)
    on_target, history, _, grid = run(strategy, 3, [aggregate_on_target], **quiet)
    assert on_target == on_server
    assert all(record["held"] is None and not record["dropped"] for record in history)
    assert not {"beta", "weight"} & set(history[-1]["sources"]["a"])
    sent = {domain: names for kind, domain, names in grid.replied if kind == "train"}
    assert ("gradients" in sent["a"], "gradients" in sent["t"]) == (silent != "a", False)


def test_neither_a_clipped_target_nor_one_without_steps_and_rate_loses_its_estimate():
    _, (record,), _, _ = run(at_start(FedDA, max_update_norm=0.1))
    assert record["target"]["clipped"] < 1
    _, (other,), _, _ = run(at_start(FedDA), **{name: {"steps": 0, "rate": 0.0} for name in ROWS})
    assert fallbacks(record) == fallbacks(other) == [None, None]
