"""A grid over a SuperLink that returns replies promptly; Flower's own polls every 3 seconds."""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fda_flower.wire.bundles import Bundles
from fda_flower.wire.internals import Run, pull_sooner, seconds_to_connect, survive_bad_replies

LEAST, MOST = 0.01, 3.0
"""Bounds on the polling interval in seconds; the upper one is Flower's."""

SHARE = 0.1
"""Polling interval as a share of the time waited so far."""


def _passed_on(method: str) -> Callable[..., Any]:
    """Make a method that calls the method of this name on the wrapped grid."""

    def call(self: "PollingGrid", *args: Any, **kwargs: Any) -> Any:
        return getattr(self._grid, method)(*args, **kwargs)

    call.__doc__ = getattr(Grid, method).__doc__
    return call


class PollingGrid(Grid):
    """A Flower `Grid` around another that polls at intervals of one tenth of the time waited so far.

    A round lasts at most a tenth longer than its slowest reply, and a long round polls the SuperLink no more
    often than Flower does. Missing parts of replies are retried sooner, too, in the whole process. A message
    travels in few objects, to and from nodes that support it (`fda_flower.wire.bundles`).

    Examples
    --------
    >>> from fda_flower.engines import LocalGrid, PollingGrid
    >>> from flwr.clientapp import ClientApp
    >>> list(PollingGrid(LocalGrid(ClientApp(), 2)).get_node_ids())
    [2, 3]
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._bundles = Bundles()
        pull_sooner()
        survive_bad_replies(grid)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages, and return the replies that arrive within the timeout, in seconds."""
        waiting = {each for each in self._grid.push_messages(self._bundles.outgoing(messages)) if each}
        del messages  # otherwise their models stay in memory until the replies arrive
        begin, replies = time.monotonic(), list[Message]()
        end = math.inf if timeout is None else begin + timeout
        while waiting:
            polled = time.monotonic()
            arrived = [self._bundles.incoming(reply) for reply in self._grid.pull_messages(waiting)]
            replies += arrived
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            # A poll blocks on a reply whose sender is gone; poll once more for replies that came meanwhile.
            if polled >= end:
                break
            if waiting:
                now = time.monotonic()
                # A poll without result only loads the SuperLink: wait at least as long as it took.
                pause = max(LEAST, SHARE * (now - begin), 0 if arrived else now - polled)
                time.sleep(max(0.0, min(pause, MOST, end - now)))
        return replies

    @property
    def seconds_to_connect(self) -> float:
        """Time that nodes may take to connect, by default."""
        return seconds_to_connect(self._grid)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._grid.run

    set_run = _passed_on("set_run")
    create_message = _passed_on("create_message")
    get_node_ids = _passed_on("get_node_ids")
    get_nodes = _passed_on("get_nodes")
    push_messages = _passed_on("push_messages")
    pull_messages = _passed_on("pull_messages")
