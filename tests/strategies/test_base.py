"""The steps of a run, which every method inherits: waiting, messages, records, the result, a resume."""

import json
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from handmade import A, B, HandMade, T, Watched, bits, initial, moves, off_in, weights
from naming import names
from whole_runs import untimed

from fda_flower import run
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.records.record import headline
from fda_flower.runs.config import RunConfig
from fda_flower.strategies import Aggregated, FedAvg, FedAvgFT, FedRep, Mixture, RunFolder, SourceOnly
from fda_flower.wire.asked.personal import FineTune


def start(strategy, rounds=2, nodes=(A, T), **more):
    return strategy.start(HandMade(nodes).grid(), initial(), rounds, **more)


def resumed(path, kind=FedAvg, **options):
    return kind(output=RunFolder(path, resume=True), **options)


def test_what_is_sent_to_whom_and_how_long_they_have():
    grid = Watched(HandMade([A, B, T]))
    strategy = FedAvg(warmup_rounds=1, learning_rate_factor=0.5, weights="uniform")
    train, evaluate = ConfigRecord({"mine": 1}), ConfigRecord({"yours": 2})
    strategy.connect(grid)
    grid.seen.clear()
    strategy.start(grid, initial(), 2, timeout=7.0, train_config=train, evaluate_config=evaluate)
    first, second = [1, 2], [1 + (30 * 0.5 + 10 * 0.1) / 40, 2 + (30 * 0.25 - 10 * 0.7) / 40]
    third = [second[0] + 0.85 / 3, second[1] + 0.05 / 3]
    now = {"mine": 1, "server-round": 2, "rate-factor": 0.5}
    expected: list[tuple[str, str, Any, Any]] = [
        ("train", "a", {"mine": 1, "server-round": 1}, first),
        ("train", "b", {"mine": 1, "server-round": 1}, first),
        ("evaluate", "t", {"yours": 2, "server-round": 1}, second),
        *(("train", domain, now, second) for domain in "abt"),
        ("evaluate", "t", {"yours": 2, "confusion": True, "server-round": 2}, third),
    ]
    told = [(kind, domain, dict(content["config"])) for kind, domain, content, _ in grid.seen]
    assert told == [each[:3] for each in expected]
    models = [content["arrays"]["w"].numpy() for _, _, content, _ in grid.seen]
    np.testing.assert_allclose(models, [each[3] for each in expected], rtol=1e-6)
    assert {timeout for *_, timeout in grid.seen} == {7.0}
    assert strategy.round.send.keywords == {"timeout": 7.0}  # type: ignore[attr-defined]
    grid.seen.clear()
    FedAvg().start(grid, initial(), 1)
    assert {timeout for kind, *_, timeout in grid.seen if kind == "train"} == {3600}


def test_the_result_is_flowers():
    evaluated = []

    def own(server_round, arrays):
        evaluated.append((server_round, arrays["w"].numpy().tolist()))
        return MetricRecord({"own": float(server_round)}) if server_round != 1 else None

    strategy = FedAvg(min_sources=2, max_held_rounds=2)
    result = start(strategy, nodes=[A, off_in(B, 2), T], evaluate_fn=own)
    assert [number for number, _ in evaluated] == [0, 1, 2]
    assert evaluated[0][1] == [1, 2]
    assert evaluated[1][1] == evaluated[2][1] == weights(result).tolist() != [1, 2]
    assert result.evaluate_metrics_serverapp == {0: {"own": 0.0}, 2: {"own": 2.0}}
    assert [record.get("server") for record in strategy.history] == [None, {"own": 2.0}]
    held = "1 usable replies of sources, at least 2 needed"
    assert [record["held"] for record in strategy.history] == [None, held]
    assert result.train_metrics_clientapp == {
        1: {"dropped": 0, "train-loss.a": 1.0, "train-loss.b": 1.0},
        2: {"dropped": 1, "train-loss.a": 1.0},
    }
    metrics = {"accuracy": 0.5, "loss": 1.0, "num-examples": 4}
    assert result.evaluate_metrics_clientapp == {1: metrics, 2: metrics}


