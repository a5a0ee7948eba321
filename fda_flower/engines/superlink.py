"""Replies as soon as they are there, where Flower's grid over a SuperLink looks for them every 3 seconds."""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fda_flower.wire.bundles import Bundles
from fda_flower.wire.internals import Run, pull_sooner, survive_bad_replies

LEAST, MOST = 0.01, 3.0
"""Seconds between two looks, at least and at most; the latter is Flower's own."""

SHARE = 0.1
"""Share of the time that has passed after which the next look is due."""


def _passed_on(method: str) -> Callable[..., Any]:
    """Make a method that calls the other grid's of that name."""

    def call(self: "PromptGrid", *args: Any, **kwargs: Any) -> Any:
        return getattr(self._grid, method)(*args, **kwargs)

    call.__doc__ = getattr(Grid, method).__doc__
    return call


class PromptGrid(Grid):
    """A Flower `Grid` around another, which looks for replies after a tenth of the time that they have taken.

    So a round lasts at most a tenth longer than its slowest reply, and a long one asks the SuperLink no more
    often than Flower does. In this whole process, parts of replies are asked for again sooner, too. All
    arrays of a message travel as one, to and from nodes that can take them apart (`fda_flower.wire.bundles`).

    Examples
    --------
    >>> from fda_flower.engines import LocalGrid, PromptGrid
    >>> from flwr.clientapp import ClientApp
    >>> list(PromptGrid(LocalGrid(ClientApp(), 2)).get_node_ids())
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
        """Send messages, and return the replies that are there within the timeout, in seconds."""
        waiting = set(self._grid.push_messages(self._bundles.outgoing(messages)))
        del messages  # else their models would stay in memory until the replies are there
        begin, replies = time.monotonic(), list[Message]()
        end = math.inf if timeout is None else begin + timeout
        while waiting:
            looked = time.monotonic()
            found = [self._bundles.incoming(reply) for reply in self._grid.pull_messages(waiting)]
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            # A look waits for a reply whose sender is gone; others may have come since it began.
            if looked >= end:
                break
            if waiting:
                now = time.monotonic()
                # A look that found nothing has only kept the SuperLink busy.
                pause = max(LEAST, SHARE * (now - begin), 0 if found else now - looked)
                time.sleep(max(0.0, min(pause, MOST, end - now)))
        return replies

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
