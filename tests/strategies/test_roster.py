import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import FedAvg, FedGP
from fda_flower.strategies.roster import Roster


def federation(*nodes):
    return HandMade([(role, domain, moves(0.1, role or "source", domain)) for role, domain in nodes])


def test_nodes_are_sorted_by_domain_whatever_their_ids():
    roster = Roster()
    roster.refresh(federation(("source", "c"), ("target", "b"), ("source", "a")).grid())
    assert [node.domain for node in roster.sources] == ["a", "c"]
    assert roster.target.domain == "b"


def test_the_strategys_target_argument_decides():
    roster = Roster(target="a")
    roster.refresh(federation((None, "a"), (None, "b")).grid())
    assert roster.target.domain == "a"
    assert [node.domain for node in roster.sources] == ["b"]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([("source", "a"), ("source", "b")], r"no node with role 'target' among the connected ones \(a, b\)"),
        ([("target", "a"), ("target", "b")], "2 nodes claim to be the target.*'a'.*'b'"),
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
    asked = []

    class Counting(LocalGrid):
        def push_messages(self, messages):
            messages = list(messages)
            asked.extend(m for m in messages if m.metadata.message_type == "query.role")
            return super().push_messages(messages)

    app = federation(("target", "t"), ("source", "a"))
    FedAvg().start(Counting(app.app, 2), initial(), 3)
    assert len(asked) == 2


def test_a_source_that_comes_late_takes_part_and_one_that_leaves_does_not():
    class Changing(LocalGrid):
        present = (0, 1)

        def get_node_ids(self):
            ids = list(super().get_node_ids())
            return [ids[i] for i in self.present]

    app = federation(("target", "t"), ("source", "a"), ("source", "b"))
    grid = Changing(app.app, 3)
    seen = []

    def on_round(record):
        seen.append(sorted(record["sources"]))
        grid.present = ((0, 1, 2), (0, 2), (0, 2))[len(seen) - 1]

    FedGP(on_round=on_round).start(grid, initial(), 3)
    assert seen == [["a"], ["a", "b"], ["b"]]


def test_without_the_target_the_model_holds():
    class Leaving(LocalGrid):
        gone = False

        def get_node_ids(self):
            ids = list(super().get_node_ids())
            return ids[1:] if self.gone else ids

    app = federation(("target", "t"), ("source", "a"))
    grid = Leaving(app.app, 2)
    strategy = FedGP(on_round=lambda record: setattr(grid, "gone", True))
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
