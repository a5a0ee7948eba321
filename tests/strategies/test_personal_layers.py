"""FedPer, FedRep and FedBN on the server: what clients are told, the records, and FedRep's last round."""

import pytest
from handmade import HandMade, failing, initial, moves

from fda_flower.strategies import FedBN, FedPer, FedRep, RunFolder
from fda_flower.wire.asked.personal_layers import PartKept

pytestmark = pytest.mark.usefixtures("bare_replies")
EACH = pytest.mark.parametrize("kind", [FedPer, FedRep, FedBN])


def keeps(role="source", domain="a", lost=(), off=(), older=None):
    """A client that tells the round of its part: the one before, but 0 in the rounds of `lost`."""

    def answer(model, message):
        round = message.content["config"]["server-round"]
        told = (0 if round in lost else round - 1) if older is None else older
        content = moves(0.5, role, domain)(model, message)
        if message.metadata.message_type != "train":
            content.update(PartKept(began_in=told).records())
        return content

    return (role, domain, failing(answer, *off) if off else answer)


TARGET = keeps("target", "t")


def figures(domain, settings):
    asked = "question" in settings and settings["question"].final_head_epochs
    return {"accuracy": 0.625, "loss": 0.75} if asked else {"accuracy": 0.5, "loss": 1.0}


def start(kind, nodes=(), rounds=1, **options):
    federation, strategy = HandMade(nodes or [keeps(), TARGET], metrics=figures), kind(**options)
    return strategy.start(federation.grid(), initial(), rounds), strategy, federation


def evaluated(federation):
    return [settings["question"] for settings in federation.evaluations]


@EACH
def test_the_averaged_model_is_evaluated_with_the_targets_part_too(kind):
    _, strategy, federation = start(kind, rounds=2, average="tail:2")
    assert {question.part for question in evaluated(federation)} == {kind.part}
    assert strategy.history[1]["accuracy-average"] == 0.5


@EACH
def test_a_client_that_lost_its_part_is_recorded_but_not_one_in_its_first_round(kind):
    nodes = [keeps(off=(1,), lost=(2,)), keeps(domain="b", lost=(1, 3)), keeps("target", "t", lost=(1, 4))]
    _, strategy, _ = start(kind, nodes, 5)
    found = [
        (record["round"], entry["domain"])
        for record in strategy.history
        for entry in [record["target"], *record["sources"].values()]
        if "fallback" in entry
    ]
    assert found == [(3, "b"), (4, "t")]
    assert "the server's part" in strategy.history[3]["target"]["fallback"]
    assert [record["target"]["local-part"] for record in strategy.history] == [0, 1, 2, 0, 4]


@EACH
def test_an_older_part_is_recorded_with_its_round_and_one_lost_before_a_resume_too(kind, tmp_path):
    _, strategy, _ = start(kind, [keeps(), keeps("target", "t", older=1)], 3)
    assert "fallback" not in strategy.history[1]["target"]
    assert "its part of round 1" in strategy.history[2]["target"]["fallback"]
    nodes = [keeps(lost=(3,)), TARGET]
    start(kind, nodes, 2, output=RunFolder(tmp_path))
    _, strategy, _ = start(kind, nodes, 4, output=RunFolder(tmp_path, resume=True))
    told = ["fallback" in record["sources"]["a"] for record in strategy.history]
    assert told == [False, False, True, False]
    _, strategy, _ = start(kind, [keeps(lost=(2,)), TARGET], 2, warmup_rounds=1)
    assert "fallback" not in strategy.history[1]["sources"]["a"]


@pytest.mark.parametrize(("factor", "epochs"), [(1.0, 10), (0.25, 10), (1.0, 0)])
def test_fedreps_last_round_has_the_final_head_beside_the_headline(factor, epochs):
    options = {"learning_rate_factor": factor, "final_head_epochs": epochs}
    _, strategy, federation = start(FedRep, rounds=3, **options)
    asked = [question.final_head_epochs for question in evaluated(federation)]
    assert asked == [0, 0, 0, *([epochs] if epochs else [])]
    assert federation.evaluated[-1]["config"].get("rate-factor") == (
        factor if epochs and factor != 1 else None
    )
    *others, last = strategy.history
    final = [last.get(name) for name in ("accuracy", "accuracy-final-head", "loss-final-head")]
    assert final == ([0.5, 0.625, 0.75] if epochs else [0.5, None, None])
    assert not any("accuracy-final-head" in record for record in others)
    assert "metrics" not in last
    assert strategy.ends_with_an_evaluation == (epochs > 0)
