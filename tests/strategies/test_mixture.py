"""Mixture on the server: Source Only, whose target is asked for a mixture when it is due."""

import json
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from handmade import HandMade, bits, failing, initial, moves, rounds_with, weights
from naming import names

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.errors import ConfigError
from fda_flower.records.record import COSTS, headline
from fda_flower.strategies import Mixture, RunFolder, SourceOnly
from fda_flower.wire.asked.mixture import EvaluateMixture, MixtureReport

SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]
METRICS = {"accuracy": 0.75, "loss": 0.5}
REPORT = MixtureReport(
    weights={"sources": 0.25, "tuned-30": 0.75, "no\nmember": 1.0},
    temperatures={"tuned-30": 1.5},
    held_out={"sources": 0.5, "tuned-30": 0.9},
    test={"sources": 0.25, "tuned-30": 0.7},
    left_out=("target", "no\nmember"),
    folds=(3, 2),
    alone=1,
)
never = Mock(side_effect=AssertionError("the target does not train"))


def start(rounds, metrics=METRICS, answer=REPORT, off=(), info=(), **options):
    """The result, the strategy and the federation of a run whose target replies with these numbers."""

    def silent(config):
        return "question" in config and config["question"].report == "none"

    def told(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate.mixture":
            asked = EvaluateMixture.read(message.content)
            for name in [name for name in reply.content if name.startswith("answer")]:
                del reply.content[name]
            reply.content.update((MixtureReport() if asked.report == "none" else answer).records())
        return reply

    def reported(domain, config):
        return {} if silent(config) else metrics

    # Each for a reason of its own: one that all share ends the run in its first round.
    sources = [
        (role, domain, failing(answer, *off, why=f"{domain} is off") if off else answer)
        for role, domain, answer in SOURCES
    ]
    federation = HandMade([*sources, ("target", "t", never)], info=info, metrics=reported, mods=[told])
    strategy = Mixture(**options)
    return strategy.start(federation.grid(), initial(), rounds), strategy, federation


def asked_in(federation):
    return [content["config"]["server-round"] for content in federation.evaluated]


def test_the_model_is_that_of_source_only():
    found, _, federation = start(3, source_mean="mean")
    plain = SourceOnly().start(federation.grid(), initial(), 3)
    assert bits(found.arrays) == bits(plain.arrays)
    uniform = start(3, source_weights="uniform", source_mean="mean")[0]
    np.testing.assert_allclose(weights(uniform), [1.75, 0.5])


@pytest.mark.parametrize(
    ("every", "rounds", "due", "evaluations"),
    [
        (0, 3, [3], [1]),
        (1, 3, [1, 2, 3], [1, 2, 3]),
        (2, 5, [2, 4, 5], [1, 2, 3]),
        (2, 4, [2, 4], [1, 2]),
        (9, 4, [4], [1]),
    ],
)
def test_the_target_is_asked_in_every_so_many_rounds_and_in_the_last(every, rounds, due, evaluations):
    result, strategy, federation = start(rounds, every=every)
    found = [asked_in(federation), rounds_with(strategy, "accuracy"), rounds_with(strategy, "mixture")]
    assert found == [due] * 3
    assert list(result.evaluate_metrics_clientapp) == due
    assert {domain for domain, _ in federation.configs} == {"a", "b"}
    costs = [record["mixture"]["cost"] for record in strategy.history if "mixture" in record]
    assert [cost["evaluations"] for cost in costs] == evaluations
    assert [cost["bytes"] for cost in costs] == [2 * n * initial().count_bytes() for n in evaluations]


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_message_has_both_models_and_the_plan(factor):
    result, _, federation = start(3, folds=3, epochs="2,5", views="full", learning_rate_factor=factor)
    (content,) = federation.evaluated
    config = content["config"]
    assert content["arrays"]["w"].numpy().tolist() == weights(result).tolist()
    asked = EvaluateMixture.read(content)
    assert asked.first["w"].tolist() == [1.0, 2.0]
    plan = MixturePlan(asked.folds, asked.epochs, asked.members, asked.views)
    assert plan == MixturePlan(3, (2, 5), views="full")
    assert (asked.first_round, asked.report, asked.student, config["server-round"]) == (1, "full", False, 3)
    assert config.get("rate-factor") == (None if factor == 1 else factor)


def test_after_warm_up_rounds_the_targets_own_model_begins_with_the_sources():
    _, strategy, federation = start(4, warmup_rounds=2, every=2)
    first, second, third = federation.evaluated
    # In the warm-up rounds the target evaluates the sources' model, as with every method.
    assert [set(content) for content in (first, second)] == [{"arrays", "config"}] * 2
    asked = EvaluateMixture.read(third)
    assert (third["config"]["server-round"], asked.first_round) == (4, 3)
    np.testing.assert_array_equal(asked.first["w"], second["arrays"]["w"].numpy())
    assert (rounds_with(strategy, "mixture"), rounds_with(strategy, "accuracy")) == ([4], [1, 2, 4])
    assert strategy.history[3]["mixture"]["cost"]["evaluations"] == 1


@pytest.mark.parametrize("held", [(1,), (2,), (3,), (1, 2), (1, 2, 3)])
def test_held_rounds_change_neither_when_it_is_asked_nor_the_first_model(held):
    result, strategy, federation = start(3, off=held, max_held_rounds=4)
    assert [record["held"] is not None for record in strategy.history] == [r in held for r in (1, 2, 3)]
    (content,) = federation.evaluated
    asked = EvaluateMixture.read(content)
    assert (asked.first["w"].tolist(), asked.first_round) == ([1.0, 2.0], 1)
    assert content["arrays"]["w"].numpy().tolist() == weights(result).tolist()


def test_only_how_often_it_evaluates_may_change_on_a_resume(tmp_path):
    start(2, output=RunFolder(tmp_path))
    for options in ({"folds": 2}, {"views": "full"}, {"report": "none"}, {"members": "target"}):
        with pytest.raises(ConfigError, check=names(str(tmp_path))):
            start(3, output=RunFolder(tmp_path, resume=True), **options)
    whole, _, asked_whole = start(4, every=3)
    resumed, strategy, federation = start(4, every=3, output=RunFolder(tmp_path, resume=True))
    assert bits(resumed.arrays) == bits(whole.arrays)
    assert asked_in(federation) == [3, 4]
    for content, expected in zip(federation.evaluated, asked_whole.evaluated, strict=True):
        assert EvaluateMixture.read(content).first["w"].tolist() == [1.0, 2.0]
        assert [dict(content[n]) for n in ("config", "question")] == [
            dict(expected[n]) for n in ("config", "question")
        ]
    assert rounds_with(strategy, "mixture") == [2, 3, 4]


def test_the_record_has_what_the_target_says_of_each_member():
    _, strategy, _ = start(2, members="sources,tuned,target")
    before, record = strategy.history
    assert (record["accuracy"], record["loss"], "metrics" in record) == (0.75, 0.5, False)
    assert json.loads(json.dumps(record["mixture"])) == record["mixture"]
    cost = record["mixture"].pop("cost")
    assert record["mixture"] == {
        "members": {
            "sources": {"weight": 0.25, "held-out": 0.5, "test": 0.25},
            "tuned-30": {"weight": 0.75, "temperature": 1.5, "held-out": 0.9, "test": 0.7},
            "target": {"left-out": 1},
        },
        "folds": [3, 2],
        "alone": 1,
    }
    assert cost["models"] == 16
    assert [headline(each) for each in (before, record)] == ["target not evaluated", "target accuracy 75.0%"]


def test_a_student_is_asked_for_and_said_with_its_teacher():
    _, strategy, federation = start(1, answer=replace(REPORT, teacher=0.8, taught=286), student=True)
    assert federation.evaluations[0]["question"].student
    record = strategy.history[-1]
    assert (record["mixture"]["teacher"], record["mixture"]["cost"]["models"]) == (0.8, 1)
    (line,) = strategy.conclusion(record)
    assert all(number in line for number in ("75.0%", "80.0%", "286"))
    (line,) = strategy.conclusion({"accuracy": 0.7, "mixture": {"teacher": 0.8, "taught": 0}})
    assert "70.0%" in line
    assert strategy.conclusion({"accuracy": 0.7, "mixture": {"members": {}}}) == []
    (line,) = strategy.conclusion({"r2": 0.5, "mixture": {"teacher": 0.625, "taught": 9}})
    assert "0.62" in line


@pytest.mark.parametrize(
    ("metrics", "said"), [(METRICS, ("+30", "80", "50")), ({"r2": 0.5}, ("+0.300 of R²", "0.800", "0.500"))]
)
def test_a_run_ends_with_what_the_sources_bring(metrics, said):
    answer = replace(REPORT, held_out_mixture=0.8, held_out_target=0.5)
    _, strategy, _ = start(1, metrics, answer)
    (line,) = strategy.conclusion(strategy.history[-1])
    assert [number in line for number in said] == [True] * 3
    assert strategy.conclusion({**metrics, "mixture": {"held-out": 0.8}}) == [], "the target alone is unknown"


def test_a_projects_own_metrics_stay_apart():
    (record,) = start(1, {**METRICS, "weight.patients": 70.5, "teacher": 0.5})[1].history
    assert record["metrics"] == {"weight.patients": 70.5, "teacher": 0.5}
    assert "teacher" not in record["mixture"]


def test_with_no_report_the_target_says_nothing_and_the_record_says_no_more():
    result, strategy, federation = start(3, report="none", warmup_rounds=1)
    assert asked_in(federation) == [3]
    assert federation.evaluations[0]["question"].report == "none"
    *before, last = strategy.history
    assert last["mixture"] == {"members": {}, "folds": [], "cost": last["mixture"]["cost"]}
    assert not {"accuracy", "loss", "metrics"} & {*last, *(name for record in before for name in record)}
    assert dict(result.evaluate_metrics_clientapp[3]) == {"num-examples": 4}
    assert headline(last) == "target accuracy unknown"


def test_an_evaluation_that_fails_is_recorded_and_the_run_goes_on():
    _, strategy, _ = start(2, {**METRICS, "accuracy": float("nan")}, every=1)
    assert all("'accuracy' is nan" in record["evaluation-failed"] for record in strategy.history)
    assert rounds_with(strategy, "mixture") == []


@pytest.mark.parametrize(
    ("every", "says", "epochs"), [(3, "evaluates 2 times", 256), (0, "evaluates once", 136)]
)
def test_what_the_mixture_costs_is_said_at_the_start(monkeypatch, every, says, epochs):
    said = []
    monkeypatch.setattr(COSTS, "info", lambda text, *values: said.append(text % values))
    start(4, every=every)
    assert all(each in said[0] for each in ("16 models", says, f"trains {epochs} epochs"))


@pytest.mark.parametrize(
    ("told", "thing", "value"),
    [({"examples": 7}, "target-samples", 7), ({"examples": 20, "groups": 7}, "groups", 7)],
)
def test_a_target_with_too_few_labels_or_groups_is_refused_before_anything_is_trained(told, thing, value):
    federation = HandMade([*SOURCES, ("target", "t", never)], info={"t": told})
    with pytest.raises(ConfigError, check=names(thing, value)):
        Mixture().start(federation.grid(), initial(), 1)
    assert federation.configs == []
    start(1, info={"t": told}, folds=3)


def test_without_a_report_there_is_no_average():
    with pytest.raises(ConfigError, match="tail:2", check=names("report", "none")):
        Mixture(report="none", average="tail:2")


def test_epochs_and_members_may_be_text_or_lists():
    one = Mixture(epochs="1, 5", members="sources, tuned")
    assert one.settings() == Mixture(epochs=[1, 5], members=["sources", "tuned"]).settings()
    assert one.settings() != Mixture().settings()


def test_the_member_head_needs_a_network_with_a_head():
    assert Mixture(members="sources,head").needs == ("head",)
    assert Mixture().needs == ()