@pytest.mark.parametrize("kind", [FedAvg, FedAvgFT])
def test_a_strategy_that_is_started_again_runs_like_a_new_one_and_may_wait_for_ever(kind):
    values = {number: figure for number, figure in enumerate((0.9, 0.2, 0.1), start=1)}
    once, again = (kind(patience=1, validation=values) for _ in range(2))
    start(again, np.int64(3), timeout=None)
    first, second = start(once, 3), start(again, 3)
    assert bits(first.arrays) == bits(second.arrays)
    assert untimed(again.history) == untimed(once.history)
    assert [each["round"] for each in again.history] == [1, 2]


def test_a_callback_ends_the_run_after_a_round_which_resumes_to_the_same_bits(tmp_path):
    asked = []

    def after_the_second(server_round, result):
        asked.append((server_round, sorted(result.train_metrics_clientapp), bits(result.arrays)))
        return server_round >= 2

    strategy = FedAvg(output=RunFolder(tmp_path))
    result = start(strategy, 4, should_stop=after_the_second)
    assert [(number, rounds) for number, rounds, _ in asked] == [(1, [1]), (2, [1, 2])]
    assert asked[-1][2] == bits(result.arrays)
    assert [record["round"] for record in strategy.history] == [1, 2]
    whole = start(FedAvg(), 4, should_stop=lambda *_: False)
    assert bits(start(resumed(tmp_path), 4).arrays) == bits(whole.arrays)


def test_a_run_is_not_resumed_with_another_target(tmp_path):
    start(FedAvg(output=RunFolder(tmp_path)), 1, [A, B, T])
    nodes = [("target", "a", moves([0.5, 0.25], "target", "a")), B]
    with pytest.raises(ConfigError, check=names("target", "a")):
        start(resumed(tmp_path), 2, nodes)
    assert len(RunFolder(tmp_path).read_rounds()) == 1


@pytest.mark.parametrize("strategy", [FedRep(), Mixture()], ids=lambda strategy: type(strategy).__name__)
def test_a_callback_cannot_end_a_run_whose_last_round_differs(strategy):
    with pytest.raises(ConfigError, check=names("should_stop")):
        start(strategy, should_stop=lambda *_: True)


def test_the_record_of_a_round():
    strategy = SourceOnly()
    start(strategy, 1, [A, B, T])
    (record,) = strategy.history
    numbers = {"steps": 2, "train-loss": 1.0}
    assert record.pop("bytes-received") == 2 * initial().count_bytes()
    assert set(record.pop("seconds")) == {"train", "aggregate", "evaluate"}
    assert record == {
        "round": 1,
        "warmup": False,
        "held": None,
        "target": None,
        "sources": {
            "a": {"domain": "a", "examples": 30, **numbers},
            "b": {"domain": "b", "examples": 10, **numbers},
        },
        "dropped": [],
        "missing": [],
        "accuracy": 0.5,
        "loss": 1.0,
        "test-examples": 4,
    }


def without_evaluation(nodes):
    """Nodes whose app has no function for evaluations, which is Flower's error."""
    app = HandMade(nodes)
    del app.app._registered_funcs["evaluate.default"]
    return Watched(app)


def test_an_app_without_an_evaluate_function_is_asked_once(flower_log):
    strategy = FedAvg(average="tail:2")
    grid = without_evaluation([A, T])
    flower_log.set_level(logging.INFO, "flwr")
    strategy.start(
        grid, initial(), 3, evaluate_fn=lambda number, _: MetricRecord({"acc": number / 4, "all": [0.5]})
    )
    asked = [domain for kind, domain, *_ in grid.seen if kind == "evaluate"]
    assert asked == ["t"]
    first = strategy.history[0]
    assert ["evaluation-failed" in record for record in strategy.history] == [True, False, False]
    assert "Traceback" not in first["evaluation-failed"]
    assert not any("accuracy" in record for record in strategy.history)
    assert [record["server"]["acc"] for record in strategy.history] == [0.25, 0.5, 0.75]
    lines = [line for line in flower_log.messages if line.startswith("round ")]
    assert [line.endswith(f"server acc {n / 4:.4g}") for n, line in enumerate(lines, 1)] == [True] * 3
    assert len([line for line in flower_log.messages if "no evaluation by" in line]) == 1


