"""KD3A on the server: two phases in a round, bodies averaged, heads kept, weights smoothed."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, bits, reply_of

from fda_flower.strategies import KD3A
from fda_flower.wire.asked.kd3a import Distil, Distilled

pytestmark = pytest.mark.usefixtures("bare_replies")
STEPS = {"a": 1.0, "b": 3.0, "t": -2.0}
"""By how much a client moves body and head; running statistics are set to its square."""


def initial():
    model = {
        "body.w": np.array([1.0, 2.0], np.float32),
        "body.running_var": np.array([1.0], np.float32),
        "body.num_batches_tracked": np.array(5),
        "head.w": np.array([0.0], np.float32),
    }
    return ArrayRecord({name: Array(array) for name, array in model.items()})


class Site:
    """Replies as a test says, and keeps what it is sent."""

    def __init__(self, domain, share=0.6, contributions=(1.0, 3.0), missing=(), head=("head.w",)):
        self.domain, self.share, self.contributions, self.missing = domain, share, contributions, missing
        self.head = head
        self.received: list = []
        self.teachers: list = []
        self.questions: list = []

    def __call__(self, model, message):
        config = dict(message.content["config"])
        self.received.append({name: array.tolist() for name, array in model.items()})
        if config["server-round"] in self.missing:
            raise OSError("off")
        step = STEPS[self.domain]
        moved = {
            "body.w": model["body.w"] + np.float32(step),
            "body.running_var": np.array([step**2], np.float32),
            "body.num_batches_tracked": model["body.num_batches_tracked"] + 1 + (self.domain == "t"),
            "head.w": model["head.w"] + np.float32(10 * step),
        }
        role = "target" if self.domain == "t" else "source"
        content = reply_of(moved, role=role, domain=self.domain)
        if role == "target":
            question = Distil.read(message.content)
            self.questions.append(question)
            self.teachers.append(
                {d: {n: a.tolist() for n, a in model.items()} for d, model in question.models.items()}
            )
            told = dict(zip("ab", self.contributions, strict=True))
            contribution = {domain: told[domain] for domain in question.models}
            answer = Distilled(mask_share=self.share, contribution=contribution, head=self.head)
            content.update(answer.records())
        return content


def sites(**changes):
    return {domain: Site(domain, **changes.get(domain, {})) for domain in "abt"}


def start(found, rounds=1, order="abt", **options):
    nodes = [("target" if name == "t" else "source", name, found[name]) for name in order]
    strategy = KD3A(**options)
    app = HandMade(nodes)
    result = strategy.start(app.grid(), initial(), rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}, strategy


def test_one_round_by_hand():
    found = sites()
    model, strategy = start(found)
    # ρ = 0.6/3, and 0.8 divided as 1 to 3
    weights = {"t": 0.2, "a": 0.2, "b": 0.6}
    moved = sum(weight * STEPS[domain] for domain, weight in weights.items())
    np.testing.assert_allclose(model["body.w"], [1 + moved, 2 + moved], rtol=1e-6)
    variance = sum(weight * STEPS[domain] ** 2 for domain, weight in weights.items())
    np.testing.assert_allclose(model["body.running_var"], [variance], rtol=1e-6)
    assert model["head.w"].tolist() == [-20]
    assert model["body.num_batches_tracked"] == 7, "integer buffers are the target's"
    state = strategy.state_dict()
    assert state.keys() == {"head/a", "head/b", "weights"}
    assert (state["head/a"], state["head/b"]) == ({"head.w": [10]}, {"head.w": [30]})
    assert {name: float(array) for name, array in state["weights"].items()} == pytest.approx(weights)
    (record,) = strategy.history
    target, sources = record["target"], record["sources"].values()
    assert (target["mask-share"], target["weight"]) == (0.6, pytest.approx(0.2))
    assert not any(name.startswith("contribution") for name in target)
    assert [entry["contribution"] for entry in sources] == [1, 3]
    assert [entry["weight"] for entry in sources] == pytest.approx([0.2, 0.6])
    assert found["t"].received == [{name: array.numpy().tolist() for name, array in initial().items()}]
    (teachers,) = found["t"].teachers
    body = {"body.w": [4, 5], "body.running_var": [9], "body.num_batches_tracked": 6}
    assert teachers["b"] == {**body, "head.w": [30]}


def test_each_source_goes_on_with_its_own_head_and_the_common_body():
    found = sites()
    model, _ = start(found, rounds=2)
    for domain, head in (("a", 10), ("b", 30), ("t", -20)):
        assert found[domain].received[1]["head.w"] == [head]
        assert found[domain].received[1]["body.w"] == found["t"].received[1]["body.w"]
    assert found["t"].teachers[1]["a"]["head.w"] == [20]
    assert model["head.w"].tolist() == [-40]


def test_the_weights_are_smoothed_from_the_second_round_on():
    class Later(Site):
        def __call__(self, model, message):
            if message.content["config"]["server-round"] == 2:
                self.contributions = (1.0, 0.0)
            return super().__call__(model, message)

    _, strategy = start({**sites(), "t": Later("t")}, rounds=2, momentum=0.75)
    entries = strategy.history[1]["sources"]
    assert [entries[d]["weight"] for d in "ab"] == pytest.approx([0.15 + 0.2, 0.45])
    assert strategy.history[1]["target"]["weight"] == pytest.approx(0.2)


def test_a_source_without_a_reply_neither_votes_nor_is_averaged():
    found = sites(b={"missing": (2,)})
    _, strategy = start(found, rounds=3)
    assert list(found["t"].teachers[1]) == ["a"]
    second, third = strategy.history[1:]
    assert [d["domain"] for d in second["dropped"]] == ["b"]
    # before: t 0.2, a 0.2 of 0.4; the round's: ρ = 0.6/2 and 0.7
    assert second["target"]["weight"] == pytest.approx(0.9 * 0.5 + 0.1 * 0.3)
    assert second["target"]["weight"] + second["sources"]["a"]["weight"] == pytest.approx(1)
    assert found["b"].received[2]["head.w"] == [30], "its head waits for it"
    assert third["sources"]["b"]["weight"] == pytest.approx(0.9 * 0.6 + 0.1 * 0.6)


def test_a_target_that_fails_holds_the_round_and_all_that_is_kept():
    found = sites(t={"missing": (2,)})
    model, strategy = start(found, rounds=2)
    alone, before = start(sites(), rounds=1)
    assert strategy.history[1]["held"] == "no usable reply of the target"
    assert bits(model) == bits(alone)
    assert {n: bits(s) for n, s in strategy.state_dict().items()} == {
        n: bits(s) for n, s in before.state_dict().items()
    }


@pytest.mark.parametrize(
    ("rounds", "options", "gates", "mixup", "teacher"),
    [
        (6, {"warmup_rounds": 2}, [0.5, 0.6, 0.7, 0.8], True, "batch"),
        (4, {"gate_rounds": 2, "mixup": False, "teacher_bn": "eval"}, [0.5, 0.7, 0.9, 0.9], False, "eval"),
    ],
)
def test_what_the_target_is_told_round_by_round(rounds, options, gates, mixup, teacher):
    found = sites()
    start(found, rounds=rounds, gate_start=0.5, gate_end=0.9, **options)
    questions = found["t"].questions
    assert [question.gate for question in questions] == pytest.approx(gates)
    assert {(question.mixup, question.teacher_bn) for question in questions} == {(mixup, teacher)}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"share": 1.5}, "mask_share"),
        ({"share": -0.1}, "mask_share"),
        ({"share": float("nan")}, "mask_share"),
        ({"contributions": (1.0, -1.0)}, "contribution of 'b'"),
        ({"head": ("fc.w",)}, "'fc.w' is in its head"),
    ],
)
def test_an_answer_that_cannot_be_holds_the_round(change, field):
    _, strategy = start(sites(t=change))
    reasons = [strategy.history[0]["held"], *(drop["reason"] for drop in strategy.history[0]["dropped"])]
    assert field in reasons[-1]
    assert strategy.state_dict() == {}


def test_a_source_that_is_clipped_votes_with_the_clipped_model():
    found = sites()
    start(found, max_update_norm=2.0)
    (teachers,) = found["t"].teachers
    before, after = found["b"].received[0], teachers["b"]
    moved = [y - x for name in ("body.w", "head.w") for x, y in zip(before[name], after[name], strict=True)]
    assert np.linalg.norm(moved) == pytest.approx(2)


def test_all_heads_begin_with_that_of_the_warm_up():
    found = sites()
    start(found, rounds=3, warmup_rounds=1)
    assert found["a"].received[1] == found["b"].received[1] == found["t"].received[0]
    assert found["a"].received[1]["head.w"] == [20], "the mean of 10 and 30"
