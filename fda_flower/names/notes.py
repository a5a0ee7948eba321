"""Sentences that are logged: on data, and on names that packages add."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("fda_flower")

Note = Callable[[str], object]
"""Where a sentence goes on what is left out of data, or looks strange in them."""

_LOGGED, _ONCE = set[str](), list[set[str]]()


def logged() -> frozenset[str]:
    """Return the sentences that `warn` has logged in this process."""
    return frozenset(_LOGGED)


@contextmanager
def once(before: Iterable[str] = ()) -> Iterator[None]:
    """Log each sentence once in the block, and not at all those logged `before`, by a parent."""
    _ONCE.append({*before})
    try:
        yield
    finally:
        _ONCE.pop()


def warn(note: str) -> None:
    """Log a sentence."""
    if any(note in known for known in _ONCE):
        return
    for known in (_LOGGED, *_ONCE):
        known.add(note)
    logger.warning("%s", note)
