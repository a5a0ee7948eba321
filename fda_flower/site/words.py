"""Refusals, and the words of a failure that may leave a site: none that depend on its data.

Whoever chooses a message could otherwise read data in the reasons of refusals: a sum that is too large, a
name in a column, a path. What a message or a configuration alone decides may be said.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, WARNING
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common import log

from fda_flower.errors import ConfigError, FdaError, RunError, printable
from fda_flower.site.asked import Asked
from fda_flower.site.config import RULES
from fda_flower.wire import protocol

if TYPE_CHECKING:
    from fda_flower.site.node import Site

KEPT = "this site cannot answer, and why is in its own log"
"""All that leaves of a failure after data have been read."""

TOLD = frozenset({"class-weights", "client", "message", "rows.power", "state", *RULES})
"""What an error may name at a site: settings, parts of the message, and entries of the node configuration, as
all whose names begin with ``dp-``."""

LONGEST = 1000
"""Characters of an error that leave a site."""

WITHHELD = "this site withholds what its app replies: the site's log says why"
"""All that leaves of an error, or a record that may not, at a site with the rule ``allow-records``."""

UNLOGGED = "the site cannot log its reply, and why is in its SuperNode's output"
"""The refusal of a reply that is not in the site's log."""

REFUSED_CODE = 6
"""Flower's error code for a refusal by a mod (``MOD_FAILED_PRECONDITION``)."""


class KeptError(RunError):
    """A failure whose reason stays at the site; its ``__cause__`` has it."""

    def __init__(self) -> None:
        super().__init__(KEPT)


class WithheldError(RunError):
    """A reply may not leave, nor may the reason, which has words of the app: the log has it."""


@contextmanager
def told() -> Iterator[None]:
    """Let the words of errors in the block leave, as it reads no data; but not of `own_files`."""
    try:
        yield
    except FdaError as error:
        error.may_leave = error.may_leave is not False
        raise


def may_leave(error: BaseException) -> bool:
    """Return whether the words of an error follow from the message and configurations alone."""
    if not isinstance(error, FdaError):
        return False
    if error.may_leave is not None:
        return error.may_leave
    return error.thing in TOLD or error.thing.startswith("dp-")


def words_of(error: Exception, site: "Site") -> str:
    """Return what a node says of an error: a site only what may leave."""
    if site.speaks or may_leave(error):
        return str(error) if isinstance(error, FdaError) else repr(error)
    return KEPT


@contextmanager
def kept(site: "Site") -> Iterator[None]:
    """Keep the words of errors in the block at a site, whose own log has them.

    Raises a `KeptError` in place of any other error there.
    """
    try:
        yield
    except Exception as error:
        if site.speaks or may_leave(error) or isinstance(error, KeptError):
            raise
        log(ERROR, "This site cannot answer", exc_info=error)
        raise KeptError from error


def unable(asked: Asked, error: ConfigError, by_rule: bool = False) -> Message:
    """Return the refusal of a site that its own configuration stops; its log has what may not leave."""
    words = words_of(error, asked.site)
    if words == KEPT:
        log(ERROR, "This site cannot answer: %s", error)
    return refusal(asked, words, by_rule)


class RefusalError(Error):
    """An error that this process makes, and whose reason has nothing of an app's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED_CODE, reason)


def shortened(reply: Message, message: Message) -> Message:
    """Return a reply whose error or problem has at most `LONGEST` characters."""
    if reply.has_error():
        reason = str(reply.error.reason or "")
        short = Error(reply.error.code, f"{reason[:LONGEST]}...")
        return reply if len(reason) <= LONGEST else Message(short, reply_to=message)
    info = protocol.settings_in(reply.content, protocol.INFO)
    if len(problem := str(info.get(protocol.PROBLEM, ""))) > LONGEST:
        info[protocol.PROBLEM] = f"{problem[:LONGEST]}..."
    return reply


def refusal(asked: Asked, reason: str, by_rule: bool = False) -> Message:
    """Return the reply that refuses: the node's ``problem`` to the role query, otherwise an error."""
    reason = printable(reason)
    log(WARNING, "This site refuses: %s", reason)
    if asked.message.metadata.message_type != protocol.ROLE_QUERY:
        return Message(RefusalError(reason), reply_to=asked.message)
    info: dict[str, str | bool] = {**asked.site.about(), protocol.PROBLEM: reason}
    if by_rule:
        info[protocol.REFUSED] = True
    return Message(RecordDict({protocol.INFO: ConfigRecord({**info})}), reply_to=asked.message)
