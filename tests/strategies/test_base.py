"""The steps of a run, which every method inherits: waiting, messages, records, the result, a resume."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from handmade import HandMade, initial, moves, weights
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.strategies import FedAvg, FedAvgFT, FedRep, Mixture, RunFolder, SourceOnly, TargetOnly

A, B, T = (
    ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
    ("source", "b", moves([0.1, -0.7], domain="b", examples=10)),
    ("target", "t", moves([0.25, 0.5], "target", "t", examples=10)),
)


def fails(model, message):
    raise OSError("off")


def by_plan(answer, failing):
    """A client that fails in some rounds."""

    def planned(model, message):
        return (fails if message.content["config"]["server-round"] in failing else answer)(model, message)

    return planned


class Watched(LocalGrid):
    """A grid that keeps the messages' types, domains, settings, models and timeouts."""

    def __init__(self, app):
        super().__init__(app.app, len(app.nodes))
        self.domains = {i + 2: domain for i, (_, domain, _) in enumerate(app.nodes)}
        self.seen = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            if message.has_content() and message.content.array_records:
                metadata, content = message.metadata, message.content
                model = content["arrays"]["w"].numpy().tolist()
                told = (metadata.message_type, self.domains[metadata.dst_node_id])
                self.seen.append((*told, dict(content["config"]), model, timeout))
        return super().send_and_receive(messages, timeout=timeout)


def test_what_is_sent_to_whom_and_how_long_they_have():
    grid = Watched(HandMade([A, B, T]))
    strategy = FedAvg(warmup_rounds=1, learning_rate_factor=0.5, weights="uniform")
    train, evaluate = ConfigRecord({"mine": 1}), ConfigRecord({"yours": 2})
    strategy.start(grid, initial(), 2, timeout=7.0, train_config=train, evaluate_config=evaluate)
    first, second = [1, 2], [1 + (30 * 0.5 + 10 * 0.1) / 40, 2 + (30 * 0.25 - 10 * 0.7) / 40]
    third = [second[0] + 0.85 / 3, second[1] + 0.05 / 3]
    now = {"mine": 1, "server-round": 2, "rate-factor": 0.5}
    expected = [
        ("train", "a", {"mine": 1, "server-round": 1}, first),
        ("train", "b", {"mine": 1, "server-round": 1}, first),
        ("evaluate", "t", {"yours": 2, "server-round": 1}, second),
        *(("train", domain, now, second) for domain in "abt"),
        ("evaluate", "t", {"yours": 2, "confusion": True, "server-round": 2}, third),
    ]
    assert [seen[:3] for seen in grid.seen] == [each[:3] for each in expected]
    np.testing.assert_allclose([seen[3] for seen in grid.seen], [each[3] for each in expected], rtol=1e-6)  # type: ignore[arg-type]
    assert {seen[4] for seen in grid.seen} == {7.0}
    assert strategy.round.send.keywords == {"timeout": 7.0}  # type: ignore[attr-defined]


def test_a_run_has_an_hour_for_each_message_unless_told_otherwise():
    grid = Watched(HandMade([A, T]))
    FedAvg().start(grid, initial(), 1)
    assert {seen[4] for seen in grid.seen} == {3600}


def test_a_method_may_evaluate_nothing():
    class Unseen(FedAvg):
        def evaluate_request(self, round):
            return None

    strategy = Unseen(warmup_rounds=1)
    strategy.start(HandMade([A, T]).grid(), initial(), 2)
    assert ["accuracy" in record for record in strategy.history] == [True, False]
    assert not any("evaluation-failed" in record for record in strategy.history)


