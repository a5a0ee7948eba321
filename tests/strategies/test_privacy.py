"""What sites tell of their privacy, and when a spent budget ends a run."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import FedAvg
from fda_flower.wire.protocol import BUDGET_CODE

NODES = [
    ("target", "t", moves(0.1, "target", "t")),
    ("source", "a", moves(0.1, domain="a")),
    ("source", "b", moves(0.1, domain="b")),
]
BUDGET = "the privacy budget is spent"
WORDS = f"the site 'a' sends nothing: {BUDGET}"


def refusing(code, domains):
    """The nodes, some of which refuse to train by an error reply."""
    made = HandMade(NODES)

    def app(message, context):
        domain = NODES[context.node_config["partition-id"]][1]
        if message.metadata.message_type == "train" and domain in domains:
            return Message(Error(code, WORDS), reply_to=message)
        return made.app(message, context)

    class Refusing(ClientApp):
        __call__ = staticmethod(app)

    return LocalGrid(Refusing(), len(NODES))


@pytest.mark.parametrize("code", [0, 2, BUDGET_CODE], ids=["words", "error", "budget"])
def test_a_source_cannot_end_a_run_whatever_it_says_of_its_budget(code):
    strategy = FedAvg()
    strategy.start(refusing(code, "a"), initial(), 2)
    for record in strategy.history:
        (dropped,) = record["dropped"]
        assert (dropped["domain"], BUDGET in dropped["reason"]) == ("a", True)
        assert record["held"] is None


@pytest.mark.parametrize("domains", ["t", "ab", "abt"])
def test_a_run_ends_at_once_where_the_target_or_all_sources_have_spent_their_budget(domains):
    strategy = FedAvg(max_held_rounds=9)
    with pytest.raises(RunError, match=rf"round 1 .*'{domains[0]}'.*{BUDGET}.*max-epsilon"):
        strategy.start(refusing(BUDGET_CODE, domains), initial(), 2)


def test_the_words_alone_end_no_run():
    strategy = FedAvg(max_held_rounds=2)
    with pytest.raises(RunError, match="2 rounds in a row"):
        strategy.start(refusing(2, "ab"), initial(), 3)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-5.0, 1e-5), (1.0, 1e308), (np.inf, 1e-5), (np.nan, 0.1), (1.0, -1.0), (1, 0.1)]
)
def test_an_impossible_epsilon_is_not_recorded(epsilon, delta):
    assert "privacy" not in record_of(epsilon, delta)


def test_what_is_not_covered_is_shown_in_one_line_and_not_endlessly():
    told = record_of(1.0, 1e-5, uncovered=["x\ny", *(f"metric-{i}" for i in range(1000))])["privacy"]["a"]
    assert (told["epsilon"], told["delta"]) == (1.0, 1e-5)
    assert len(told["uncovered"]) == 100
    assert r"x\ny" in told["uncovered"]


def record_of(epsilon, delta, **more):
    """The record of a round in which a source tells of its privacy."""

    def tells(model, message):
        content = moves(0.1, domain="a")(model, message)
        content["info"] = ConfigRecord({"role": "source", "epsilon": epsilon, "delta": delta, **more})
        return content

    strategy = FedAvg()
    strategy.start(HandMade([NODES[0], ("source", "a", tells), NODES[2]]).grid(), initial(), 1)
    return strategy.history[0]
