"""Hostile replies: no crash, no model that is not finite, every drop named."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from handmade import HandMade, initial, moves, reply_of, steps_extra, weights

from fda_flower.files import json_safe
from fda_flower.strategies import FedDA, FedGP

STEPS = np.array([[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]])
ROUNDS, REPLIES_A_ROUND = 2500, 4

COSINE = {"magnitude": "cosine", "batch_update_encoding": "full"}


def target(**replaced):
    settings = {"steps": 3, "rate": 0.1, "extra": steps_extra(STEPS), **replaced}
    return ("target", "t", moves(STEPS.sum(axis=0), "target", "t", **settings))


def one_round(strategy, *nodes):
    return strategy.start(HandMade(nodes).grid(), initial(), 1), strategy.history[0]


@pytest.mark.parametrize("number", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("strategy", [FedGP, FedDA])
def test_a_learning_rate_out_of_range_makes_no_model_that_is_not_finite(strategy, number):
    options = (
        {"magnitude": "cosine", "batch_update_encoding": "full"}
        if strategy is FedGP
        else {"updates": "aligned"}
    )
    nodes = target(), ("source", "a", moves([0.5, 0.25], domain="a", rate=number))
    result, record = one_round(strategy(0.5, auto=True, **options), *nodes)
    assert np.isfinite(weights(result)).all()
    assert record["held"] is None or "learning rate are out of range" in record["held"]


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_a_huge_update_makes_no_model_that_is_not_finite(size):
    nodes = target(), ("source", "a", moves([size, -size], domain="a"))
    result, record = one_round(FedGP(auto=True, batch_update_encoding="full"), *nodes)
    assert np.isfinite(weights(result)).all()
    assert record["held"] is None


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"norms": [9.0, 9.0, 9.0], "full": STEPS}, "do not have the norms"),
        (steps_extra(-STEPS), "they do not sum to it"),
        (steps_extra(100 * STEPS), "they do not sum to it"),
        (steps_extra(0.01 * STEPS), "do not fit the target's update"),
    ],
)
def test_steps_that_do_not_fit_the_update_leave_the_fixed_beta(extra, says):
    extra = {name: np.asarray(array, np.float32) for name, array in extra.items()}
    extra["norms"] = extra["norms"].astype(np.float64)
    source = ("source", "a", moves([0.5, 0.25], domain="a"))
    _, record = one_round(FedGP(0.3, auto=True, batch_update_encoding="full"), target(extra=extra), source)
    assert record["sources"]["a"]["beta"] == 0.3
    assert says in record["sources"]["a"]["fallback"]


def corrupt(content, rng):
    """Change one thing of a good reply."""
    array = content["arrays"]["w"]
    data = bytearray(array.data)
    kind = int(rng.integers(9))
    if kind == 0:
        data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    elif kind == 1:
        data = data[: int(rng.integers(len(data)))]
    elif kind == 2:
        data = bytearray(rng.bytes(int(rng.integers(200))))
    elif kind == 3:
        data += rng.bytes(int(rng.integers(1, 50)))
    elif kind == 4:
        numbers = [0, -1, 2**62, 1e-300, 1e300, float("nan"), float("inf"), [1.0, 2.0], []]
        key = str(rng.choice(["num-examples", "num-steps", "learning-rate", "train-loss"]))
        content["metrics"][key] = numbers[int(rng.integers(len(numbers)))]
    elif kind == 5:
        del content[str(rng.choice(["arrays", "metrics", "info"]))]
        return content
    elif kind == 6:
        values = rng.choice([0.0, 1e-45, 1e38, -3e38, np.inf, np.nan], size=int(rng.integers(1, 4)))
        types = [np.float32, np.float64, np.float16, np.int64, np.complex64, "S4"]
        content["arrays"]["w"] = Array(values.astype(np.float32).astype(types[int(rng.integers(6))]))
        return content
    elif kind == 7:
        content["info"] = ConfigRecord({"role": str(rng.choice(["target", "source", ""])), "domain": "x"})
        return content
    else:
        name = str(rng.choice(["w", "v", ""]))
        content["arrays"] = ArrayRecord({name: array, "other": Array(np.zeros(2, np.float32))})
        return content
    content["arrays"]["w"] = Array(array.dtype, array.shape, array.stype, bytes(data))
    return content


def corrupt_steps(content, rng):
    """Change what the target tells of its steps."""
    norms, rows = np.array((STEPS**2).sum(axis=1)), STEPS.astype(np.float32)
    bad = float(rng.choice([0.0, -1.0, 1e-300, 1e300, np.inf, np.nan]))
    norms[int(rng.integers(3))] *= bad
    rows[int(rng.integers(3))] *= np.float32(rng.choice([0.0, -1.0, 1e38, np.nan]))
    chosen = {"norms": norms, "full": rows if rng.integers(2) else STEPS[:, :1]}
    content["batch-updates"] = ArrayRecord({name: Array(array) for name, array in chosen.items()})
    content["metrics"] = MetricRecord({**content["metrics"], "num-steps": int(rng.integers(5))})
    return content


@pytest.mark.parametrize("strategy", [FedDA, FedGP])
def test_ten_thousand_corrupted_replies(strategy):
    rng = np.random.default_rng(0)

    def answer(role, domain, step):
        def make(model, message):
            good = {name: array + np.float32(step) for name, array in model.items()}
            extra = steps_extra(STEPS) if role == "target" else None
            content = reply_of(good, role=role, domain=domain, extra=extra, steps=3, rate=0.1)
            if role == "target" and rng.integers(2):
                return corrupt_steps(content, rng)
            return corrupt(content, rng)

        return make

    nodes = [("source", name, answer("source", name, 0.1)) for name in "abc"]
    nodes.append(("target", "t", answer("target", "t", 0.2)))
    options = (
        {"batch_update_encoding": "full", "magnitude": "cosine"}
        if strategy is FedGP
        else {"updates": "aligned"}
    )
    learner = strategy(auto=True, max_held_rounds=ROUNDS, max_update_norm=10.0, **options)
    with np.errstate(all="raise", under="ignore"):
        result = learner.start(HandMade(nodes).grid(), initial(), ROUNDS // 2)
    assert np.isfinite(weights(result)).all()
    used = dropped = 0
    for record in learner.history:
        json.dumps(json_safe(record), allow_nan=False)
        used += len(record["sources"]) + (record["target"] is not None)
        dropped += len(record["dropped"])
        assert all(each["domain"] and each["reason"] for each in record["dropped"])
        assert used + dropped == REPLIES_A_ROUND * record["round"]
    assert used > 500
    assert dropped > 500
