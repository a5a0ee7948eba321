"""The words of a failure that may leave a site: none that depend on its data.

Whoever chooses a message could otherwise read data in the reasons of refusals: a sum that is too large, a
name in a column, a path. What a message or a configuration alone decides may be said.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from flwr.app import Context
from flwr.common import log

from fda_flower.errors import FdaError, RunError
from fda_flower.site.config import SiteConfig
from fda_flower.site.entries import RULES

KEPT = "this site cannot answer, and why is in its own log"
"""All that leaves of a failure after data have been read."""

TOLD = frozenset({"class-weights", "client", "message", "rows.power", "state", *RULES})
"""What an error may name at a site: settings, parts of the message, and entries of the node configuration, as
all whose names begin with ``dp-``."""


class KeptError(RunError):
    """A failure whose reason stays at the site; its ``__cause__`` has it."""

    def __init__(self) -> None:
        super().__init__(KEPT)


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


def words_of(error: Exception, context: Context) -> str:
    """Return what a node says of an error: a site only what may leave."""
    if speaks(context) or may_leave(error):
        return str(error) if isinstance(error, FdaError) else repr(error)
    return KEPT


def speaks(context: Context) -> bool:
    """Return whether a node says all: a simulated one, and a site that checks itself."""
    site = SiteConfig.of(context)
    return not site.is_site or site.checks_itself


@contextmanager
def kept(context: Context) -> Iterator[None]:
    """Keep the words of errors in the block at a site, whose own log has them.

    Raises a `KeptError` in place of any other error there.
    """
    try:
        yield
    except Exception as error:
        if speaks(context) or may_leave(error) or isinstance(error, KeptError):
            raise
        log(ERROR, "This site cannot answer", exc_info=error)
        raise KeptError from error
