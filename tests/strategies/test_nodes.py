"""Who takes part: roles, data that must fit together, and nodes that are silent, late, away or refuse."""

import math
import re

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from handmade import HandMade, Watched, initial, moves
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import FADA, FedAvg, FedDA, FedDAJoint, FedGP
from fda_flower.strategies.nodes import ASK_AGAIN_SECONDS, Nodes

T, A, B, C = ("target", "t"), ("source", "a"), ("source", "b"), ("source", "c")
MISSING = "the data file 'b.csv' is missing"
PROBLEM = {"problem": MISSING}
REFUSES = {"problem": "the site allows fedavg alone", "refused": True}


def federation(*nodes, **info):
    return HandMade([(role, name, moves(0.1, role or "source", name)) for role, name in nodes], info=info)


class Changing(Watched):
    """A grid of which only some nodes are present; a node may never answer messages of some type."""

    def __init__(self, app, present, mute=None, kind="train"):
        super().__init__(app)
        self.present, self.mute, self.kind = present, mute, kind

    def get_node_ids(self):
        ids = list(super().get_node_ids())
        return [ids[i] for i in self.present]

    def pull_messages(self, message_ids):
        mute = (self.kind, self.mute and self.mute + 2)
        replies = super().pull_messages(message_ids)
        return [each for each in replies if (each.metadata.message_type, each.metadata.src_node_id) != mute]

    @property
    def queried(self):
        """The domain and the timeout of each role query."""
        return [(domain, timeout) for kind, domain, _, timeout in self.seen if kind == "query.role"]


def nodes_of(grid, **options):
    nodes = Nodes(**options)
    nodes.refresh(grid)
    return nodes


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_nodes_are_sorted_by_domain_whatever_their_ids_and_keep_what_they_tell():
    info = {"shape": [1, 8, 8], "examples": 50}
    nodes = nodes_of(federation(C, ("target", "b"), A, b=info).grid())
    assert [node.domain for node in nodes.sources] == ["a", "c"]
    assert nodes.target.info == {"domain": "b", "role": "target", **info}
    chosen = nodes_of(federation((None, "a"), (None, "b")).grid(), target="a")
    assert (chosen.target.domain, [node.domain for node in chosen.sources]) == ("a", ["b"])


def test_a_node_that_cannot_take_part_does_not_clash():
    nodes = nodes_of(federation(A, ("target", "b"), ("target", "c"), c=PROBLEM).grid())
    assert nodes.target.domain == "b"
    assert nodes.missing == [{"domain": "c", "reason": MISSING}]


@pytest.mark.parametrize(
    ("nodes", "info", "options", "thing", "value", "shown"),
    [
        ([], {}, {}, "role", "target", "none"),
        ([A, B], {}, {}, "role", "target", r"\('a', 'b'\)"),
        (
            [("target", "a"), ("target", "b")],
            {},
            {},
            "target",
            ["a", "b"],
            r"'a' \(node \d+\), 'b' \(node \d+\)$",
        ),
        ([A, ("target", "b"), C], {"b": PROBLEM}, {}, "target", "b", MISSING),
        ([A, ("target", "b"), ("target", "c")], {"b": PROBLEM}, {}, "target", "b", MISSING),
        ([T], {}, {}, "sources", 0, r"\(none\)"),
        ([T, B, B], {}, {}, "domain", "b", None),
        ([(None, "a"), (None, "b")], {}, {"target": "z"}, "domain", "z", r"\('a', 'b'\)"),
        # Flower simulates two nodes unless it is told.
        ([(None, "0"), (None, "1")], {}, {"target": "3"}, "domain", "3", "2 .*('0', '1').* num-supernodes=4"),
        ([(None, "0"), (None, "1")], {}, {"target": "z"}, "domain", "z", "num-supernodes=3"),
        ([T, A], {}, {"min_sources": 3}, "sources", 1, "num-supernodes=4"),
        ([T, A, B], {"b": PROBLEM}, {"min_sources": 2}, "sources", 1, f"b: {MISSING}"),
        ([A, (None, "2")], {"2": PROBLEM}, {}, "role", "target", f"2: {MISSING}"),
        (
            [T, A, B],
            {"a": REFUSES, "b": REFUSES},
            {},
            "site",
            ["a", "b"],
            r"each of 2 nodes \(a, b\) refuses the run: the site allows",
        ),
        (
            [T, ("Source", "a"), ("Target", "b")],
            {},
            {},
            "sources",
            0,
            "a: its role is 'Source'.*b: .*'Target'",
        ),
        ([T, A, C], {"a": {"shape": [3]}, "t": {"shape": [4]}}, {}, "shape", [[3], [4]], "'a' .*'t'"),
    ],
)
def test_nodes_that_cannot_make_a_run_are_an_error_before_any_training(
    nodes, info, options, thing, value, shown
):
    app = federation(*nodes, **info)
    with pytest.raises(RunError, match=shown, check=names(thing, value)):
        FedAvg(wait_seconds=0, **options).start(app.grid(), initial(), 1)
    assert app.configs == []


