"""A run's results on their way back: marked lines in the run's log on the SuperLink.

Flower has no download of results (``flwr pull`` belongs to its enterprise edition), but every caller can read
the log. Since nodes' reports are logged too, each marked line carries the run's secret. The first marked line
reveals it, before any node is asked.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from flwr.serverapp import Grid

from fda_flower.errors import LONGEST_MESSAGE, FdaError, printable
from fda_flower.records.folder import CONFIG, RunFolder
from fda_flower.records.record import Record
from fda_flower.wire.internals import log_writer

MARK = "FDA-RESULT "
LINE = re.compile(rf"{MARK}([0-9a-f]{{32}}) (.*)")
"""The run's secret, and a value as JSON."""


@contextmanager
def sending(grid: Grid, folder: Path) -> Iterator[Callable[[Record], None]]:
    """Send a run's configuration, records and error to its submitter, but no model.

    Yields a function to call after each round is written to the folder. Raises a `RunError` in a simulation.
    """
    push, secret = log_writer(grid), secrets.token_hex(16)
    sent, rounds = "", 0

    def send(value: Record) -> None:
        # Other output may not end with a line feed.
        push(f"\n{MARK}{secret} {json.dumps(value)}\n")

    def update() -> None:
        nonlocal sent, rounds
        config = (folder / CONFIG).read_text(encoding="utf-8")
        if config != sent:
            send({"config": config})
            sent = config
        for line in islice(RunFolder(folder).read_lines(), rounds, None):
            send({"record": json.loads(line)})
            rounds += 1

    send({"folder": str(folder.absolute())})
    try:
        yield lambda record: update()
    except FdaError as error:
        send({"error": str(error)})
        raise
    update()
    send({"complete": rounds})


class Receiver:
    """Reads the results of a run from the lines of its log.

    `on_config` is called with the text of the run's ``config.json``, and again when it changes; `on_record`
    once with each round's line of ``rounds.jsonl``, in order.

    Attributes
    ----------
    folder : str
        The run's folder on the server.
    error : str or None
        Why the run failed.
    complete : bool
        Whether the run has ended and all its records have arrived.
    """

    def __init__(self, on_config: Callable[[str], None], on_record: Callable[[Record], None]) -> None:
        self.folder = ""
        self.error: str | None = None
        self.complete = False
        self._on_config = on_config
        self._on_record = on_record
        self._secret: str | None = None
        self._rounds = 0

    def read(self, line: str) -> None:
        """Read a line of the log; ignore foreign, damaged and repeated lines."""
        marked = LINE.match(line)
        if marked is None:
            return
        secret, text = marked.groups()
        self._secret = self._secret or secret
        if secret != self._secret:
            return
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        match value:
            case {"folder": str(folder)}:
                self.folder = printable(folder)
            case {"config": str(config)}:
                self._on_config(config)
            case {"record": {"round": int(number)} as record} if number == self._rounds + 1:
                self._rounds = number
                self._on_record(record)
            case {"complete": int(rounds)}:
                self.complete = rounds == self._rounds
            case {"error": str(error)}:
                self.error = printable(error, LONGEST_MESSAGE)
