"""Mixture on the server: Source Only, whose target is asked for a mixture when it is due."""

import json
import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from handmade import HandMade, initial, moves, weights

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.errors import ConfigError
from fda_flower.records.record import COSTS, headline
from fda_flower.strategies import Mixture, RunFolder, SourceOnly

SOURCES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("source", "b", moves([0.0, -1.0], domain="b", examples=10)),
]
METRICS = {
    **{"accuracy": 0.75, "loss": 0.5, "alone": 1, "fold.1": 3, "fold.2": 2},
    **{"weight.sources": 0.25, "weight.tuned-30": 0.75, "temperature.tuned-30": 1.5},
    **{"held-out.sources": 0.5, "test.sources": 0.25, "held-out.tuned-30": 0.9, "test.tuned-30": 0.7},
    "left-out.target": 1,
}


def never(model, message):
    raise AssertionError("the target does not train")


class Federation(HandMade):
    """Sources that move the model; a target that keeps the evaluate messages, and replies with metrics."""

    def __init__(self, metrics=METRICS, sources=SOURCES, info=(), privacy=()):
        self.asked: list[RecordDict] = []

        def evaluates(message, context, call_next):
            if message.metadata.message_type != "evaluate":
                return call_next(message, context)
            self.asked.append(message.content)
            reply = {} if message.content["config"].get("report") == "none" else metrics
            content = RecordDict({"metrics": MetricRecord({**reply, "num-examples": 4})})
            content["info"] = ConfigRecord(dict(privacy))
            return Message(content, reply_to=message)

        nodes = [*sources, ("target", "t", never)]
        super().__init__(nodes, info=info, mods=[evaluates])

    @property
    def rounds(self):
        return [content["config"]["server-round"] for content in self.asked]


def start(rounds, federation=None, strategy=None, **options):
    federation = Federation() if federation is None else federation
    strategy = Mixture(**options) if strategy is None else strategy
    return strategy.start(federation.grid(), initial(), rounds), strategy, federation


def test_the_model_is_that_of_source_only():
    found, _, _ = start(3, source_mean="mean")
    plain = SourceOnly().start(Federation().grid(), initial(), 3)
    assert weights(found).tobytes() == weights(plain).tobytes()
    uniform = start(3, source_weights="uniform", source_mean="mean")[0]
    np.testing.assert_allclose(weights(uniform), [1.75, 0.5])