@pytest.mark.parametrize(
    ("thing", "a", "t", "shown"),
    [
        ("classes", 2, 3, "2 and 3; .*option 'classes'"),
        ("class-names", ["x", "y"], ["y", "z"], "'a' has x; only 't' has z;"),
        ("class-names", ["x", "y"], ["y", "x"], "x, y and y, x"),
        ("features", ["age", "sex", "pulse"], ["age"], "'a' has sex, pulse;"),
        ("features", ["age"], ["age", "sex"], "'t' has sex;"),
        ("columns", 3, 4, "3 and 4"),
        ("shape", [3], [4], r"\[3\] and \[4\]"),
    ],
)
def test_data_that_do_not_fit_are_told_apart_for_a_reader(thing, a, t, shown):
    with pytest.raises(RunError, match=shown, check=names(thing, [a, t])):
        nodes_of(federation(A, T, a={thing: a}, t={thing: t}).grid())


def test_of_data_that_do_not_fit_the_names_are_told_before_their_number():
    told = {"a": {"features": ["age"], "shape": [1]}, "t": {"features": ["age", "sex"], "shape": [2]}}
    with pytest.raises(RunError, check=names("features")):
        nodes_of(federation(A, T, **told).grid())


def test_nodes_that_tell_nothing_of_their_data_fit_all_others():
    assert len(nodes_of(federation(A, T, t={"shape": [3], "classes": 2}).grid()).connected) == 2


# Nodes that come, go, and are asked again


def test_while_the_target_is_away_the_model_holds_and_no_other_node_becomes_it():
    grid = Changing(federation(T, A, ("target", "b")), (0, 1))
    strategy = FedGP(wait_seconds=0, max_held_rounds=9)
    strategy.progress.on_round = lambda record: setattr(grid, "present", (1, 2))
    strategy.start(grid, initial(), 3)
    first, *later = strategy.history
    assert first["held"] is None
    for record in later:
        assert record["held"] == "no usable reply of the target"
        assert "accuracy" not in record
        (domain, reason), away = (tuple(each.values()) for each in record["missing"])
        assert (domain, "which is 't'" in reason) == ("b", True)
        assert away == ("t", "no heartbeat")


@pytest.mark.parametrize(
    ("late", "info", "says"),
    [
        (("target", "b"), {}, r"target.* 't' \(node 2\), 'b' \(node 4\)"),
        (("source", "a"), {}, "domain 'a'"),
        (B, {"shape": [4]}, r"'a' and 'b' .*shape: \[3\] and \[4\]"),
        (B, REFUSES, REFUSES["problem"]),
    ],
)
def test_a_node_that_comes_late_and_does_not_fit_or_refuses_is_left_out_with_the_reason(late, info, says):
    data = {"t": {"shape": [3]}, "a": {"shape": [3]}, "b": info}
    grid = Changing(federation(T, A, late, **data), (0, 1))
    strategy = FedGP(on_round=lambda record: setattr(grid, "present", (0, 1, 2)))
    strategy.start(grid, initial(), 3)
    assert [record["held"] for record in strategy.history] == [None] * 3
    assert [list(record["sources"]) for record in strategy.history] == [["a"]] * 3
    assert strategy.history[0]["missing"] == []
    for record in strategy.history[1:]:
        (left_out,) = record["missing"]
        assert left_out["domain"] == late[1]
        assert re.search(says, left_out["reason"])