def test_the_seconds_of_a_round_are_of_its_parts(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def slow(model, message):
        now[0] += 2
        return A[2](model, message)

    class Slow(FedAvg):
        def aggregate(self, round, target, sources):
            now[0] += 4
            return super().aggregate(round, target, sources)

        def evaluate_request(self, round):
            now[0] += 8
            return super().evaluate_request(round)

    strategy = Slow()
    start(strategy, 1, [("source", "a", slow), T])
    assert strategy.history[0]["seconds"] == {"train": 2, "aggregate": 4, "evaluate": 8}


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (lambda model: model, "dict"),
        (lambda _: Aggregated({}), "array 'w' as nothing"),
        (lambda model: Aggregated({**model, "v": model["w"]}), "array 'v' as"),
        (lambda model: Aggregated({**model, "w": model["w"].astype(float)}), "array 'w' as float64"),
        (lambda model: Aggregated({**model, "w": model["w"][:1]}), "array 'w' as float32 of shape (1,)"),
        (lambda model: Aggregated(dict[str, Any](model, w=[1.0])), "a model that is no dictionary"),
        (lambda model: Aggregated(model, {"v": model["w"]}), "a v that is no dictionary"),
        (lambda model: Aggregated(model, None), "state that is no dictionary"),  # type: ignore[arg-type]
        (lambda model: Aggregated(model, record=[("v", 1)]), "record that is no dictionary"),  # type: ignore[arg-type]
        (lambda model: Aggregated(model, warnings="a site is slow"), "warnings that is no list"),
    ],
)
def test_what_aggregate_returns_is_a_model_like_the_rounds(returned, value):
    class Own(FedAvg):
        def aggregate(self, round, target, sources):
            return returned(round.model)

    with pytest.raises(RunError, match="aggregate of Own") as caught:
        start(Own())
    assert caught.value.thing == "aggregate"
    assert str(caught.value.value).startswith(value)


def test_a_question_that_a_method_does_not_declare_is_an_error_before_any_training():
    class Own(FedAvg):
        def train_request(self, node, round):
            return replace(super().train_request(node, round), question=FineTune())

    app = HandMade([A, T])
    with pytest.raises(RunError, match="questions = ", check=names("question", "FineTune")):
        Own().start(app.grid(), initial(), 1)
    assert app.configs == []


@pytest.mark.parametrize(
    ("options", "rounds", "error"),
    [
        ({"buffer_names": ["running"]}, 2, ("buffer", "running")),
        ({"buffer_names": "w"}, 2, ("buffer_names", "w")),
        ({"metric": "f1"}, 2, ("metric", "f1")),
        ({"output": "runs/x"}, 2, ("output", "runs/x")),
        ({"on_round": 3}, 2, ("on_round", 3)),
        ({"validation": [0.5]}, 2, ("validation", [0.5])),
        ({}, 2.5, ("num_rounds", 2.5)),
    ],
)
def test_an_option_of_another_kind_or_of_no_array_is_refused_before_any_training(options, rounds, error):
    app = HandMade([A, T])
    with pytest.raises(ConfigError, check=names(*error)):
        FedAvg(**options).start(app.grid(), initial(), rounds)
    assert app.configs == []


def test_held_rounds_in_a_row_are_counted_across_a_resume(tmp_path):
    nodes = [A, off_in(T, 2, 3, 4)]
    start(FedAvg(output=RunFolder(tmp_path)), 3, nodes)
    with pytest.raises(RunError, check=names("held rounds", 3)):
        start(resumed(tmp_path), 6, nodes)
    assert len(RunFolder(tmp_path).read_rounds()) == 4
    start(resumed(tmp_path), 6, nodes)
    assert RunFolder(tmp_path).load_checkpoint().held_rounds == 0


def test_a_run_that_is_complete_does_nothing_and_one_that_is_longer_or_other_is_refused(tmp_path):
    class Other(FedAvg):
        pass

    app, evaluated = HandMade([A, T]), []
    whole = FedAvg(output=RunFolder(tmp_path)).start(app.grid(), initial(), 2)
    app.configs.clear()

    def again(rounds, arrays, kind=FedAvg):
        def own(number, arrays):
            evaluated.append(number)

        return resumed(tmp_path, kind).start(app.grid(), arrays, rounds, evaluate_fn=own)

    assert bits(again(2, initial()).arrays) == bits(whole.arrays)
    with pytest.raises(ConfigError, check=names("num_rounds", 1)):
        again(1, initial())
    with pytest.raises(ConfigError, check=lambda error: error.value == "w"):
        again(3, initial((1.0, 2.0, 3.0)))
    with pytest.raises(ConfigError, match=r"'FedAvg'.*'Other'", check=names(str(tmp_path))):
        again(3, initial(), Other)
    assert app.configs == evaluated == []


