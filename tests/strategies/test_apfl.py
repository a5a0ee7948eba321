"""APFL on the server: FedAvg's model, the settings of the target, and the loss of its own model."""

import handmade
import numpy as np
import pytest
from handmade import HandMade, initial, moves, reply_of, weights

from fda_flower.errors import ConfigError
from fda_flower.strategies import APFL, FedAvg, RunFolder

SOURCE = ("source", "a", moves([0.5, 0.0], domain="a", examples=30))


def target(anew=(1,), failing=()):
    """A target whose own model begins anew in some rounds, and that cannot train in others."""

    def answer(model, message):
        number = message.content["config"]["server-round"]
        if number in failing:
            raise OSError("off")
        metrics = {"alpha": number / 8, **({"fresh-start": 1} if number in anew else {})}
        return reply_of({"w": model["w"] + 1}, role="target", domain="t", **metrics)

    return ("target", "t", answer)


@pytest.fixture(autouse=True)
def replies_as_they_are(monkeypatch):
    """Nothing is added to the replies of these tests' clients."""
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)


def start(nodes, rounds=1, **options):
    strategy = APFL(**options)
    return strategy.start(HandMade(nodes).grid(), initial(), rounds), strategy


@pytest.mark.parametrize("mean", ["examples", "uniform"])
def test_the_model_is_fedavgs(mean):
    found, _ = start([SOURCE, target()], 3, weights=mean)
    plain = FedAvg(weights=mean).start(HandMade([SOURCE, target()]).grid(), initial(), 3)
    assert weights(found).tobytes() == weights(plain).tobytes()


def test_the_target_alone_is_told_how_to_mix():
    federation = HandMade([SOURCE, target(anew=())])
    APFL(mixing=0.75, mix="parameters", adaptive=True, alpha_decay=0.02).start(
        federation.grid(), initial(), 1
    )
    own = {"mixing": 0.75, "mix": "parameters", "adaptive": True, "alpha-decay": 0.02}
    assert dict(federation.configs) == {"a": {"server-round": 1}, "t": {"server-round": 1, **own}}


def test_the_record_has_the_weight():
    _, strategy = start([SOURCE, target()], 2)
    assert [record["target"]["alpha"] for record in strategy.history] == [0.125, 0.25]
    assert not any("fresh-start" in record["target"] for record in strategy.history)


def lost(strategy):
    """The rounds whose record says that the target has lost its model."""
    return [r["round"] for r in strategy.history if "fallback" in (r["target"] or {})]


@pytest.mark.parametrize(
    ("anew", "failing", "said"),
    [
        ((1,), (), []),
        ((1, 3), (), [3]),
        ((1, 2), (), [2]),
        ((2,), (1,), []),  # it had nothing to lose
        ((1, 4), (2, 3), [4]),
    ],
)
def test_a_target_that_has_lost_its_model_is_recorded(anew, failing, said):
    _, strategy = start([SOURCE, target(anew, failing)], 4)
    assert lost(strategy) == said
    if said:
        entry = strategy.history[said[0] - 1]["target"]
        assert entry["fallback"] == "it had no model of its own, and began from the global one"


def test_the_loss_is_recorded_of_a_held_round_too_and_after_a_resume(tmp_path):
    def fails_later(model, message):
        if message.content["config"]["server-round"] == 3:
            raise OSError("off")
        return SOURCE[2](model, message)

    nodes = [("source", "a", fails_later), target(anew=(1, 3))]
    start(nodes, 2, output=RunFolder(tmp_path))
    _, strategy = start(nodes, 4, output=RunFolder(tmp_path, resume=True))
    assert strategy.history[2]["held"] is not None
    assert lost(strategy) == [3]


def test_after_warm_up_rounds_it_has_nothing_to_lose():
    _, strategy = start([SOURCE, target(anew=(2,))], 3, warmup_rounds=1)
    assert lost(strategy) == []


def test_a_target_without_a_weight_is_dropped_with_the_remedy():
    _, strategy = start([SOURCE, ("target", "t", moves(1.0, "target", "t"))])
    (dropped,) = strategy.history[0]["dropped"]
    assert (
        "it has no 'alpha': APFL's target has to be served by fda_flower.clients.APFLTarget"
        in dropped["reason"]
    )


def test_the_target_trains_twice_as_many_epochs():
    assert APFL().training_epochs(10, 2, {"source": 3, "target": 2}, 50) == {"source": 36, "target": 40}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mixing": 1.5}, r"mixing is 1.5: it must be a number in \[0, 1\]"),
        ({"mixing": -0.5}, "mixing is -0.5"),
        ({"mixing": np.nan}, "mixing is nan"),
        ({"mix": "both"}, "mix is 'both': choose outputs or parameters"),
        ({"adaptive": True, "alpha_decay": -1.0}, "alpha_decay is -1.0: it must be"),
        ({"adaptive": True, "alpha_decay": np.inf}, "alpha_decay is inf"),
        ({"alpha_decay": 0.02}, "alpha_decay is 0.02, but the mixing weight is fixed: .*set adaptive=true"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        APFL(**options)