@pytest.mark.parametrize(
    ("data", "nodes", "missing"),
    [
        ({"c": {"shape": [4]}, "b": {"shape": [3]}}, ["b", "t"], ["c"]),
        ({"c": PROBLEM, "b": PROBLEM}, ["t"], ["b", "c"]),
    ],
)
def test_late_nodes_are_taken_and_told_of_by_domain(data, nodes, missing):
    grid = Changing(federation(T, C, B, **data), (0,))
    known = nodes_of(grid)
    grid.present = (0, 1, 2)
    known.refresh(grid)
    assert [node.domain for node in known.connected] == nodes
    assert [left_out["domain"] for left_out in known.missing] == missing


def test_a_node_without_its_data_is_missing_until_it_is_mended_and_asked_again(clock, flower_log):
    app = federation(T, A, B, b=PROBLEM)
    grid = Changing(app, (0, 1, 2))

    def on_round(record):
        clock[0] += 0.4 * ASK_AGAIN_SECONDS
        app.info = {}

    strategy = FedGP(wait_seconds=0, on_round=on_round)
    strategy.start(grid, initial(), 5)
    assert [list(record["sources"]) for record in strategy.history] == [["a"]] * 3 + [["a", "b"]] * 2
    told = [{"domain": "b", "reason": MISSING}]
    assert [record["missing"] for record in strategy.history] == [told] * 3 + [[]] * 2
    assert [domain for domain, _ in grid.queried].count("b") == 2
    assert MISSING in flower_log.text


def test_nodes_left_out_for_one_reason_share_a_warning(flower_log):
    nodes_of(Changing(federation(T, A, B, C, a=PROBLEM, b=PROBLEM), (0, 1, 2, 3)))
    assert flower_log.messages == [f"each of 2 nodes (a, b) does not take part: {MISSING}"]


def problem(text):
    return RecordDict({"info": ConfigRecord({"problem": text})})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "ValueError: no disk (test_nodes.py, line "),
        (Error(1, ""), "an error without a reason"),
        (Error(1, None), "an error without a reason"),
        (RecordDict(), "its answer has no record 'info'"),
        (problem(""), "an error without a reason"),
        (problem("\nthe disk is gone\nand more"), "the disk is gone"),
        (problem("x" * 10**6), "x" * 999 + "…"),
    ],
)
def test_an_answer_that_is_none_keeps_its_node_out_with_the_reason(answer, reason):
    app = ClientApp()

    @app.query("role")
    def role(message, context):
        if answer is None:
            raise ValueError("no disk")
        return Message(answer, reply_to=message)

    nodes = nodes_of(LocalGrid(app, 1))
    (missing,) = nodes.missing
    assert (nodes.connected, missing["domain"]) == ([], "node 2")
    assert missing["reason"].startswith(reason)


def test_a_domain_is_shown_in_one_line_and_not_endlessly():
    forged = {"domain": "a\nFDA-RESULT 5\x1b[2J" + "x" * 1000, "problem": "no"}
    (missing,) = nodes_of(federation(T, A, a=forged).grid()).missing
    assert (missing["domain"].isprintable(), len(missing["domain"])) == (True, 100)