def test_the_result_is_flowers():
    evaluated = []

    def own(server_round, arrays):
        evaluated.append((server_round, arrays["w"].numpy().tolist()))
        return MetricRecord({"own": float(server_round)}) if server_round != 1 else None

    strategy = FedAvg(min_sources=2, max_held_rounds=2)
    nodes = [A, ("source", "b", by_plan(B[2], {2})), T]
    result = strategy.start(HandMade(nodes).grid(), initial(), 2, evaluate_fn=own)
    assert [number for number, _ in evaluated] == [0, 1, 2]
    assert evaluated[0][1] == [1, 2]
    assert evaluated[1][1] == evaluated[2][1] == weights(result).tolist() != [1, 2]
    assert result.evaluate_metrics_serverapp == {0: {"own": 0.0}, 2: {"own": 2.0}}
    assert [record.get("server") for record in strategy.history] == [None, {"own": 2.0}]
    assert result.train_metrics_clientapp == {
        1: {"dropped": 0, "train-loss.a": 1.0, "train-loss.b": 1.0},
        2: {"dropped": 1, "train-loss.a": 1.0},
    }
    metrics = {"accuracy": 0.5, "loss": 1.0, "num-examples": 4}
    assert result.evaluate_metrics_clientapp == {1: metrics, 2: metrics}


def test_a_callback_ends_the_run_after_a_round_which_resumes_to_the_same_bits(tmp_path):
    asked = []

    def after_the_second(server_round, result):
        asked.append((server_round, sorted(result.train_metrics_clientapp), weights(result).tolist()))
        return server_round >= 2

    strategy = FedAvg(output=RunFolder(tmp_path))
    result = strategy.start(HandMade([A, T]).grid(), initial(), 4, should_stop=after_the_second)
    assert [(number, rounds) for number, rounds, _ in asked] == [(1, [1]), (2, [1, 2])]
    assert asked[-1][2] == weights(result).tolist()
    assert [record["round"] for record in strategy.history] == [1, 2]
    resumed = FedAvg(output=RunFolder(tmp_path, resume=True)).start(HandMade([A, T]).grid(), initial(), 4)
    whole = FedAvg().start(HandMade([A, T]).grid(), initial(), 4, should_stop=lambda *_: False)
    assert weights(resumed).tobytes() == weights(whole).tobytes()


@pytest.mark.parametrize("strategy", [FedRep(), Mixture()], ids=lambda strategy: type(strategy).__name__)
def test_a_callback_cannot_end_a_run_whose_last_round_differs(strategy):
    with pytest.raises(ConfigError, match=f"should_stop is given, but {type(strategy).__name__}.*leave it"):
        strategy.start(HandMade([A, T]).grid(), initial(), 4, should_stop=lambda *_: True)


def test_the_record_of_a_round():
    strategy = SourceOnly()
    strategy.start(HandMade([A, B, T]).grid(), initial(), 1)
    (record,) = strategy.history
    numbers = {"steps": 2, "train-loss": 1.0}
    received = record.pop("bytes-received")
    assert received == 2 * initial().count_bytes()
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


