"""How a strategy reads the figures on samples held out, and what it does where they are missing."""

import re

import pytest
from handmade import A, B, HandMade, T, initial

from fda_flower.errors import ConfigError
from fda_flower.records.folder import RunFolder
from fda_flower.records.record import default_metric
from fda_flower.strategies import FedAvg
from fda_flower.strategies.selection import Selection


def run(figures, name="accuracy", **options):
    """A run whose target has a figure for each round; None for a reply without one."""

    def metrics(domain, config):
        figure = figures[config["server-round"] - 1]
        return {"accuracy": 0.5, "loss": 1.0, **({} if figure is None else {f"validation-{name}": figure})}

    strategy = FedAvg(**options)
    strategy.start(HandMade([A, B, T], metrics=metrics).grid(), initial(), len(figures))
    return strategy


@pytest.mark.parametrize(
    ("figures", "options", "chosen"),
    [
        ([0.2, 0.4, 0.4, 0.1], {}, [1, 2, 2, 2]),
        ([None, 0.4, None], {}, [None, 2, None]),
        ([0.4, 0.3, 0.2, 0.9], {"patience": 2}, [1, 1, 1]),
        ([0.4, 0.3, 0.5], {"name": "rmse"}, [1, 2, 2]),
        ([0.9, 0.3], {"warmup_rounds": 1}, [None, 2]),
    ],
)
def test_the_round_that_is_chosen_so_far(figures, options, chosen):
    strategy = run(figures, **options)
    assert [record.get("selected") for record in strategy.history] == chosen
    assert not any("metrics" in record for record in strategy.history)


@pytest.mark.parametrize(
    ("figures", "options", "lacking"),
    [
        ([None, None], {"metric": "auroc"}, ["headline auroc"]),
        ([0.2, 0.4], {"metric": "auroc"}, ["validation validation-auroc", "headline auroc"]),
        ([0.2, 0.4], {"metric": "auroc", "name": "auroc", "patience": 2}, ["headline auroc"]),
        ([None, None], {"metric": "loss", "patience": 2}, ["validation validation-loss"]),
        ([None, None], {"patience": 2}, ["validation validation-accuracy"]),
        ([None, None], {}, []),
    ],
)
def test_a_metric_that_the_target_does_not_send_is_named_once(figures, options, lacking, flower_log):
    run(figures, **options)
    lines = re.findall(r"Round 1: no (.+) by t: its metrics have no '(.+?)'", "\n".join(flower_log.messages))
    assert [" ".join(line) for line in lines] == lacking
    assert not any(line.startswith("Round 2") for line in flower_log.messages)


def test_figures_that_are_known_beforehand_choose():
    strategy = run([None, None], validation={1: 0.7, 2: 0.6})
    assert [(record["selected"], record["selected-by"]) for record in strategy.history] == [(1, "folds")] * 2


def test_the_first_known_figure_is_the_headline():
    assert default_metric({"loss": 1.0, "r2": 0.5}) == "r2"
    assert default_metric({}) == "accuracy"


RARE = {"t": {"headline": "auroc"}}


def started(rounds, info=RARE, **options):
    """The records of a run whose target says which metric its rare class asks for."""
    figures = {"accuracy": 0.9, "auroc": 0.7, "validation-accuracy": 0.9, "loss": 1.0}
    app = HandMade([A, B, T], info=info, metrics=lambda domain, config: figures | held_out(config))
    strategy = FedAvg(**options)
    strategy.start(app.grid(), initial(), rounds)
    return strategy.history


def held_out(config):
    return {"validation-auroc": 1 / config["server-round"]}


def test_the_target_says_that_a_rare_class_asks_for_another_metric():
    history = started(2)
    assert [(each["headline"], each["validation"]) for each in history] == [("auroc", 1.0), ("auroc", 0.5)]
    assert "headline" not in started(1, metric="accuracy")[0]
    assert "headline" not in started(1, info={})[0]


def test_a_run_keeps_the_metric_it_began_with(tmp_path):
    def resumed(name, **options):
        return started(2, output=RunFolder(tmp_path / name, resume=True), **options)

    started(1, info={}, output=RunFolder(tmp_path / "old"))
    assert [each.get("headline") for each in resumed("old")] == [None, None]
    started(1, output=RunFolder(tmp_path / "new"))
    with pytest.raises(ConfigError, match="labels held out have chosen rounds by AUROC"):
        resumed("new", metric="accuracy")
    assert [each["headline"] for each in resumed("new", info={})] == ["auroc"] * 2


@pytest.mark.parametrize("judged", [{"ridge": {"held-out": 0.9}}, {"sites": {"a": {"gain": 0.1}}}])
def test_labels_that_an_earlier_version_judged_keep_their_metric(judged):
    history = [{"accuracy": 0.9, **judged}]
    Selection(None, "accuracy", {}).check_judged(history)
    with pytest.raises(ConfigError, match="held-out labels in accuracy: give --metric accuracy"):
        Selection(None, "brier", {}).check_judged(history)
    Selection(None, "brier", {}).check_judged([{"accuracy": 0.9, "sources": {"a": {}}}])