@pytest.mark.parametrize(
    "answer",
    [
        *({"examples": each} for each in (-5, True, 1 << 60, 1e9)),
        *({"domain": ["a"]}, {"test-examples": -1}, {"class-names": 5}, {"shape": "big"}, {"refused": 1}),
    ],
    ids=str,
)
def test_a_node_whose_answer_has_a_wrong_entry_is_left_out_and_the_entry_named(answer):
    nodes = nodes_of(federation(T, A, ("source", "b"), a=answer).grid())
    assert [node.domain for node in nodes.connected] == ["b", "t"]
    ((name, _),) = answer.items()
    assert f"its entry '{name}'" in nodes.missing[0]["reason"]


def test_names_of_classes_are_printable():
    (source,) = nodes_of(federation(T, A, a={"class-names": ["\x1b[2J", "ill"]}).grid()).sources
    assert source.info["class-names"] == [r"\x1b[2J", "ill"]


def test_a_client_without_a_role_query_is_left_out():
    assert nodes_of(LocalGrid(ClientApp(), 2)).connected == []


@pytest.mark.parametrize(
    ("strategy", "asks"),
    [
        (FedAvg(), {}),
        (FedGP(), {}),
        (FedGP(auto=True), {"target": "sketch"}),
        (FedGP(auto=True, batch_update_encoding="full"), {"target": "full"}),
        (FedGP(auto=True, aggregate_on="target"), {}),
        (FedGP(auto=True, estimate_at="start"), {"source": "sketch", "target": "sketch"}),
        (FedGP(auto=True, estimate_at="start", aggregate_on="target"), {"source": "sketch"}),
        (FedDA(auto=True), {"target": "norms"}),
        (FedDAJoint(), {"target": "norms"}),
        (FADA(), {"source": "features"}),
    ],
)
def test_the_role_query_tells_what_the_run_will_ask_of_single_batches(strategy, asks):
    grid = Watched(federation(T, A))
    strategy.connect(grid)
    assert [dict(content["asks"]) for _, _, content, _ in grid.seen] == [asks, asks]
    told = [dict(content["config"]) for _, _, content, _ in grid.seen]
    assert told == [{"server-round": 0}] * 2, "some mods read it"


# How long nodes have


class Arriving(Changing):
    """A grid whose nodes come at times of a clock; it has the seconds of each list of its nodes."""

    def __init__(self, app, clock, *times, **options):
        super().__init__(app, (), **options)
        self.clock, self.times, self.lists = clock, times, []

    def get_node_ids(self):
        self.lists.append(round(self.clock[0] - 100, 2))
        self.present = [i for i, time in enumerate(self.times) if self.lists[-1] >= time]
        return super().get_node_ids()


def test_while_waiting_the_nodes_are_listed_ten_times_a_second_and_later_once_until_a_deadline(clock):
    grid = Arriving(federation(T), clock, 0)
    (nodes := Nodes()).gather(grid, 2, 1, 1.05)
    assert (grid.lists[:2], grid.lists[-1], len(grid.lists), len(nodes.connected)) == ([0, 0.1], 1.1, 13, 1)
    Nodes().gather(grid := Arriving(federation(T), clock, 0), 2, 1, 60.0)
    *_, before, last = sorted({*grid.lists})
    assert last - before == pytest.approx(1)


def test_a_deployment_waits_for_the_target_and_enough_nodes_and_says_every_minute_for_whom(clock, flower_log):
    flower_log.set_level("INFO", "flwr")
    grid = Arriving(federation(A, B, T, C), clock, 0, 30, 7000.5, 7100)
    grid.seconds_to_connect = math.inf
    strategy = FedAvg(target="t", min_available_nodes=4)  # type: ignore[call-arg]
    strategy.connect(grid)
    assert [node.domain for node in strategy.nodes.connected] == ["a", "b", "c", "t"]
    lines = [line for line in flower_log.messages if line.startswith("Waiting for")]
    assert len(lines) == 118
    assert lines[0] == "Waiting for the target 't', 2 more nodes. Target: not connected. Sources: a, b"
    assert lines[-1] == "Waiting for 1 more node. Target: t. Sources: a, b"


