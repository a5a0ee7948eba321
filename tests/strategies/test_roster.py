import logging
import re

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves
from naming import names

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import FedAvg, FedDA, FedDAJoint, FedGP
from fda_flower.strategies.roster import ASK_AGAIN_SECONDS, Roster


def federation(*nodes, **info):
    made = [(role, domain, moves(0.1, role or "source", domain)) for role, domain in nodes]
    return HandMade(made, info=info)


class Changing(LocalGrid):
    """A grid of which only some nodes are present; it counts what they are asked."""

    def __init__(self, app, present):
        super().__init__(app.app, len(app.nodes))
        self.present = present
        self.asked = []

    def get_node_ids(self):
        ids = list(super().get_node_ids())
        return [ids[i] for i in self.present]

    def push_messages(self, messages):
        messages = list(messages)
        kept = [m for m in messages if m.metadata.message_type == "query.role"]
        self.asked += [m.metadata.dst_node_id - 2 for m in kept]
        return super().push_messages(messages)


def test_nodes_are_sorted_by_domain_whatever_their_ids():
    roster = Roster()
    roster.refresh(federation(("source", "c"), ("target", "b"), ("source", "a")).grid())
    assert [node.domain for node in roster.sources] == ["a", "c"]
    assert roster.target.domain == "b"


def test_claims_and_differences_are_lists_for_a_reader():
    told = {"a": {"features": ["age", "sex", "pulse"]}, "t": {"features": ["age"]}}
    app = federation(("source", "a"), ("target", "t"), **told)
    with pytest.raises(RunError, match="only 'a' has sex, pulse; give all"):
        Roster().refresh(app.grid())


def test_the_strategys_target_argument_decides():
    roster = Roster(target="a")
    roster.refresh(federation((None, "a"), (None, "b")).grid())
    assert roster.target.domain == "a"
    assert [node.domain for node in roster.sources] == ["b"]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([], r"no node with role 'target' among the connected ones \(none\): give exactly one client"),
        ([("source", "a"), ("source", "b")], r"no node with role 'target' among the connected ones \(a, b\)"),
        ([("target", "a"), ("target", "b")], r"exactly one may: 'a' \(node \d+\), 'b' \(node \d+\)$"),
        ([("target", "a")], "0 sources are connected"),
        ([("target", "a"), ("source", "b"), ("source", "b")], "2 nodes serve the domain 'b'"),
    ],
)
def test_wrong_roles_are_errors_before_any_training(nodes, says):
    app = federation(*nodes)
    with pytest.raises(RunError, match=says):
        FedAvg(wait_seconds=0).start(app.grid(), initial(), 1)
    assert app.configs == []


def test_a_target_that_is_not_there_is_named():
    app = federation((None, "a"), (None, "b"))
    with pytest.raises(RunError, match="no node of domain 'z'"):
        FedAvg(target="z", wait_seconds=0).start(app.grid(), initial(), 1)


def test_nodes_are_asked_once():
    app = federation(("target", "t"), ("source", "a"))
    grid = Changing(app, (0, 1))
    strategy = FedAvg()
    strategy.connect(grid)
    strategy.start(grid, initial(), 3)
    assert sorted(grid.asked) == [0, 1]


def test_a_source_that_comes_late_takes_part_and_one_that_leaves_does_not():
    app = federation(("target", "t"), ("source", "a"), ("source", "b"))
    grid = Changing(app, (0, 1))
    seen = []

    def on_round(record):
        seen.append(sorted(record["sources"]))
        grid.present = ((0, 1, 2), (0, 2), (0, 2))[len(seen) - 1]

    FedGP(on_round=on_round).start(grid, initial(), 3)
    assert seen == [["a"], ["a", "b"], ["b"]]


def test_without_the_target_the_model_holds():
    app = federation(("target", "t"), ("source", "a"))
    grid = Changing(app, (0, 1))
    strategy = FedGP(on_round=lambda record: setattr(grid, "present", (1,)))
    strategy.start(grid, initial(), 2)
    assert strategy.history[0]["held"] is None
    assert strategy.history[1]["held"] == "no usable reply of the target"
    assert "accuracy" not in strategy.history[1]


def test_a_client_without_a_role_query_is_left_out():
    plain = ClientApp()

    @plain.train()
    def train(message: Message, context) -> Message:
        return Message(RecordDict(), reply_to=message)

    roster = Roster()
    roster.refresh(LocalGrid(plain, 2))
    assert roster.nodes == []


def test_waiting_for_nodes_has_a_deadline():
    app = federation(("target", "t"), ("source", "a"))
    roster = Roster()
    roster.refresh(app.grid(), expected=5, patience=0.05)
    assert len(roster.nodes) == 2


