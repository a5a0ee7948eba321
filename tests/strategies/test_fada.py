"""FADA on the server: two phases in a round, weights by gains, and identifiers that it keeps."""

import numpy as np
import pytest
from handmade import HandMade, bits, initial, moves, weights
from naming import names

from fda_flower.aggregation import identifier_form
from fda_flower.errors import ConfigError
from fda_flower.strategies import FADA
from fda_flower.wire.asked.fada import VECTORS, Align, Aligned, Disentangle, Disentangled

pytestmark = pytest.mark.usefixtures("bare_replies")
GAINS = {"a": 0.2, "b": 0.0, "c": -0.1}


def source(domain, shape=(4, 3), fresh=False):
    """A source that moves the model by 1, and has features of a shape."""

    def answer(model, message):
        content = moves(1.0, domain=domain)(model, message)
        features = {VECTORS: np.full(shape, ord(domain), np.float32)}
        content.update(Disentangled(features=features, fresh_start=fresh).records())
        return content

    return answer


def target(seen, gains=GAINS, width=3, fail_in=0):
    """A target that moves the model by -2, sets identifiers to the round, and keeps the questions."""

    def answer(model, message):
        number = message.content["config"]["server-round"]
        if number == fail_in:
            raise OSError("off")
        question = Align.read(message.content)
        seen.append(question)
        content = moves(-2.0, "target", "t")(model, message)
        form = {name: array + np.float32(number) for name, array in identifier_form(width).items()}
        known = {domain: gain for domain, gain in gains.items() if domain in question.models}
        identifiers = dict.fromkeys(known, form)
        content.update(Aligned(dispersion=0.5, gain=known, identifiers=identifiers).records())
        return content

    return answer


def start(rounds=1, seen=None, options=(), of_target=(), **sources):
    seen = [] if seen is None else seen
    own = {domain: source(domain) for domain in "abc"} | sources
    nodes = [("source", domain, answer) for domain, answer in own.items()]
    hand = HandMade([*nodes, ("target", "t", target(seen, **dict(of_target)))])
    strategy = FADA(**dict(options))
    return strategy.start(hand.grid(), initial(), rounds), strategy, hand


def test_a_round_by_hand():
    seen: list[Align] = []
    result, strategy, _ = start(seen=seen)
    (question,) = seen
    assert {name: model["w"].tolist() for name, model in question.models.items()} == {
        domain: [2.0, 3.0] for domain in "abc"
    }
    assert {name: array[VECTORS][0, 0] for name, array in question.features.items()} == {
        domain: ord(domain) for domain in "abc"
    }
    assert question.identifiers == {}
    assert weights(result).tolist() == [-1.0, 0.0], "the target's model"
    (record,) = strategy.history
    assert {d: entry["gain"] for d, entry in record["sources"].items()} == GAINS
    shares = [record["sources"][domain]["weight"] for domain in "abc"]
    np.testing.assert_allclose(shares, [0.3907, 0.3199, 0.2894], atol=5e-5)
    assert record["target"]["dispersion"] == 0.5


def test_identifiers_of_the_round_before_go_to_the_target_and_to_their_source():
    seen: list[Align] = []
    options = {"adversarial": 0.5, "adversarial_sources": 4, "mutual_information": 2}
    options |= {"reconstruction": 3, "vectors": 9}
    _, strategy, hand = start(3, seen, options, of_target={"fail_in": 2})
    assert "no usable reply of the target" in strategy.history[1]["held"]
    first, last = seen
    assert (first.adversarial, first.vectors) == (0.5, 9)
    expected = bits({name: array + np.float32(1) for name, array in identifier_form(3).items()})
    assert {name: bits(layers) for name, layers in last.identifiers.items()} == dict.fromkeys("abc", expected)
    questions: list[Disentangle] = hand.told("question", "a")
    assert [each.identifier is None for each in questions] == [True, False, False]
    assert bits(questions[2].identifier) == expected
    losses = {(each.adversarial, each.mutual_information, each.reconstruction) for each in questions}
    assert (losses, questions[0].vectors) == ({(4, 2, 3)}, 9)
    assert {name: float(layers["2.bias"][0]) for name, layers in strategy.state_dict().items()} == {
        f"identifier/{domain}": 3.0 for domain in "abc"
    }


@pytest.mark.parametrize(
    ("shape", "says"),
    [((4, 2), "[4, 2]"), ((10, 3), "[10, 3]"), ((0, 3), "no float32 array"), ((3,), "no float32 array")],
)
def test_a_source_with_features_of_another_form_is_left_out(shape, says):
    seen: list[Align] = []
    result, strategy, _ = start(seen=seen, options={"vectors": 9}, b=source("b", shape))
    assert list(seen[0].models) == ["a", "c"]
    (dropped,) = strategy.history[0]["dropped"]
    assert (dropped["domain"], says in dropped["reason"]) == ("b", True)
    assert (list(strategy.history[0]["sources"]), weights(result).tolist()) == (["a", "c"], [-1.0, 0.0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gains": {"a": 1.0, "b": 1.0}}, "gains of a, b"),
        ({"width": 4}, "identifier of 'a'"),
        ({"gains": {**GAINS, "a": np.nan}}, "gain of 'a'"),
    ],
)
def test_an_answer_of_the_target_that_cannot_be_holds_the_round(change, says):
    _, strategy, _ = start(of_target=change)
    reasons = [strategy.history[0]["held"], *(drop["reason"] for drop in strategy.history[0]["dropped"])]
    assert says in reasons[-1]
    assert strategy.state_dict() == {}


def test_a_source_that_has_lost_its_disentangler_is_named():
    _, strategy, _ = start(2, b=source("b", fresh=True))
    first, second = ({d: e.get("fallback") for d, e in r["sources"].items()} for r in strategy.history)
    assert set(first.values()) == {None}
    assert [domain for domain, reason in second.items() if reason] == ["b"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("adversarial", 1.5),
        *((name, -1) for name in ("adversarial_sources", "mutual_information", "reconstruction", "vectors")),
    ],
)
def test_options_have_bounds(option, value):
    with pytest.raises(ConfigError, check=names(option, value)):
        FADA(**{option: value})
