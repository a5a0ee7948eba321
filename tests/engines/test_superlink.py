"""A grid that looks for replies soon."""

import pytest
from flwr.app import Message, RecordDict
from handmade import HandMade, moves

from fda_flower.engines import LocalGrid, PollingGrid, superlink
from fda_flower.wire.internals import empty_run, task_identity

NODES = [("source", name, moves([0.5, 0.25], domain=name)) for name in "abc"]


class Clock:
    """Time that passes only while somebody sleeps, or looks."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Slow(LocalGrid):
    """A grid whose first reply is there after `seconds`, and the others as many seconds later each."""

    def __init__(self, clock, seconds, look=0.0):
        super().__init__(HandMade(NODES).app, 3)
        self.clock, self.seconds, self.look, self.pulls = clock, seconds, look, 0

    def push_messages(self, messages):
        found = list(super().push_messages(messages))
        self.due = {each: self.clock.now + self.seconds * (i + 1) for i, each in enumerate(found)}
        return found

    def pull_messages(self, message_ids):
        self.pulls += 1
        self.clock.now += self.look
        return super().pull_messages([each for each in message_ids if self.due[each] <= self.clock.now])


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(superlink, "time", clock)
    return clock


def ask(grid, timeout=None):
    with task_identity():
        messages = [Message(RecordDict(), node, "query.role") for node in grid.get_node_ids()]
        return list(grid.send_and_receive(messages, timeout=timeout))


@pytest.mark.parametrize("seconds", [0.0, 0.02, 1.0, 20.0])
def test_replies_are_there_at_most_a_tenth_or_3_seconds_late(clock, seconds):
    assert len(ask(PollingGrid(Slow(clock, seconds)))) == 3
    assert 3 * seconds <= clock.now <= 3 * seconds + min(3 * seconds * 0.1 + 0.01, 3)


def test_the_longer_it_takes_the_rarer_are_the_looks(clock):
    ask(PollingGrid(Slow(clock, 100.0)))
    assert clock.slept == sorted(clock.slept)
    assert (clock.slept[0], clock.slept[-1]) == (0.01, 3.0)
    assert len(clock.slept) < 170


def test_looks_that_find_nothing_take_at_most_half_of_the_time(clock):
    grid = Slow(clock, 1.6, look=0.5)
    ask(PollingGrid(grid))
    # Looks end at 0.5, 1.5, 2.5 (finds one), 3.25 (another), 3.825, 4.825 and so on.
    assert clock.slept[:3] == pytest.approx([0.5, 0.5, 0.25])
    assert grid.pulls <= 7


def test_replies_after_the_timeout_are_left(clock):
    assert len(ask(PollingGrid(Slow(clock, 1.0)), timeout=2.05)) == 2
    assert clock.now == pytest.approx(2.05)


def test_a_look_that_takes_longer_than_the_timeout_is_followed_by_another(clock):
    """Flower's looks wait until a reply is whole, or its sender is given up, and bring the others late."""
    for seconds, pulls in ((1.0, 1), (2.0, 2)):
        grid = Slow(clock, seconds, look=5.0)
        assert len(ask(PollingGrid(grid), timeout=4.0)) == 3
        assert grid.pulls == pulls


def test_everything_else_is_the_grids_own(in_a_run):
    grid, run = LocalGrid(HandMade(NODES).app, 3), empty_run()
    wrapped = PollingGrid(grid)
    assert list(wrapped.get_node_ids()) == [each.node_id for each in wrapped.get_nodes()] == [2, 3, 4]
    assert wrapped.run is grid.run
    wrapped.set_run(run)
    assert grid.run is run
    message = wrapped.create_message(RecordDict(), "query.role", 3, group_id="1")
    (pushed,) = wrapped.push_messages([message])
    (reply,) = wrapped.pull_messages([pushed])
    about = reply.metadata
    assert (about.reply_to_message_id, about.src_node_id, message.metadata.group_id) == (pushed, 3, "1")
