"""Rounds in which the target does not evaluate."""

import json
from typing import Any

import pytest
from handmade import HandMade, initial, moves
from naming import names

from fda_flower import run
from fda_flower.errors import ConfigError
from fda_flower.legacy import LegacyStrategy
from fda_flower.records.record import headline
from fda_flower.runs.config import RunConfig
from fda_flower.strategies import FedAvg, FedDAF, Mixture

TINY: dict[str, Any] = {
    **{"model": "mlp", "device": "cpu", "seed": 2, "rounds": 8},
    **{"target_samples": 10, "source_samples": 20, "test_samples": 20},
}


def evaluated(history):
    return [record["round"] for record in history if "accuracy" in record]


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(12, 3, [3, 6, 8, 9, 10, 11, 12]), (4, 9, [1, 2, 3, 4]), (7, 1, [1, 2, 3, 4, 5, 6, 7])],
)
def test_every_so_many_rounds_and_the_last_five(rounds, every, expected):
    sites = HandMade([("target", "t", moves(1.0, "target", "t")), ("source", "a", moves(2.0, domain="a"))])
    shown: list[str] = []
    strategy = FedAvg(
        evaluate_every=every, average="ema:0.5", on_round=lambda record: shown.append(headline(record))
    )
    result = strategy.start(sites.grid(), initial(), rounds)
    assert evaluated(strategy.history) == expected == sorted(result.evaluate_metrics_clientapp)
    assert [r["round"] for r in strategy.history if "accuracy-average" in r] == expected
    assert [i + 1 for i, line in enumerate(shown) if line != "target not evaluated"] == expected


@pytest.mark.parametrize("method", ["fedavg", "feddaf", "fedrep"])
def test_no_bit_changes_but_figures_are_left_out(method, tmp_path):
    whole = run(method=method, **TINY)
    few = run(method=method, evaluate_every=3, output=tmp_path / "run", **{**TINY, "rounds": 7})
    assert evaluated(few.history) == [3, 4, 5, 6, 7]
    longer = run(method=method, evaluate_every=3, output=tmp_path / "run", resume=True, **TINY)
    assert evaluated(longer.history) == [3, 4, 5, 6, 7, 8]
    assert {k: v.tobytes() for k, v in longer.model.items()} == {
        k: v.tobytes() for k, v in whole.model.items()
    }
    for one, other in zip(longer.history[2:], whole.history[2:], strict=True):
        assert (one["accuracy"], one["loss"]) == (other["accuracy"], other["loss"])
        assert one["target"]["train-loss"] == other["target"]["train-loss"]
    assert longer.summary["last5"] == whole.summary["last5"]
    assert json.loads((tmp_path / "run" / "model.json").read_text())["round"] == 8


def test_it_does_not_define_the_run():
    assert RunConfig(evaluate_every=5).fingerprint() == RunConfig().fingerprint()


def test_the_trained_model_is_evaluated_in_these_rounds_alone():
    strategy = FedDAF(evaluate_every=4)
    strategy.num_rounds = 20
    assert [n for n in range(1, 21) if strategy.evaluates_in(n)] == [4, 8, 12, 16, 17, 18, 19, 20]


def test_mixtures_own_option_decides_after_the_warm_up():
    strategy = Mixture(evaluate_every=4, warmup_rounds=6, every=5)
    strategy.num_rounds = 20
    assert [n for n in range(1, 10) if strategy.evaluates_in(n)] == [4, 7, 8, 9]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"evaluate_every": 0}, "evaluate-every is 0"),
        ({"evaluate_every": 2, "validation": 0.2}, "evaluate-every is 2, but validation is 0.2"),
        ({"evaluate_every": 2, "method": "central:erm"}, "evaluates in each round"),
    ],
)
def test_what_it_cannot_go_with(settings, says):
    with pytest.raises(ConfigError, match=says):
        RunConfig(**settings)


def test_flowers_older_server_does_not_know_the_last_rounds():
    with pytest.raises(ConfigError, check=names("evaluate_every", 2)):
        LegacyStrategy(FedAvg(evaluate_every=2))