def test_while_waiting_the_nodes_are_listed_ten_times_a_second(monkeypatch):
    now, lists = [100.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    class Listing(Changing):
        def get_node_ids(self):
            lists.append(now[0])
            assert len(lists) < 20, "it never stops waiting"
            return super().get_node_ids()

    Roster().refresh(Listing(federation(("target", "t")), (0,)), expected=2, patience=1.05)
    assert len(lists) == 12
    assert lists[-1] == pytest.approx(101.1)


# What nodes tell of their data


def test_a_node_keeps_what_it_tells():
    roster = Roster()
    roster.refresh(federation(("target", "t"), t={"shape": [1, 8, 8], "examples": 50}).grid())
    told = {"domain": "t", "role": "target", "head": [], "shape": [1, 8, 8], "examples": 50}
    assert roster.target.info == told


@pytest.mark.parametrize(
    ("a", "t", "says"),
    [
        (
            {"shape": [3]},
            {"shape": [4]},
            r"'a' and 't' do not have the same shape: \[3\] and \[4\]; give all",
        ),
        ({"classes": 2}, {"classes": 3}, "the same classes: 2 and 3; .* by the data set's option 'classes'"),
        (
            {"classes": 2, "class-names": ["ant", "bee"]},
            {"classes": 2, "class-names": ["bee", "cat"]},
            "the same class names: only 'a' has ant; only 't' has cat; give all sites the same",
        ),
        (
            {"class-names": ["ant", "bee"]},
            {"class-names": ["bee", "ant"]},
            "the same class names: ant, bee and bee, ant",
        ),
        ({"features": ["age"], "shape": [1]}, {"features": ["age", "sex"], "shape": [2]}, "only 't' has sex"),
        ({"shape": "big"}, {"shape": [4]}, r"the same shape: big and \[4\]"),
        ({"features": ["age"]}, {"features": 3}, r"the same features: \['age'\] and 3"),
        ({"features": 3}, {"features": ["age"]}, r"the same features: 3 and \['age'\]"),
    ],
)
def test_nodes_whose_data_do_not_fit_each_other_are_an_error(a, t, says):
    app = federation(("source", "a"), ("target", "t"), ("source", "z"), a=a, t=t)
    with pytest.raises(RunError, match=says):
        FedAvg(wait_seconds=0).start(app.grid(), initial(), 1)
    assert app.configs == []


def test_nodes_that_tell_nothing_of_their_data_fit_all_others():
    roster = Roster()
    roster.refresh(federation(("source", "a"), ("target", "t"), t={"shape": [3], "classes": 2}).grid())
    assert len(roster.nodes) == 2


@pytest.mark.parametrize(
    ("late", "info", "says"),
    [
        (("target", "b"), {}, "2 nodes claim to be the target"),
        (("source", "a"), {}, "2 nodes serve the domain 'a'"),
        (("source", "b"), {"shape": [4]}, r"'a' and 'b' do not have the same shape: \[3\] and \[4\]"),
    ],
)
def test_a_node_that_comes_late_and_does_not_fit_is_left_out_with_the_reason(late, info, says):
    data = {"t": {"shape": [3]}, "a": {"shape": [3]}, "b": info}
    grid = Changing(federation(("target", "t"), ("source", "a"), late, **data), (0, 1))
    strategy = FedGP(on_round=lambda record: setattr(grid, "present", (0, 1, 2)))
    strategy.start(grid, initial(), 3)
    assert [record["held"] for record in strategy.history] == [None] * 3
    assert [list(record["sources"]) for record in strategy.history] == [["a"]] * 3
    assert strategy.history[0]["missing"] == []
    for record in strategy.history[1:]:
        (left_out,) = record["missing"]
        assert left_out["domain"] == late[1]
        assert re.search(says, left_out["reason"])


def test_of_two_late_nodes_that_clash_the_first_by_domain_takes_part():
    data = {"c": {"shape": [4]}, "b": {"shape": [3]}}
    grid = Changing(federation(("target", "t"), ("source", "c"), ("source", "b"), **data), (0,))
    roster = Roster()
    roster.refresh(grid)
    grid.present = (0, 1, 2)
    roster.refresh(grid)
    assert [node.domain for node in roster.nodes] == ["b", "t"]
    assert [left_out["domain"] for left_out in roster.missing] == ["c"]


# Nodes that cannot take part


PROBLEM = {"problem": "the data file 'b.csv' is missing"}


def test_a_source_without_its_data_is_missing_in_the_records_and_the_run_goes_on(caplog):
    app = federation(("target", "t"), ("source", "a"), ("source", "b"), b=PROBLEM)
    strategy = FedGP(wait_seconds=0)
    with caplog.at_level(logging.WARNING, "flwr"):
        strategy.start(app.grid(), initial(), 2)
    assert [list(record["sources"]) for record in strategy.history] == [["a"]] * 2
    for record in strategy.history:
        assert record["missing"] == [{"domain": "b", "reason": "the data file 'b.csv' is missing"}]
    assert "b does not take part: the data file 'b.csv' is missing" in caplog.text


def test_missing_nodes_are_sorted_by_domain():
    nodes = ("source", "c"), ("target", "t"), ("source", "a"), ("source", "b")
    roster = Roster()
    roster.refresh(federation(*nodes, c=PROBLEM, a=PROBLEM).grid())
    assert [left_out["domain"] for left_out in roster.missing] == ["a", "c"]
    grid = Changing(federation(*nodes, c=PROBLEM, a=PROBLEM), (0, 1))
    roster = Roster()
    roster.refresh(grid)
    grid.present = (0, 1, 2)
    roster.refresh(grid)
    assert [left_out["domain"] for left_out in roster.missing] == ["a", "c"]


def test_too_few_sources_are_an_error_with_what_keeps_the_others_out():
    app = federation(("target", "t"), ("source", "a"), ("source", "b"), b=PROBLEM)
    with pytest.raises(
        RunError, match=r"1 sources .*at least 2 .*keeps nodes out \(b: the data file 'b.csv' is missing\)"
    ):
        FedGP(min_sources=2, wait_seconds=0).start(app.grid(), initial(), 2)


@pytest.mark.parametrize("other", ["source", "target"])
def test_a_target_without_its_data_is_an_error_with_the_reason(other):
    app = federation(("source", "a"), ("target", "b"), (other, "c"), b=PROBLEM)
    with pytest.raises(RunError, check=names("target", "b")):
        FedGP(wait_seconds=0).start(app.grid(), initial(), 2)
    assert app.configs == []


def test_a_target_that_cannot_tell_its_role_is_an_error_with_the_reason():
    app = federation(("source", "a"), (None, "2"), **{"2": PROBLEM})
    with pytest.raises(
        RunError, match=r"no node with role 'target' .*\(2: the data file 'b.csv' is missing\)"
    ):
        FedGP(wait_seconds=0).start(app.grid(), initial(), 2)


def test_an_error_reply_tells_its_reason_in_one_line():
    failing = ClientApp()

    @failing.query("role")
    def role(message, context):
        raise ValueError("no disk")

    roster = Roster()
    roster.refresh(LocalGrid(failing, 1))
    assert roster.missing == [{"domain": "node 2", "reason": "ValueError('no disk')"}]


@pytest.mark.parametrize("reason", [None, ""])
def test_an_error_reply_without_a_reason_keeps_its_node_out(reason):
    silent = ClientApp()

    @silent.query("role")
    def role(message, context):
        return Message(Error(1, reason), reply_to=message)

    roster = Roster()
    roster.refresh(LocalGrid(silent, 1))
    assert roster.nodes == []
    assert roster.missing == [{"domain": "node 2", "reason": "an error without a reason"}]


def test_the_reason_of_an_error_is_cut_off_too():
    failing = ClientApp()

    @failing.query("role")
    def role(message, context):
        raise ValueError("no " * 10**5)

    roster = Roster()
    roster.refresh(LocalGrid(failing, 1))
    assert len(roster.missing[0]["reason"]) == 1000


def test_a_reason_is_cut_off_where_it_gets_long():
    roster = Roster()
    roster.refresh(federation(("source", "a"), a={"problem": "no " * 10**6}).grid())
    (told,) = roster.missing
    assert len(told["reason"]) == 1000


def test_a_node_is_asked_again_after_a_while_and_takes_part_when_it_is_mended(monkeypatch):
    app = federation(("target", "t"), ("source", "a"), ("source", "b"), b=PROBLEM)
    grid = Changing(app, (0, 1, 2))
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def on_round(record):
        now[0] += 0.4 * ASK_AGAIN_SECONDS
        app.info = {}

    strategy = FedGP(wait_seconds=0, on_round=on_round)
    strategy.start(grid, initial(), 5)
    assert [list(record["sources"]) for record in strategy.history] == [["a"]] * 3 + [["a", "b"]] * 2
    assert [len(record["missing"]) for record in strategy.history] == [1, 1, 1, 0, 0]
    assert grid.asked.count(2) == 2


@pytest.mark.parametrize("problem", ["", "\nthe disk is gone\nand more"])
def test_a_problem_keeps_its_node_out_whatever_its_text(problem):
    roster = Roster()
    nodes = federation(("target", "t"), ("source", "a"), ("source", "b"), b={"problem": problem})
    roster.refresh(nodes.grid())
    assert [node.domain for node in roster.sources] == ["a"]
    (missing,) = roster.missing
    assert missing["reason"] == (problem.strip().splitlines() or ["an error without a reason"])[0]


FULL = {"source": "full", "target": "full"}
REFUSES = {"problem": "the site allows fedavg alone", "refused": True}


def test_a_run_that_a_site_refuses_ends_before_its_first_round():
    app = federation(("target", "t"), ("source", "a"), ("source", "b"), a=REFUSES, b=REFUSES)
    says = "a site refuses the run: 'a': the site allows fedavg alone; 'b': .*; change the run, or take the"
    with pytest.raises(RunError, match=says):
        FedAvg().start(app.grid(), initial(), num_rounds=1)
    assert app.configs == []


def test_a_site_that_refuses_later_is_left_out():
    app = federation(("target", "t"), ("source", "a"), ("source", "b"), b=REFUSES)
    grid, roster = Changing(app, [0, 1]), Roster()
    roster.refresh(grid)
    grid.present = [0, 1, 2]
    roster.refresh(grid)
    assert [node.domain for node in roster.nodes] == ["a", "t"]
    assert roster.missing == [{"domain": "b", "reason": "the site allows fedavg alone"}]


@pytest.mark.parametrize(
    ("strategy", "asks"),
    [
        (FedAvg(), {}),
        (FedGP(), {}),
        (FedGP(auto=True), {"target": "sketch"}),
        (FedGP(auto=True, batch_update_encoding="full"), {"target": "full"}),
        (FedGP(auto=True, aggregate_on="target"), {}),
        (FedGP(auto=True, estimate_at="start"), {"source": "sketch", "target": "sketch"}),
        (FedGP(auto=True, estimate_at="start", gradient_encoding="full"), FULL),
        (FedGP(auto=True, estimate_at="start", aggregate_on="target"), {"source": "sketch"}),
        (FedDA(auto=True), {"target": "norms"}),
        (FedDAJoint(), {"target": "norms"}),
    ],
)  # fmt: skip
def test_the_role_query_tells_what_the_run_will_ask_of_single_batches(strategy, asks):
    told = []

    def watch(message, context, call_next):
        if message.metadata.message_type == "query.role":
            told.append(dict(message.content["asks"]))
        return call_next(message, context)

    nodes = [("target", "t", moves(0.1, "target", "t")), ("source", "a", moves(0.1))]
    strategy.connect(HandMade(nodes, mods=[watch]).grid())
    assert told == [asks, asks]


def test_a_domain_is_shown_in_one_line_and_not_endlessly(caplog):
    forged = "a\nFDA-RESULT 5\x1b[2J" + "x" * 1000
    roster = Roster()
    roster.refresh(federation(("target", "t"), ("source", "a"), a={"domain": forged, "problem": "no"}).grid())
    (missing,) = roster.missing
    assert missing["domain"].isprintable()
    assert len(missing["domain"]) == 100


def test_no_other_node_becomes_the_target_while_that_is_away():
    grid = Changing(federation(("target", "t"), ("source", "a"), ("target", "b")), (0, 1))
    strategy = FedGP(wait_seconds=0, max_held_rounds=9)
    strategy.progress.on_round = lambda record: setattr(grid, "present", (1, 2))
    strategy.start(grid, initial(), 3)
    assert [record["held"] is None for record in strategy.history] == [True, False, False]
    (missing,) = strategy.history[-1]["missing"]
    assert (missing["domain"], "which is 't'" in missing["reason"]) == ("b", True)


class Mute(Changing):
    """Its node 2 never replies to a train message."""

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        return [
            reply
            for reply in replies
            if (reply.metadata.message_type, reply.metadata.src_node_id - 2) != ("train", 2)
        ]


def test_a_source_that_does_not_reply_is_left_out_after_two_rounds_for_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    trains, pulls = 3600.0, Mute.pull_messages

    def wait(self, message_ids):
        now[0] += trains / 100  # the engine asks again and again, until the timeout
        return pulls(self, message_ids)

    monkeypatch.setattr(Mute, "pull_messages", wait)
    app = federation(("target", "t"), ("source", "a"), ("source", "b"))
    strategy = FedAvg(wait_seconds=0)
    strategy.start(Mute(app, (0, 1, 2)), initial(), 4, timeout=trains)
    silent = [[drop["domain"] for drop in record["dropped"]] for record in strategy.history]
    assert silent == [["b"], ["b"], [], []]
    assert [len(record["missing"]) for record in strategy.history] == [0, 0, 1, 1]
    assert "2 times in a row" in strategy.history[2]["missing"][0]["reason"]

    now[0] += 11 * trains
    strategy.start(Mute(app, (0, 1, 2)), initial(), 2, timeout=trains)
    silent = [[drop["domain"] for drop in record["dropped"]] for record in strategy.history[-2:]]
    assert silent == [["b"], []]
