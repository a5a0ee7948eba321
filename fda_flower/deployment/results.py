"""A run's results on their way back: marked lines in the run's log on the SuperLink.

Flower has no download of results (``flwr pull`` is for its enterprise edition), so they take the way that
every caller has: the log, over the same connection that submits runs. What nodes report is logged too, so
each marked line has a secret of the run. The first one tells it, before any node is asked.
"""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.serverapp import Grid

from fda_flower.errors import LONGEST_MESSAGE, FdaError, RunError, printable
from fda_flower.flower_internals import log_writer
from fda_flower.records import Record

FILES = ("config.json", "rounds.jsonl", "chain.jsonl", "checkpoint", "checkpoint-selected")
"""Of a run's folder, in the order in which they may be replaced one by one."""
MARK = "FDA-RESULT "
PIECE = 768 * 1024
"""Bytes of a file in one line, before base64."""
LIMIT = 64 * 1024 * 1024
"""Bytes of a file that is sent at all: the SuperLink keeps its log in its database."""
LINE = re.compile(rf"{MARK}([0-9a-f]{{32}}) (.*)")
"""The run's secret, and a value as JSON."""


class Sender:
    """Writes the results of a run into the run's log.

    Parameters
    ----------
    push : callable
        Takes text for the log.
    """

    def __init__(self, push: Callable[[str], None]) -> None:
        self._push = push
        self._secret = secrets.token_hex(16)
        self.rounds = 0
        self._send({})

    def record(self, record: Record) -> None:
        """Send a round's record."""
        self._send({"record": record})
        self.rounds += 1

    def error(self, message: str) -> None:
        """Send why the run cannot go on."""
        self._send({"error": message})

    def complete(self) -> None:
        """Send that the run has come to its end, and all its results were sent."""
        self._send({"complete": True})

    def files(self, folder: Path) -> None:
        """Send the files of a run's folder, and at last their checksums; too large ones are only named."""
        sums, kept = {}, {}
        for name in FILES:
            path = folder / name
            if not path.exists():
                continue
            if path.stat().st_size > LIMIT:
                kept[name] = str(path.absolute())
                continue
            data = path.read_bytes()
            for piece, start in enumerate(range(0, len(data), PIECE)):
                text = base64.b64encode(data[start : start + PIECE]).decode()
                self._send({"file": name, "piece": piece, "data": text})
            sums[name] = hashlib.sha256(data).hexdigest()
        self._send({"sha256": sums, "kept": kept})

    def _send(self, value: Record) -> None:
        # What others print may not end with its line.
        self._push(f"\n{MARK}{self._secret} {json.dumps(value)}\n")


@contextmanager
def sending(grid: Grid, folder: Path) -> Iterator[Callable[[Record], None]]:
    """Send a run's results to its submitter: each round's record, an error, and the files at the end.

    Parameters
    ----------
    grid : Grid
        That of a run on a SuperLink.
    folder : Path
        The run's folder on the server.

    Yields
    ------
    callable
        To be called with each round's record.

    Raises
    ------
    RunError
        If the grid is that of a simulation.
    """
    sender = Sender(log_writer(grid))
    try:
        yield sender.record
    except Exception as error:
        if isinstance(error, FdaError):
            sender.error(str(error))
        # A folder that was refused is another run's.
        if sender.rounds:
            sender.files(folder)
        raise
    sender.files(folder)
    sender.complete()


class Receiver:
    """Reads the results of a run from the lines of the run's log.

    Parameters
    ----------
    on_record : callable
        Called once with each round's record.

    Attributes
    ----------
    error : str or None
        Why the run could not go on.
    kept : dict[str, str]
        Files that stayed on the server, by name: their path there.
    complete : bool
        Whether the run has come to its end, and all its results were sent.
    """

    def __init__(self, on_record: Callable[[Record], None]) -> None:
        self.error: str | None = None
        self.kept: dict[str, str] = {}
        self.complete = False
        self._on_record = on_record
        self._secret: str | None = None
        self._records: dict[int, str] = {}
        self._pieces: dict[str, dict[int, bytes]] = {name: {} for name in FILES}
        self._sums: dict[str, str] | None = None

    def read(self, line: str) -> None:
        """Read a line of the log; lines of others, damaged and repeated ones are ignored.

        Raises
        ------
        RunError
            If a line contradicts one before.
        """
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
            case {"record": {"round": int(number)} as record} if number > 0:
                if number not in self._records:
                    self._records[number] = text
                    self._on_record(record)
                elif self._records[number] != text:
                    raise _contradiction(f"round {number}")
            case {"file": str(name), "piece": int(piece), "data": str(data)} if name in FILES:
                self._take(name, piece, data)
            case {"sha256": dict(sums), "kept": dict(kept)}:
                self._sums = sums
                self.kept = {name: str(kept[name]) for name in FILES if name in kept}
            case {"complete": True}:
                self.complete = True
            case {"error": str(error)}:
                self.error = printable(error, LONGEST_MESSAGE)

    def _take(self, name: str, piece: int, text: str) -> None:
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            return
        if self._pieces[name].setdefault(piece, data) != data:
            raise _contradiction(f"'{name}'")

    @property
    def files(self) -> dict[str, bytes] | None:
        """The files, by name; None as long as one is not complete, with its checksum."""
        if self._sums is None:
            return None
        found = {}
        for name in FILES:
            if name not in self._sums:
                continue
            data = b"".join(data for _, data in sorted(self._pieces[name].items()))
            if hashlib.sha256(data).hexdigest() != self._sums[name]:
                return None
            found[name] = data
        return found


def _contradiction(what: str) -> RunError:
    return RunError(
        f"the run's log holds two results for {what}, so one is wrong: take those in the run's folder on the "
        "server"
    )