@pytest.mark.parametrize("options", [{}, {"wait_for": 9}, {"target": "z"}])
def test_a_simulation_has_all_its_nodes_at_once_and_waits_for_nobody(options, clock):
    grid = Arriving(federation(A, B), clock, 0, 0)
    with pytest.raises(RunError, match="num-supernodes" if "target" in options else "role"):
        FedAvg(**options).connect(grid)
    assert {*grid.lists} == {0}


@pytest.mark.parametrize("options", [{"target": "z"}, {}, {"min_sources": 3, "target": "a"}])
def test_the_error_of_a_deployment_whose_wait_is_over_names_what_waits_longer(options, clock):
    grid = Arriving(federation(A, B), clock, 0, 0)
    grid.seconds_to_connect = math.inf
    with pytest.raises(RunError, match=r"wait_for.*wait_seconds") as error:
        FedAvg(wait_seconds=90, **options).connect(grid)
    assert "simulation" not in str(error.value)
    assert grid.lists[-1] == pytest.approx(90, abs=1)


@pytest.mark.parametrize(
    ("nodes", "info", "shown"),
    [((A, B, T), {"b": PROBLEM}, MISSING), ((A, B, T, ("target", "c")), {}, "2 nodes claim")],
)
def test_a_node_to_repair_ends_the_wait_and_a_second_target_is_an_error_as_late_as_the_first(
    nodes, info, shown, clock
):
    grid = Arriving(federation(*nodes, **info), clock, 0, 5, 90, 90)
    grid.seconds_to_connect = math.inf
    with pytest.raises(RunError, match=shown):
        FedAvg().connect(grid)
    assert grid.lists[-1] < 92


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({"wait_seconds": 0.0}, [30.0]), ({"wait_seconds": 90.0, "query_timeout": 70.0}, [70.0] * 3)],
)
def test_at_the_start_nodes_have_the_query_timeout_or_at_most_a_minute_if_they_have_it_to_connect(
    options, seconds, clock
):
    grid = Changing(federation(T, A, B), (0, 1, 2), mute=1, kind="query.role")
    waiting(grid, clock)
    FedAvg(**options).connect(grid)
    assert [timeout for domain, timeout in grid.queried if domain == "a"] == seconds


def waiting(grid, clock):
    """Let the clock run to the timeout while a grid waits for a reply that does not come."""
    pull = grid.pull_messages

    def pull_messages(message_ids):
        clock[0] += grid.seen[-1][3] / 10
        return pull(message_ids)

    grid.pull_messages = pull_messages


def test_a_node_that_never_answers_costs_the_query_timeout_and_not_every_round(clock):
    grid = Changing(federation(T, A, B), (0, 1, 2), mute=1, kind="query.role")
    waiting(grid, clock)
    strategy = FedAvg(wait_seconds=5.0, query_timeout=50.0)
    strategy.start(grid, initial(), 4, timeout=1.0)
    asked = [timeout for domain, timeout in grid.queried if domain == "a"]
    assert asked == [50.0] * 3
    (missing,) = strategy.history[0]["missing"]
    assert (missing["domain"], missing["reason"]) == ("node 3", "it does not answer within 50 s")
    clock[0] += 61.0
    strategy.start(grid, initial(), 1, timeout=1.0)
    assert [timeout for domain, timeout in grid.queried if domain == "a"] == [50.0] * 4


def test_a_node_that_answers_late_takes_part_from_the_first_round(clock):
    class Late(Changing):
        def send_and_receive(self, messages, *, timeout=None):
            if len(self.queried) >= 4:
                self.mute = None
            return super().send_and_receive(messages, timeout=timeout)

    grid = Late(federation(T, A, B), (0, 1, 2), mute=2, kind="query.role")
    waiting(grid, clock)
    strategy = FedAvg(wait_seconds=5.0)
    strategy.start(grid, initial(), 1, timeout=1.0)
    assert [timeout for domain, timeout in grid.queried if domain == "b"] == [30.0] * 3
    assert (strategy.history[0]["held"], strategy.history[0]["missing"]) == (None, [])