@pytest.mark.parametrize(("options", "calls"), [({"min_sources": 2}, 3), ({"wait_for": 4}, 4), ({}, 2)])
def test_it_waits_for_the_target_and_enough_sources_or_for_as_many_as_it_is_told(options, calls):
    class Arriving(LocalGrid):
        """A grid with one node more each time that it is asked."""

        calls = 0

        def get_node_ids(self):
            self.calls += 1
            return list(super().get_node_ids())[: self.calls]

        def get_nodes(self):
            return ()  # nobody is registered

    grid = Arriving(HandMade([T, A, B, ("source", "c", A[2])]).app, 4)
    strategy = FedAvg(wait_seconds=60, **options)
    strategy.connect(grid)
    assert grid.calls == len(strategy.nodes.connected) == calls
    strategy.start(grid, initial(), 1)
    assert grid.calls == calls + 1


def test_a_warm_up_round_neither_waits_for_the_target_nor_evaluates_what_it_trained():
    strategy = FedAvgFT(warmup_rounds=1)
    start(strategy, 2, [A, off_in(T)])
    first, second = strategy.history
    assert (first["held"], first["accuracy"], first["target"]) == (None, 0.5, None)
    assert "accuracy-global" not in first
    assert second["held"] == "no usable reply of the target"


# Rounds in which the target does not evaluate


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(12, 3, [3, 6, 8, 9, 10, 11, 12]), (4, 9, [1, 2, 3, 4]), (7, 1, [1, 2, 3, 4, 5, 6, 7])],
)
def test_the_target_evaluates_every_so_many_rounds_and_in_the_last_five(rounds, every, expected):
    shown: list[str] = []
    strategy = FedAvg(evaluate_every=every, average="ema:0.5", on_round=lambda r: shown.append(headline(r)))
    result = start(strategy, rounds)
    for name in ("accuracy", "accuracy-average"):
        assert [record["round"] for record in strategy.history if name in record] == expected
    assert sorted(result.evaluate_metrics_clientapp) == expected
    assert [i + 1 for i, line in enumerate(shown) if line != "target not evaluated"] == expected


@pytest.mark.parametrize("method", ["fedavg", "feddaf", "fedrep"])
def test_no_bit_changes_but_figures_are_left_out(method, tmp_path):
    tiny: dict[str, Any] = {"method": method, "model": "mlp", "device": "cpu", "seed": 2}
    tiny |= {"target_samples": 10, "source_samples": 20, "test_samples": 20}
    folder: dict[str, Any] = {"evaluate_every": 3, "output": tmp_path / "run"}
    whole = run(**tiny, rounds=8)
    few = run(**tiny, **folder, rounds=7)
    lines = (tmp_path / "run" / "rounds.jsonl").read_text()
    longer = run(**tiny, **folder, rounds=8, resume=True)
    assert (tmp_path / "run" / "rounds.jsonl").read_text().startswith(lines)
    evaluated = [[r["round"] for r in each.history if "accuracy" in r] for each in (few, longer)]
    assert evaluated == [[3, 4, 5, 6, 7], [3, 4, 5, 6, 7, 8]]
    assert bits(longer.model) == bits(whole.model)
    final = [name for name in few.history[-1] if name.endswith("final-head")]
    one, other = (untimed(each.history[2:], *final) for each in (longer, whole))
    assert one == other, "there is one confusion, in the last round"
    assert untimed(RunFolder(tmp_path / "run").read_rounds()) == untimed(longer.history)
    assert longer.summary["last5"] == whole.summary["last5"]
    assert json.loads((tmp_path / "run" / "model.json").read_text())["round"] == 8


def test_how_often_it_evaluates_does_not_define_the_run_and_mixtures_own_option_decides_after_the_warm_up():
    assert RunConfig(evaluate_every=5).fingerprint() == RunConfig().fingerprint()
    strategy = Mixture(evaluate_every=4, warmup_rounds=6, every=5)
    strategy.num_rounds = 20
    assert [n for n in range(1, 10) if strategy.evaluates_in(n)] == [4, 7, 8, 9]


def test_what_evaluating_now_and_then_cannot_go_with():
    with pytest.raises(ConfigError, check=names("evaluate-every", 2)):
        RunConfig(evaluate_every=2, validation=0.2)
