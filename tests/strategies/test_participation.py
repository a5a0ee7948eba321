"""A fraction of the sources in each round: every strategy takes it, or says why not before training."""

from collections import Counter
from typing import Any

import pytest
from handmade import HandMade, bits, build, initial, moves, steps_extra
from naming import names
from whole_runs import check_same, untimed

from fda_flower import RunConfig, run
from fda_flower.errors import ConfigError
from fda_flower.runs.methods import METHODS, find_method, of_every_site
from fda_flower.strategies import FedAvg, FedOMG, GroupDRO, Node, RunFolder, VREx
from fda_flower.strategies.participation import Participation

NODES = [
    ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
    ("source", "b", moves([0.1, -0.7], domain="b", examples=7)),
    ("source", "c", moves([-0.3, 0.3], domain="c", examples=11)),
    ("source", "d", moves([0.2, 0.4], domain="d", examples=19)),
    ("target", "t", moves([0.5, 0.4], "target", "t", examples=5, steps=2, rate=0.1,
                          extra=steps_extra([[0.2, 0.0], [0.3, 0.4]]))),
]  # fmt: skip
HALF: dict[str, Any] = {"fraction_train": 0.5, "seed": 3}


def start(strategy, rounds=1, method="fedavg", nodes=NODES):
    app = HandMade(nodes)
    return strategy.start(app.grid(), initial(method=method), rounds), app


@pytest.mark.parametrize("method", METHODS)
def test_every_method_draws_sources_with_a_target_that_always_trains_or_refuses(method):
    if METHODS[method].strategy_class.needs_all_sources:
        with pytest.raises(ConfigError, match="sums of all sources", check=names("fraction_train", 0.5)):
            build(method, **HALF)
        return
    strategy = build(method, **HALF)
    result, app = start(strategy, 6, method)
    for record in strategy.history:
        asked = {domain for domain, config in app.configs if config["server-round"] == record["round"]}
        sources = {*record["drawn"]} if "source" in strategy.trains else set()
        trains = "target" in strategy.trains or strategy.asks_again
        assert asked == sources | ({"t"} if trains else set())
        assert (len(record["drawn"]), {*record["sources"]}) == (2, sources)
        assert record["held"] is None
    assert len({*(tuple(record["drawn"]) for record in strategy.history)}) > 1
    again = build(method, **HALF)
    assert bits(start(again, 6, method, NODES[::-1])[0].arrays) == bits(result.arrays)
    assert untimed(again.history) == untimed(strategy.history)


def test_where_every_site_is_a_target_all_take_part():
    with pytest.raises(ConfigError, match="sums of all sources", check=names("fraction_train", 0.5)):
        of_every_site("ridge").build(**HALF)
    with pytest.raises(ConfigError, match="cannot aggregate 3 clients"):
        start(find_method("flower:Bulyan").build(num_malicious_nodes=1, **HALF))


def test_each_source_is_drawn_as_often_as_another_by_seed_round_and_domain_alone():
    nodes = [Node(i, domain, domain == "t") for i, domain in enumerate("abcdt")]

    def draws(seed, order=1):
        return [
            Participation(0.5, seed=seed).of(nodes[::order], number)[1]["drawn"] for number in range(1000)
        ]

    assert draws(1) == draws(1, -1) != draws(2)
    counts = Counter(domain for drawn in draws(1) for domain in drawn)
    assert all(450 < counts[domain] < 550 for domain in "abcd")
    pairs = Counter(map(tuple, draws(1)))
    assert len(pairs) == 6
    assert min(pairs.values()) > 120
    assert Participation(1.0).of(nodes, 1) == (nodes, {})


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        (FedAvg, {}, 1),
        (FedAvg, {"min_train_nodes": 4}, 3),
        (FedAvg, {"min_fit_clients": 3}, 2),
        (FedAvg, {"min_train_nodes": 9, "wait_for": 5}, 4),
        (FedAvg, {"min_sources": 3}, 3),
        *((kind, {}, 2) for kind in (VREx, GroupDRO, FedOMG)),
    ],
)
def test_a_round_has_the_least_number_of_nodes_and_of_sources(kind, options, size):
    strategy = kind(fraction_train=0.1, **options)
    start(strategy)
    assert len(strategy.history[0]["sources"]) == size


def test_the_log_says_it_once_and_a_resumed_run_draws_the_same(tmp_path, flower_log):
    flower_log.set_level("INFO", "flwr")
    whole = FedAvg(**HALF)
    expected, _ = start(whole, 4)
    lines = [line for line in flower_log.messages if "draws" in line]
    assert lines == ["Target: t. Sources: a, b, c, d. Each round draws 2 of them by the seed 3"]
    start(FedAvg(**HALF, output=RunFolder(tmp_path)), 2)
    strategy = FedAvg(**HALF, output=RunFolder(tmp_path, resume=True))
    assert bits(start(strategy, 4)[0].arrays) == bits(expected.arrays)
    assert [each["drawn"] for each in strategy.history] == [each["drawn"] for each in whole.history]
    with pytest.raises(ConfigError, check=names(str(tmp_path))):
        start(FedAvg(output=RunFolder(tmp_path, resume=True)), 5)


TINY: dict[str, Any] = {
    "method": "fedgp-auto",
    "model": "mlp",
    "rounds": 3,
    "device": "cpu",
    "source_samples": 20,
}


def test_a_run_draws_by_its_seed_with_the_same_bits_on_other_processes():
    options = {**TINY, "method_options": "fraction-train=0.5", "test_samples": 20}
    one, other = run(**options), run(**options, workers=2)
    check_same(one, other)
    drawn = [[record["drawn"] for record in each.history] for each in (one, run(**options, seed=1))]
    assert drawn[0] != drawn[1]
    assert {len(domains) for domains in drawn[0]} == {1}


def test_a_run_reports_the_epochs_of_a_source_that_is_drawn_now_and_then():
    whole, some = RunConfig(**TINY), RunConfig(**TINY, method_options={"fraction_train": 0.67})
    assert (whole.training_epochs(50)["source"], some.training_epochs(50)["source"]) == (3, 2)
    with pytest.raises(ConfigError, check=names("fraction_train", 0.5)):
        RunConfig(method="ridge", method_options={"fraction_train": 0.5})
