"""Ctrl-C and SIGTERM: one line that says what is done and how to resume, and the shell's exit code."""

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fda_flower.cli.output import out
from fda_flower.errors import FdaError, RunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 5.0
"""Seconds in which a second signal is ignored, while the first is handled."""


class _Stop:
    """The signal that arrived, and the command's last words."""

    number: int | None = None
    since: float = 0.0
    words: Callable[[], str] | None = None


@contextmanager
def stoppable() -> Iterator[None]:
    """End the block on a signal, with a line on standard error and the exit code 128 + its number.

    No traceback is shown, even if another exception has replaced the signal's `KeyboardInterrupt`.
    """
    before = {number: signal.signal(number, stop) for number in SIGNALS}
    _Stop.number, _Stop.words = None, None
    try:
        yield
    except BaseException as error:
        if _Stop.number is None:
            raise
        if isinstance(error, FdaError):
            print(f"Error: {error}", file=sys.stderr)
        _end(_Stop.number)
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, as the handler of a signal."""
    now = time.monotonic()
    if _Stop.number is not None and now < _Stop.since + PATIENCE:
        return
    _Stop.number, _Stop.since = number, now
    # Later failures only follow from the stop.
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def when_stopped(words: Callable[[], str]) -> None:
    """Set the text to print if the command is stopped: what is done, and how to resume."""
    _Stop.words = words


def this_command(*more: str, output: Path | None = None) -> str:
    """Return the current command line for a shell, with the flags `more` and `output` added if missing."""
    program, *given = sys.argv
    name = Path(program).name
    words = [name if shutil.which(name) == program else program, *given]
    if output is not None and not any(word == "--output" or word.startswith("--output=") for word in given):
        words += ["--output", str(output)]
    return shlex.join([*words, *(option for option in more if option not in given)])


def _end(number: int) -> None:
    words = f"Stopped. Start again with: {this_command()}" if _Stop.words is None else _Stop.words()
    print(words, file=sys.stderr, flush=True)
    out.error_object(RunError(words))
    code = 128 + number
    if any(not (t.daemon or t is threading.main_thread()) for t in threading.enumerate()):
        # A simulation's server still waits for replies.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