def test_the_seconds_of_a_round_are_of_its_parts(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def takes(seconds, answer):
        def slow(model, message):
            now[0] += seconds
            return answer(model, message)

        return slow

    class Slow(FedAvg):
        def aggregate(self, round, target, sources):
            now[0] += 4
            return super().aggregate(round, target, sources)

        def evaluate_request(self, round):
            now[0] += 8
            return super().evaluate_request(round)

    strategy = Slow()
    strategy.start(HandMade([("source", "a", takes(2, A[2])), T]).grid(), initial(), 1)
    assert strategy.history[0]["seconds"] == {"train": 2, "aggregate": 4, "evaluate": 8}


def test_with_fewer_sources_than_needed_the_round_is_held():
    nodes = [A, ("source", "b", by_plan(B[2], {2, 4})), T]
    strategy = FedAvg(min_sources=2, max_held_rounds=2)
    strategy.start(HandMade(nodes).grid(), initial(), 5)
    held = "1 usable replies of sources, at least 2 needed"
    assert [record["held"] for record in strategy.history] == [None, held, None, held, None]


def test_held_rounds_in_a_row_are_counted_across_a_resume(tmp_path):
    nodes = [A, ("target", "t", by_plan(T[2], {2, 3, 4}))]

    def start(rounds, resume):
        strategy = FedAvg(max_held_rounds=3, output=RunFolder(tmp_path, resume=resume))
        return strategy.start(HandMade(nodes).grid(), initial(), rounds)

    start(3, False)
    with pytest.raises(RunError, match="could not be updated for 3 rounds in a row"):
        start(6, True)
    assert len(RunFolder(tmp_path).read_rounds()) == 4
    start(6, True)
    assert RunFolder(tmp_path).load_checkpoint().held_rounds == 0


def test_a_run_that_is_complete_does_nothing_and_one_that_is_longer_is_refused(tmp_path):
    app = HandMade([A, T])
    whole = FedAvg(output=RunFolder(tmp_path)).start(app.grid(), initial(), 2)
    app.configs.clear()
    evaluated = []

    def again(rounds, arrays):
        strategy = FedAvg(output=RunFolder(tmp_path, resume=True))
        own = lambda number, arrays: evaluated.append(number)  # noqa: E731
        return strategy.start(app.grid(), arrays, rounds, evaluate_fn=own)

    assert weights(again(2, initial())).tobytes() == weights(whole).tobytes()
    with pytest.raises(ConfigError, match="has done 2 rounds, only 1 were asked for"):
        again(1, initial())
    with pytest.raises(ConfigError, match="checkpoint is of another model"):
        again(3, initial((1.0, 2.0, 3.0)))
    assert app.configs == evaluated == []


def test_a_run_of_another_method_with_the_same_settings_is_not_resumed(tmp_path):
    class Other(FedAvg):
        pass

    app = HandMade([A, T])
    FedAvg(output=RunFolder(tmp_path)).start(app.grid(), initial(), 1)
    with pytest.raises(ConfigError, match=r"is of another run .*'FedAvg'.*'Other'"):
        Other(output=RunFolder(tmp_path, resume=True)).start(app.grid(), initial(), 2)


def test_a_line_after_the_checkpoint_is_no_part_of_the_history(tmp_path):
    app = HandMade([A, T])
    FedAvg(output=RunFolder(tmp_path)).start(app.grid(), initial(), 2)
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3}\n')
    strategy = FedAvg(output=RunFolder(tmp_path, resume=True))
    strategy.start(app.grid(), initial(), 3)
    assert [record["round"] for record in strategy.history] == [1, 2, 3]
    assert "accuracy" in strategy.history[2]


class Arriving(LocalGrid):
    """A grid with one node more each time that it is asked."""

    def __init__(self, app):
        super().__init__(app.app, len(app.nodes))
        self.calls = 0

    def get_node_ids(self):
        self.calls += 1
        return list(super().get_node_ids())[: self.calls]


@pytest.mark.parametrize(("options", "calls"), [({"min_sources": 2}, 3), ({"wait_for": 4}, 4), ({}, 2)])
def test_it_waits_for_the_target_and_enough_sources_or_for_as_many_as_it_is_told(options, calls):
    grid = Arriving(HandMade([T, A, B, ("source", "c", A[2])]))
    strategy = FedAvg(wait_seconds=60, **options)
    strategy.connect(grid)
    assert grid.calls == len(strategy.roster.nodes) == calls
    strategy.start(grid, initial(), 1)
    assert grid.calls == calls + 1


def test_settings_say_what_defines_every_method():
    options = {"min_sources": 2, "warmup_rounds": 3, "learning_rate_factor": 0.5, "max_update_norm": 4.0}
    settings = TargetOnly(**options).settings()  # type: ignore[arg-type]
    assert {**settings, "limit": None} == {
        "min-sources": 2,
        "warmup-rounds": 3,
        "learning-rate-factor": 0.5,
        "limit": None,
    }
    assert "4.0" in settings["limit"]
    assert "limit" not in TargetOnly().settings()


@pytest.mark.parametrize("timeout", [0.0, -1.0, np.nan])
def test_a_query_timeout_that_cannot_work_is_refused(timeout):
    with pytest.raises(ConfigError, check=names("query_timeout")):
        FedAvg(query_timeout=timeout)


def test_a_warm_up_round_neither_waits_for_the_target_nor_evaluates_what_it_trained():
    nodes = [A, ("target", "t", fails)]
    strategy = FedAvgFT(warmup_rounds=1)
    strategy.start(HandMade(nodes, accuracy=0.25).grid(), initial(), 2)
    first, second = strategy.history
    assert (first["held"], first["accuracy"], first["target"]) == (None, 0.25, None)
    assert "accuracy-global" not in first
    assert second["held"] == "no usable reply of the target"
