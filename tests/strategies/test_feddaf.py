"""FedDAF on the server: two streams of models, and what it reads of the target's own."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array
from handmade import HandMade, Watched, initial, moves, reply_of, weights

from fda_flower.strategies import FedDAF, RunFolder
from fda_flower.wire.asked.personal import Blended

pytestmark = pytest.mark.usefixtures("bare_replies")
SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]
TOLD: dict[str, Any] = {"sim": 0.5, "theta": 1.0, "alpha": 0.25}


def target(adapted=(7.0, 8.0), seen=None, damaged=False, **told):
    """A target that replies with an adapted model of its own choice."""

    def answer(model, message):
        if seen is not None:
            seen.append(model["w"].tolist())
        content = reply_of({"w": model["w"] * 10}, role="target", domain="t")
        if message.metadata.message_type == "train":
            return content
        asked = told or {"fresh_start": False, **TOLD}
        content.update(Blended(adapted={"w": np.asarray(adapted, np.float32)}, **asked).records())
        if damaged:
            array = content["answer/adapted"].pop("w")
            content["answer/adapted"]["w"] = Array(array.dtype, array.shape, array.stype, array.data[:-3])
        return content

    return ("target", "t", answer)


def start(last, rounds=1, arrays=None, nodes=SOURCES, **options):
    strategy, grid = FedDAF(**options), Watched(HandMade([*nodes, last]))
    return strategy.start(grid, arrays or initial(), rounds), strategy, grid


def test_the_sources_mean_is_uniform_or_by_examples_and_never_holds_the_target():
    seen = []
    _, strategy, _ = start(target(seen=seen), rounds=3)
    # (1, 2), then (0.25, -0.5) more every round: the mean of the two updates
    assert seen == [[1, 2], [1.25, 1.5], [1.5, 1]]
    np.testing.assert_allclose(strategy.state_dict()["sources"]["w"], [1.75, 0.5])
    _, strategy, _ = start(target(), source_weights="examples")
    np.testing.assert_allclose(strategy.state_dict()["sources"]["w"], [1.375, 1.75])


def test_in_the_authors_code_the_runs_model_is_the_trained_one_and_near_sources_weigh_more():
    result, strategy, _ = start(target(), **FedDAF.variants["reference-code"])
    np.testing.assert_allclose(weights(result), [10, 20])  # ten times the model received
    # the target's update is (9, 18), at 19.88 from (0.5, 0) and 21.02 from (0, -1)
    near = 1 / (1 + np.exp(np.hypot(8.5, 18) - np.hypot(9, 19)))
    np.testing.assert_allclose(strategy.state_dict()["sources"]["w"], [1 + near / 2, 2 - (1 - near)])


def test_the_runs_model_is_the_adapted_one_which_is_evaluated_and_beside_it_the_source_model():
    result, strategy, grid = start(target((7.0, 8.0)), rounds=3, warmup_rounds=1)
    np.testing.assert_array_equal(weights(result), [7, 8])
    assert list(strategy.state_dict()) == ["sources"]
    entry = strategy.history[-1]["target"]
    assert {key: entry[key] for key in TOLD} == TOLD
    # the warm-up round averages by examples, 30 and 10: (0.375, -0.25)
    evaluated = [
        content["arrays"]["w"].numpy().tolist() for kind, _, content, _ in grid.seen if kind == "evaluate"
    ]
    assert evaluated == [[1.375, 1.75], [7, 8], [1.625, 1.25], [7, 8], [1.875, 0.75]]


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (target([np.nan, 0.0]), "finite numbers"),
        (target([1.0, 2.0, 3.0]), "of shape [3]"),
        (target(damaged=True), "array 'w' of its answer adapted cannot be read"),
        (target(fresh_start=False, alpha=np.nan), "alpha"),
        (target(fresh_start=False, alpha=2.0), "alpha"),
    ],
)
def test_a_reply_of_no_use_is_dropped_and_both_streams_stay_as_they_are(last, says):
    result, strategy, _ = start(last, rounds=2)
    assert [record["held"] for record in strategy.history] == ["no usable reply of the target"] * 2
    assert says in strategy.history[0]["dropped"][0]["reason"]
    assert strategy.state_dict() == {}
    np.testing.assert_array_equal(weights(result), [1, 2])


def test_a_target_that_lost_its_own_model_is_told_of():
    _, strategy, _ = start(target(fresh_start=True), rounds=2)
    first, second = strategy.history
    assert {first["target"][key] for key in TOLD} == {None}
    assert "fallback" not in first["target"]
    assert "the sources'" in second["target"]["fallback"]


def test_a_run_resumed_in_its_warm_up_has_lost_nothing(tmp_path):
    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(target(), rounds=3, warmup_rounds=1, output=RunFolder(tmp_path), on_round=stop)
    last, output = target(fresh_start=True), RunFolder(tmp_path, resume=True)
    _, strategy, _ = start(last, rounds=2, warmup_rounds=1, output=output)
    assert strategy.history[1]["target"]["alpha"] is None
    assert "fallback" not in strategy.history[1]["target"]