def test_a_source_that_does_not_reply_is_left_out_after_two_rounds_for_a_while(clock):
    hour = 3600.0
    grid = Changing(federation(T, A, B), (0, 1, 2), mute=2)
    waiting(grid, clock)
    strategy = FedAvg(wait_seconds=0)
    strategy.start(grid, initial(), 4, timeout=hour)

    def silent(records):
        return [[drop["domain"] for drop in record["dropped"]] for record in records]

    assert silent(strategy.history) == [["b"], ["b"], [], []]
    assert [len(record["missing"]) for record in strategy.history] == [0, 0, 1, 1]
    assert "2 times in a row" in strategy.history[2]["missing"][0]["reason"]
    clock[0] += 11 * hour
    strategy.start(grid, initial(), 2, timeout=hour)
    assert silent(strategy.history[-2:]) == [["b"], []]


class Registered(Changing):
    """A grid whose nodes are registered by names."""

    def __init__(self, app, present, registered):
        super().__init__(app, present)
        self.registered = registered

    def get_nodes(self):
        return [
            NodeInfo(node_id=i, name=self.registered[i - self.FIRST_NODE])
            for i in self.get_node_ids()
            if i - self.FIRST_NODE < len(self.registered)
        ]


@pytest.mark.parametrize(
    ("registered", "by_name", "impostor"),
    [
        (["a", "b/1", "c"], True, None),
        (["a", "b%2F1", ""], True, None),
        (["a", "b/1", "a"], True, "a"),
        (["a", "b/1", "a"], False, None),
    ],
)
def test_a_node_registered_by_a_name_may_only_serve_its_domain(registered, by_name, impostor):
    data = federation(A, ("target", "b/1"), C)
    early, nodes = Registered(data, [0, 1, 2], registered), Nodes()
    nodes.by_name = by_name
    if impostor is None:
        nodes.refresh(early)
        assert [node.domain for node in nodes.connected] == ["a", "b/1", "c"]
        return
    with pytest.raises(RunError, check=names("node registered as", impostor)):
        nodes.refresh(early)
    late = Registered(data, [0, 1], registered)
    nodes = Nodes()
    nodes.by_name = True
    nodes.refresh(late)
    late.present = [0, 1, 2]
    nodes.refresh(late)
    (missing,) = nodes.missing
    assert missing["domain"] == "c"
    assert "registered as 'a'" in missing["reason"]


def test_a_node_that_has_not_told_its_domain_is_named_by_its_registration():
    grid = Registered(federation(A, T, ("source", "b/1"), C), [0, 1, 2, 3], ["a", "t", "b%2F1", ""])
    grid.kind, grid.mute = "query.role", 2
    nodes = Nodes(query_timeout=0.1)
    nodes.expected = ["a", "b/1", "t"]
    nodes.refresh(grid)
    assert nodes.missing == [{"domain": "b/1", "reason": "it does not answer within 0.1 s"}]


def test_a_domain_that_nobody_serves_is_away_until_its_node_connects_and_takes_part():
    grid = Changing(federation(T, A, B, b=PROBLEM), (0,))
    nodes = Nodes()
    nodes.expected = ["a", "b", "t"]

    def missing(*present):
        grid.present = present
        nodes.refresh(grid)
        return {each["domain"]: each["reason"] for each in nodes.missing}

    assert missing(0) == {"a": "no heartbeat", "b": "no heartbeat"}
    assert missing(0, 1, 2) == {"b": MISSING}
    assert missing(0, 2) == {"a": "no heartbeat", "b": MISSING}
    assert missing(0, 1) == {"b": "no heartbeat"}


def test_a_node_whose_rules_only_its_app_holds_is_named(flower_log):
    nodes_of(federation(A, ("target", "b"), C, a={"gated": False}, c={"gated": False}).grid())
    assert "each of 2 nodes (a, c) has rules" in flower_log.text
    assert "fda-supernode" in flower_log.text
