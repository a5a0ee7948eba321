"""One round: what is asked and required, what is committed, what a site tells of privacy, what is freed."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from handmade import A, B, HandMade, T, initial, moves, off_in, reply_of, weights
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.strategies import FedAvg, FedAvgFT, SourceOnly, round
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy
from fda_flower.strategies.replies import read_update
from fda_flower.wire.asked.personal import EvaluatePersonal, FineTune
from fda_flower.wire.protocol import BUDGET_CODE


def layers(*values):
    return {"w": np.array(values, np.float32)}


class Given(DomainAdaptationStrategy):
    """A method whose rounds come to what the test says, and which asks the target for what it says."""

    def __init__(self, *rounds, asked=(), **common):
        super().__init__(**common)
        self.rounds, self.asked = rounds, dict(asked)

    def train_request(self, node, round):
        request = super().train_request(node, round)
        return request.adding(**self.asked) if node.is_target else request

    def aggregate(self, round, target, sources):
        return self.rounds[round.number - 1]


def kept(strategy):
    return {name: model["w"].tolist() for name, model in strategy.state_dict().items()}


@pytest.mark.parametrize("overflows", ["model", "state"])
def test_a_round_that_overflows_commits_neither_the_model_nor_a_state_of_the_method(overflows):
    second = Aggregated(
        layers(np.inf if overflows == "model" else 5, 6),
        {"one": layers(7, 8), "two": layers(np.nan if overflows == "state" else 9, 10)},
    )
    strategy = Given(Aggregated(layers(1, 2), {"one": layers(3, 4)}), second)
    result = strategy.start(HandMade([A, T]).grid(), initial(), 2)
    assert "would hold NaN or infinity" in strategy.history[1]["held"]
    assert weights(result).tolist() == strategy.model["w"].tolist() == [1, 2]
    assert kept(strategy) == {"one": [3, 4]}


def test_states_that_a_round_does_not_name_stay_as_they_are():
    first = Aggregated(layers(1, 2), {"one": layers(3, 4), "two": layers(5, 6)})
    strategy = Given(first, Aggregated(layers(7, 8), {"two": layers(9, 10)}))
    strategy.start(HandMade([A, T]).grid(), initial(), 2)
    assert kept(strategy) == {"one": [3, 4], "two": [9, 10]}


# Requests


def reply_with(reply, **asked):
    strategy = Given(Aggregated(layers(1, 2)), asked=asked)
    strategy.start(HandMade([A, ("target", "t", reply)]).grid(), initial(), 1)
    return strategy.history[0]


def test_what_a_method_says_of_a_round_is_logged_and_recorded_if_the_model_is_taken(flower_log):
    said: dict[str, Any] = {
        "record": {"lam": 1},
        "clients": {"a": {"weight": 0.5, "fallback": "it lost its own"}},
        "warnings": ["the steps are short"],
    }
    strategy = Given(Aggregated(layers(1, 2), **said), Aggregated(layers(np.inf, 2), **said))
    strategy.start(HandMade([A, T]).grid(), initial(), 2)
    taken, held = strategy.history
    assert (taken["lam"], taken["sources"]["a"]["weight"]) == (1, 0.5)
    assert ("lam" in held, "weight" in held["sources"]["a"]) == (False, False)
    for line in ("Round 1: the steps are short", "Round 1: a new start of a: it lost its own"):
        assert line in flower_log.text
    assert "Round 2: the steps" not in flower_log.text


def test_an_entry_for_a_domain_without_a_reply_is_refused():
    strategy = Given(Aggregated(layers(1, 2), clients={"b": {"weight": 0.5}}))
    with pytest.raises(ConfigError, match="domain of a client's record 'b'"):
        strategy.start(HandMade([A, T]).grid(), initial(), 1)


@pytest.mark.parametrize("name", ["number", "entry"])
def test_a_reply_without_what_the_request_requires_is_dropped_with_the_remedy(name):
    def complete(model, message):
        content = reply_of(model, role="target", domain="t", number=1.0)
        content["info"]["entry"] = "x"
        return content

    assert reply_with(complete, requires={name: "buy one"})["dropped"] == []
    record = reply_with(T[2], requires={name: "buy one"})
    assert record["held"] == "no usable reply of the target"
    (dropped,) = record["dropped"]
    assert name in dropped["reason"]
    assert dropped["reason"].endswith(": buy one")


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("num-steps", {"steps": 0}),
        ("num-steps", {"rate": 0.0}),
        ("learning-rate", {"steps": 0}),
        ("learning-rate", {"rate": 0.0}),
        ("batch-size", {}),
        ("batch-size", {"batch-size": 0}),
    ],
)
def test_steps_rate_and_batch_size_are_required_above_zero(name, lacking):
    answer = moves(1.0, "target", "t", **lacking)
    (dropped,) = reply_with(answer, requires={name: "tell it"})["dropped"]
    assert dropped["reason"] == f"it has no '{name}': tell it"
    assert reply_with(answer)["dropped"] == []
    enough = moves(1.0, "target", "t", **{"batch-size": 8})
    assert reply_with(enough, requires={name: "tell it"})["dropped"] == []


def test_a_node_that_the_method_does_not_ask_is_left_out():
    class Half(FedAvg):
        def asks(self, node, round):
            return super().asks(node, round) and (node.is_target or round.number % 2 == 0)

    app, strategy = HandMade([A, T]), Half(warmup_rounds=1, max_held_rounds=9)
    strategy.start(app.grid(), initial(), 3)
    assert [(domain, config["server-round"]) for domain, config in app.configs] == [
        ("a", 1),
        ("a", 2),
        ("t", 2),
        ("t", 3),
    ]


def test_the_model_travels_under_the_name_that_is_given_and_a_reply_without_it_is_dropped():
    def empty(model, message):
        content = reply_of(model)
        del content["arrays"]
        return content

    class Renaming(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            for message in messages:
                if "model" in message.content:
                    message.content["arrays"] = message.content.pop("model")
            replies = list(super().send_and_receive(messages, timeout=timeout))
            for reply in replies:
                records = {{"arrays": "model"}.get(name, name): each for name, each in reply.content.items()}
                reply.content = RecordDict(records)
            return replies

    strategy = FedAvg(arrayrecord_key="model")
    app = HandMade([A, ("source", "b", empty), T])
    strategy.start(Renaming(app.app, 3), initial(), 1)
    (record,) = strategy.history
    assert list(record["sources"]) == ["a"]
    assert record["dropped"] == [{"domain": "b", "reason": "it has no ArrayRecord 'arrays'"}]
    assert record["held"] is None


@pytest.mark.parametrize(("warmup", "done", "number"), [(0, 0, 1), (2, 0, 3), (2, 1, 3), (2, 5, 6)])
def test_the_preview_is_of_the_first_round_that_is_the_methods(warmup, done, number):
    app = HandMade([A, T])
    strategy = FedAvgFT(warmup_rounds=warmup, learning_rate_factor=0.25)
    strategy.num_rounds = 9
    strategy.connect(app.grid())
    requests = strategy.preview(initial(), done, app.grid())
    told = [dict(request.config) for request in requests]
    assert told == [{"server-round": number, "rate-factor": 0.25}] * 3
    assert [request.question for request in requests] == [None, FineTune(), EvaluatePersonal()]
    assert app.configs == []
    sources = SourceOnly()
    sources.connect(app.grid())
    assert len(sources.preview(initial(), 0, app.grid())) == 2


def test_whatever_goes_wrong_while_a_reply_is_read_costs_its_node_the_round_not_the_run(monkeypatch):
    def odd(reply, node, *others):
        if node.domain == "a":
            raise LookupError("nothing here\nat all")
        return read_update(reply, node, *others)

    monkeypatch.setattr(round, "read_update", odd)
    strategy = FedAvg()
    strategy.start(HandMade([A, B, T]).grid(), initial(), 1)
    (record,) = strategy.history
    (drop,) = record["dropped"]
    assert (drop["domain"], r"LookupError('nothing here\nat all')" in drop["reason"]) == ("a", True)
    assert (record["held"], list(record["sources"])) == (None, ["b"])


def erring(errors, nodes=(T, A, B)):
    """A grid of nodes; some reply to train messages by an error."""
    made = HandMade(nodes)

    class Erring(ClientApp):
        def __call__(self, message, context):
            domain = made.nodes[context.node_config["partition-id"]][1]
            if message.metadata.message_type == "train" and domain in errors:
                return Message(errors[domain], reply_to=message)
            return made.app(message, context)

    return LocalGrid(Erring(), len(made.nodes))


@pytest.mark.parametrize(
    ("failing_ones", "told"),
    [
        ("abc", ["the reply of each of 3 nodes (a, b, c): error 2: off"]),
        ("abcdef", ["the reply of each of 6 nodes (a, b, c, d, e, ...): error 2: off"]),
        ("aB", ["the reply of a: error 2: off", "the reply of b: error 2: OFF"]),
    ],
)
def test_a_failure_in_common_is_logged_once_and_recorded_for_each(failing_ones, told, flower_log):
    domains = {each.lower(): "OFF" if each.isupper() else "off" for each in failing_ones}
    nodes = [("source", name, moves(1.0, domain=name)) for name in [*domains, "z"]]
    strategy, errors = FedAvg(), {domain: Error(2, why) for domain, why in domains.items()}
    strategy.start(erring(errors, [T, *nodes]), initial(), 2)
    assert flower_log.messages == [f"Round 1: dropped {each}" for each in told]
    dropped = [{"domain": name, "reason": f"error 2: {why}"} for name, why in domains.items()]
    assert [record["dropped"] for record in strategy.history] == [dropped] * 2


def test_a_failure_is_logged_again_only_for_another_reason_also_of_an_evaluation(flower_log):
    def fails(domain, config):
        raise OSError("on" if config["server-round"] == 3 else "off")

    strategy = FedAvg(max_held_rounds=9)
    strategy.start(HandMade([A, B, T], metrics=fails).grid(), initial(), 4)
    told = [line for line in flower_log.messages if line.startswith("Round")]
    assert [line.split(":")[0] for line in told] == ["Round 1", "Round 3", "Round 4"]
    assert all("no evaluation by t" in line for line in told)
    assert all("evaluation-failed" in record for record in strategy.history)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ((1.7e308, 1.7e308), 1.7e308),
        ((1.7e308, -1.7e308), 0.85e308),
        ((0.5, 0.1), 0.4),
        ((5e-324, 0.0), 5e-324),
    ],
)
def test_the_mean_of_a_projects_own_numbers_is_by_examples_and_never_overflows(values, mean):
    nodes = [
        ("source", name, moves(1.0, domain=name, examples=examples, auc=value))
        for name, examples, value in zip("ab", (30, 10), values, strict=True)
    ]
    result = FedAvg().start(HandMade([T, *nodes]).grid(), initial(), 1)
    assert result.train_metrics_clientapp[1]["auc"] == pytest.approx(mean, rel=1e-15)


def test_metrics_that_are_left_out_are_logged_once_for_all_nodes_that_send_them(flower_log):
    nodes = [("source", name, moves(1.0, domain=name, auc=np.nan)) for name in "ab"]
    metrics = {"accuracy": 0.5, "auc": np.inf, "f1": [0.5]}
    strategy = FedAvg()
    strategy.start(HandMade([T, *nodes], metrics=metrics).grid(), initial(), 2)
    assert [record["accuracy"] for record in strategy.history] == [0.5, 0.5]
    told = [line for line in flower_log.messages if line.startswith("Round")]
    assert [line.rpartition(":")[0] for line in told] == [
        "Round 1: left out of the reply of each of 2 nodes (a, b): 'auc'",
        "Round 1: left out of the reply of t: 'auc', 'f1'",
    ]


def test_after_a_first_model_or_with_a_node_away_a_failure_in_common_does_not_end_the_run():
    strategy = FedAvg(max_held_rounds=9)
    strategy.start(HandMade([off_in(each, 2) for each in (A, B, T)]).grid(), initial(), 3)
    assert [record["held"] is None for record in strategy.history] == [True, False, True]
    unavailable = FedAvg(max_held_rounds=9)
    unavailable.start(refusing(5, "abt"), initial(), 2)
    assert len(unavailable.history) == 2


def test_the_replies_are_freed_one_by_one_as_their_updates_are_made():
    size, clients = 250_000, 8
    model = {"w": np.zeros(size, np.float32)}
    peaks = []

    class Measuring(FedAvg):
        def aggregate_train(self, server_round, replies):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            result = super().aggregate_train(server_round, replies)
            peaks.append((tracemalloc.get_traced_memory()[1] - before) / (4 * size))
            return result

    nodes = [("source", f"s{i}", moves(1.0, domain=f"s{i}")) for i in range(clients - 1)]
    federation = HandMade([*nodes, ("target", "t", moves(1.0, "target", "t"))])
    tracemalloc.start()
    try:
        Measuring().start(federation.grid(), ArrayRecord({"w": Array(model["w"])}), 1)
    finally:
        tracemalloc.stop()
    # The replies hold 8 models. Each becomes an update in turn, and its reply is freed; the new model,
    # its record and the model itself come on top. Without the freeing it is 8 models more.
    assert peaks[0] < 6


# What sites tell of their privacy, and when a spent budget ends a run

BUDGET = "the privacy budget is spent"


def refusing(code, domains):
    """A grid of nodes, some of which refuse to train by an error reply."""
    return erring(dict.fromkeys(domains, Error(code, f"the site 'a' sends nothing: {BUDGET}")))


@pytest.mark.parametrize(
    ("code", "domains", "thing", "value"),
    [
        *((BUDGET_CODE, domains, "max-epsilon", list(domains)) for domains in ("t", "ab", "abt")),
        (2, "ab", "held rounds", 2),  # the words alone end no run
        (BUDGET_CODE, "a", "held rounds", 2),  # nor does one source
    ],
)
def test_a_run_ends_at_once_where_the_target_or_all_sources_have_spent_their_budget(
    code, domains, thing, value
):
    with pytest.raises(RunError, check=names(thing, value)):
        FedAvg(min_sources=2, max_held_rounds=2).start(refusing(code, domains), initial(), 3)


def record_of(epsilon, delta, **more):
    """The record of a round in which a source tells of its privacy."""

    def tells(model, message):
        content = A[2](model, message)
        content["info"] = ConfigRecord({"role": "source", "epsilon": epsilon, "delta": delta, **more})
        return content

    strategy = FedAvg()
    strategy.start(HandMade([T, ("source", "a", tells), B]).grid(), initial(), 1)
    return strategy.history[0]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-5.0, 1e-5), (1.0, 1e308), (np.inf, 1e-5), (np.nan, 0.1), (1.0, -1.0), (1, 0.1)]
)
def test_an_epsilon_is_recorded_unless_it_is_impossible_and_not_endlessly_what_it_does_not_cover(
    epsilon, delta
):
    assert "privacy" not in record_of(epsilon, delta)
    told = record_of(1.0, 1e-5, uncovered=["a\nb", *(f"m{i:03}" for i in range(1000))])["privacy"]["a"]
    assert told == {"epsilon": 1.0, "delta": 1e-5, "uncovered": [r"a\nb", *(f"m{i:03}" for i in range(99))]}
