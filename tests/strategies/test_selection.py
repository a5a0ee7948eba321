"""How a strategy reads the figures on samples held out, and what it does where they are missing."""

import pytest
from handmade import A, B, HandMade, T, initial

from fda_flower.strategies import FedAvg
from fda_flower.strategies.selection import default_metric


def run(figures, mute=(), name="accuracy", **options):
    """A run whose nodes have a figure for each round; None for a reply without one."""
    asked: list[tuple[str, object]] = []

    def metrics(domain, config):
        asked.append((domain, config.get("validation")))
        if domain in mute:
            raise RuntimeError("no reply")
        figure = figures[config["server-round"] - 1]
        return {"accuracy": 0.5, "loss": 1.0, **({} if figure is None else {f"validation-{name}": figure})}

    strategy = FedAvg(**options)
    strategy.start(HandMade([A, B, T], metrics=metrics).grid(), initial(), len(figures))
    return strategy, asked


@pytest.mark.parametrize(
    ("figures", "options", "chosen"),
    [
        ([0.2, 0.4, 0.4, 0.1], {}, [1, 2, 2, 2]),
        ([None, 0.4, None], {}, [None, 2, None]),
        ([0.4, 0.3, 0.2, 0.9], {"patience": 2}, [1, 1, 1]),
        ([0.4, 0.3, 0.5], {"name": "rmse"}, [1, 2, 2]),
        ([0.9, 0.3], {"warmup_rounds": 1}, [None, 2]),
        ([0.2, 0.4], {"select_by": "sources"}, [1, 2]),
        ([0.2, 0.4], {"select_by": "sources", "mute": ("b",)}, [None, None]),
        ([1.7e308, 1.6e308, 1.75e308], {"select_by": "sources", "name": "rmse"}, [1, 2, 2]),
    ],
)
def test_the_round_that_is_chosen_so_far(figures, options, chosen):
    strategy, _ = run(figures, **options)
    assert [record.get("selected") for record in strategy.history] == chosen
    assert not any("metrics" in record for record in strategy.history)


def test_figures_that_are_known_beforehand_choose():
    strategy, _ = run([None, None], validation={1: 0.7, 2: 0.6})
    assert [(record["selected"], record["selected-by"]) for record in strategy.history] == [(1, "folds")] * 2


def test_known_figures_choose_whatever_those_of_sources_are():
    strategy, _ = run([0.2], select_by="sources", validation={1: 0.7})
    (record,) = strategy.history
    assert (record["validation"], record["selected-by"]) == (0.7, "folds")
    assert record["sources"]["a"]["validation"] == 0.2


def test_sources_are_asked_for_the_samples_held_out_alone_and_nobody_by_default():
    strategy, asked = run([0.2], select_by="sources")
    assert sorted(asked, key=str) == [("a", "only"), ("b", "only"), ("t", None)]
    assert strategy.history[0]["sources"]["a"]["validation"] == 0.2
    assert run([0.5])[1] == [("t", None)]


def test_the_first_known_figure_is_the_headline():
    assert default_metric([{}, {"loss": 1.0, "r2": 0.5}]) == "r2"
    assert default_metric([]) == "accuracy"