@pytest.mark.parametrize(
    ("every", "rounds", "due"),
    [(0, 3, [3]), (1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (2, 4, [2, 4]), (9, 4, [4])],
)
def test_the_target_is_asked_in_every_so_many_rounds_and_in_the_last(every, rounds, due):
    result, strategy, federation = start(rounds, every=every)
    assert federation.rounds == due
    assert [r["round"] for r in strategy.history if "accuracy" in r] == due
    assert [r["round"] for r in strategy.history if "mixture" in r] == due
    assert list(result.evaluate_metrics_clientapp) == due
    assert {domain for domain, _ in federation.configs} == {"a", "b"}


def test_the_message_has_both_models_and_the_plan():
    result, _, federation = start(3, folds=3, epochs="2,5", views="full")
    (content,) = federation.asked
    config = content["config"]
    assert content["arrays"]["w"].numpy().tolist() == weights(result).tolist()
    assert content["first"]["w"].numpy().tolist() == [1.0, 2.0]
    assert MixturePlan.from_text(config["mixture"]) == MixturePlan(3, (2, 5), views="full")
    assert (config["first-round"], config["report"], config["server-round"]) == (1, "full", 3)
    assert set(content) == {"arrays", "config", "first"}
    assert "rate-factor" not in config


def test_after_warm_up_rounds_the_targets_own_model_begins_with_the_sources():
    _, strategy, federation = start(4, warmup_rounds=2, every=2)
    first, second, third = federation.asked
    # In the warm-up rounds the target evaluates the sources' model, as with every method.
    assert [set(content) for content in (first, second)] == [{"arrays", "config"}] * 2
    assert third["config"]["server-round"] == 4
    assert third["config"]["first-round"] == 3
    np.testing.assert_array_equal(third["first"]["w"].numpy(), second["arrays"]["w"].numpy())
    assert ["mixture" in record for record in strategy.history] == [False, False, False, True]
    assert ["accuracy" in record for record in strategy.history] == [True, True, False, True]
    assert strategy.history[3]["mixture"]["cost"]["evaluations"] == 1


def test_the_factor_of_the_learning_rate_reaches_the_mixture():
    _, _, federation = start(2, learning_rate_factor=0.5)
    assert federation.asked[0]["config"]["rate-factor"] == 0.5


def failing_in(*rounds):
    """Sources that cannot train in these rounds."""

    def answer_of(answer):
        def answer_or_fail(model, message):
            if message.content["config"]["server-round"] in rounds:
                raise OSError("off")
            return answer(model, message)

        return answer_or_fail

    return [(role, domain, answer_of(answer)) for role, domain, answer in SOURCES]


@pytest.mark.parametrize("held", [(1,), (2,), (3,), (1, 2), (1, 2, 3)])
def test_held_rounds_change_neither_when_it_is_asked_nor_the_first_model(held):
    federation = Federation(sources=failing_in(*held))
    result, strategy, _ = start(3, federation, max_held_rounds=4)
    assert [record["held"] is not None for record in strategy.history] == [r in held for r in (1, 2, 3)]
    (content,) = federation.asked
    assert content["first"]["w"].numpy().tolist() == [1.0, 2.0]
    assert content["config"]["first-round"] == 1
    assert content["arrays"]["w"].numpy().tolist() == weights(result).tolist()


def test_the_first_model_is_in_the_checkpoint_and_a_resumed_run_sends_it(tmp_path):
    start(2, output=RunFolder(tmp_path))
    assert RunFolder(tmp_path).load_checkpoint().state["first"]["w"].tolist() == [1.0, 2.0]
    whole, _, asked_whole = start(4, every=3)
    resumed, strategy, federation = start(4, every=3, output=RunFolder(tmp_path, resume=True))
    assert weights(resumed).tobytes() == weights(whole).tobytes()
    assert federation.rounds == [3, 4]
    for content, expected in zip(federation.asked, asked_whole.asked, strict=True):
        assert content["first"]["w"].numpy().tolist() == [1.0, 2.0]
        assert dict(content["config"]) == dict(expected["config"])
    assert [record["round"] for record in strategy.history if "mixture" in record] == [2, 3, 4]


def test_only_how_often_it_evaluates_may_change_on_a_resume(tmp_path):
    start(1, output=RunFolder(tmp_path), every=1)
    for options in ({"folds": 2}, {"views": "full"}, {"report": "none"}, {"members": "target"}):
        with pytest.raises(ConfigError, match="of another run"):
            start(2, output=RunFolder(tmp_path, resume=True), **options)
    start(2, output=RunFolder(tmp_path, resume=True), every=2)


@pytest.mark.parametrize("names", [("members", "weight.a"), ("folds", "fold.0")])
def test_a_target_cannot_end_the_run_by_the_names_of_its_metrics(names):
    metrics = {"accuracy": 0.75, **dict.fromkeys(names, 1.0)}
    _, strategy, _ = start(1, Federation(metrics))
    mixture = strategy.history[0]["mixture"]
    assert isinstance(mixture["members"], dict)
    assert isinstance(mixture["folds"], list)


def test_the_record_has_what_the_target_says_of_each_member():
    _, strategy, _ = start(1, members="sources,tuned,target")
    (record,) = strategy.history
    assert (record["accuracy"], record["loss"]) == (0.75, 0.5)
    assert "metrics" not in record
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
    assert json.loads(json.dumps(record["mixture"])) == record["mixture"]


@pytest.mark.parametrize(("every", "evaluations"), [(0, [1]), (1, [1, 2, 3, 4, 5]), (2, [1, 2, 3]), (5, [1])])
def test_the_cost_counts_the_evaluations_so_far_and_both_models_of_each(every, evaluations):
    _, strategy, _ = start(5, every=every)
    costs = [record["mixture"]["cost"] for record in strategy.history if "mixture" in record]
    bytes_of_a_model = initial().count_bytes()
    assert [cost["evaluations"] for cost in costs] == evaluations
    assert [cost["bytes"] for cost in costs] == [2 * n * bytes_of_a_model for n in evaluations]


def test_the_epochs_of_a_run_are_those_of_the_own_model_and_of_each_evaluation():
    epochs = Mixture(every=4).training_epochs(10, 2, {"source": 3, "target": 2}, labels=50)
    assert epochs == {"source": 3 * 12, "target": 4 * (10 * 2 + 3 * 30)}


def test_with_no_report_the_target_says_nothing_and_the_record_says_no_more():
    result, strategy, federation = start(3, report="none", warmup_rounds=1)
    assert federation.rounds == [3]
    assert federation.asked[0]["config"]["report"] == "none"
    first, second, third = strategy.history
    assert third["mixture"] == {"members": {}, "folds": [], "cost": third["mixture"]["cost"]}
    assert not {"accuracy", "loss", "metrics"} & {*first, *second, *third}
    assert dict(result.evaluate_metrics_clientapp[3]) == {"num-examples": 4}
    assert headline(third) == "target accuracy unknown"


def test_a_round_without_an_evaluation_says_so():
    _, strategy, _ = start(2)
    assert headline(strategy.history[0]) == "target not evaluated"
    assert headline(strategy.history[1]) == "target accuracy 75.0%"


def test_an_evaluation_that_fails_is_recorded_and_the_run_goes_on():
    federation = Federation(metrics={**METRICS, "loss": float("nan")})
    _, strategy, _ = start(2, federation, every=1)
    assert all("'loss' is nan" in record["evaluation-failed"] for record in strategy.history)
    assert not any("mixture" in record for record in strategy.history)


def test_a_reply_without_weights_is_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        start(1)
        assert "MixtureTarget" not in caplog.text
        start(1, Federation(metrics={"accuracy": 0.5}), report="none")
        assert "MixtureTarget" not in caplog.text
        start(2, Federation(metrics={"accuracy": 0.5}))
    assert "Round 2: the target reports no weights" in caplog.text


def test_a_site_that_keeps_its_weights_for_privacy_is_not_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    privacy = {"epsilon": 0.0, "delta": 1e-5}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        _, strategy, _ = start(1, Federation(metrics={"accuracy": 0.5}, privacy=privacy))
    assert "MixtureTarget" not in caplog.text
    assert strategy.history[0]["privacy"]["t"]["epsilon"] == 0.0


@pytest.mark.parametrize(
    ("every", "says"), [(3, "evaluates 2 times"), (0, "evaluates once")], ids=["now and then", "at the end"]
)
def test_what_the_mixture_costs_is_said_at_the_start(monkeypatch, every, says):
    said = []
    monkeypatch.setattr(COSTS, "info", lambda text, *values: said.append(text % values))
    start(4, every=every)
    assert said[0].startswith("Mixture predicts with 16 models; in the whole run the target " + says)
    assert f"trains {256 if every else 136} epochs of its labels" in said[0]


def test_a_target_with_too_few_labels_is_refused_before_anything_is_trained():
    federation = Federation(info={"t": {"examples": 7}})
    with pytest.raises(ConfigError, match="has 7 labelled samples, but a mixture with 4 folds needs 8"):
        start(1, federation)
    assert federation.configs == []
    start(1, Federation(info={"t": {"examples": 7}}), folds=3)


def test_a_target_with_fewer_groups_than_folds_is_refused_before_anything_is_trained():
    federation = Federation(info={"t": {"examples": 20, "groups": 3}})
    with pytest.raises(ConfigError, match="are of 3 groups, but a mixture with 4 folds needs 4"):
        start(1, federation)
    assert federation.configs == []
    start(1, Federation(info={"t": {"examples": 20, "groups": 3}}), folds=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"folds": 1}, "folds is 1"),
        ({"folds": 2.5}, "folds is 2.5: give a whole number"),
        ({"epochs": "1,x"}, "epochs is '1,x': give whole numbers of epochs that grow, such as 1,30"),
        ({"epochs": 0}, "epochs is 0: give whole numbers of epochs that grow, such as 1,30"),
        ({"epochs": [1.5, 30]}, r"epochs is \[1.5, 30\]: give whole numbers"),
        ({"epochs": "30,1"}, r"epochs is \[30, 1\]"),
        ({"epochs": [0]}, r"epochs is \[0\]"),
        ({"members": "prior"}, "members is 'prior': name some of"),
        ({"members": "sources,sources"}, "members is 'sources, sources': name some of"),
        ({"members": ["best"]}, "unknown member 'best'"),
        ({"views": "some"}, "views is 'some': choose all or full"),
        ({"every": -1}, "every is -1: it must be at least 0"),
        ({"every": 2.5}, "every is 2.5: give a whole number"),
        ({"report": "some"}, "report is 'some': choose full or none"),
        ({"report": "none", "average": "tail:2"}, "report is 'none', but with the average 'tail:2'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        Mixture(**options)


def test_epochs_and_members_may_be_text_or_lists():
    one = Mixture(epochs="1, 5", members="sources, tuned")
    assert one.settings() == Mixture(epochs=[1, 5], members=["sources", "tuned"]).settings()
    assert one.settings() != Mixture().settings()


def test_the_member_head_needs_a_network_with_a_head():
    assert Mixture(members="sources,head").needs == ("head",)
    assert Mixture().needs == ()
