"""A SuperLink as Flower's own command knows it: by the name of a connection."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fda_flower.deployment.guard import guarded
from fda_flower.errors import RunError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}
COLORED = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""What makes ``flwr`` colour its JSON, such as in a notebook or on a CI service."""

GRACE_SECONDS = 1.0
TICK_SECONDS = 1.0
"""After which a log that says nothing lets its reader look at other things."""


class Connection:
    """Submits, follows and stops runs by the ``flwr`` command.

    Parameters
    ----------
    name : str
        As in Flower's ``config.toml``.
    environment : Mapping, optional
        Environment variables of the command. Default: those of this process.
    """

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        given = os.environ if environment is None else environment
        self._environment = QUIET | {name: given[name] for name in given if name not in COLORED}

    def submit(self, app: Path) -> str:
        """Start a run of the app in a folder, and return its id.

        Raises
        ------
        RunError
            If there is no such connection, or its SuperLink cannot be reached or refuses.
        """
        return str(self._ask("run", str(app), self.name)["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """Return the status of a run, such as ``running`` or ``finished:failed``, and details.

        Raises
        ------
        RunError
            If the SuperLink cannot be reached, or does not know the run.
        """
        (run,) = self._ask("list", self.name, "--run-id", run_id)["runs"]
        return run["status"], run["status-details"]

    def log(self, run_id: str) -> Iterator[str | None]:
        """The lines of a run's log from its first on, until the run ends or the stream is cut off.

        The stream of a SuperLink that is gone may stay open for ever: each second without a line yields None.
        """
        command = subprocess.Popen(
            self._command("log", run_id, self.name, "--stream"),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert command.stdout is not None
        try:
            yield from _lines(command.stdout.fileno())
        finally:
            command.terminate()
            command.wait()
            command.stdout.close()

    def stop(self, run_id: str) -> None:
        """Stop a run.

        Raises
        ------
        RunError
            If it cannot be stopped.
        """
        self._ask("stop", run_id, self.name)

    def _command(self, *arguments: str) -> list[str]:
        """Return the command, which gets a session of its own: Ctrl-C is for this process alone."""
        return guarded([str(Path(sys.executable).with_name("flwr")), *arguments], GRACE_SECONDS)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            self._command(*arguments, "--format", "json"),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            answer = {"success": False, "error-message": done.stdout + done.stderr}
        if not answer["success"]:
            reason = " ".join(str(answer["error-message"]).split())
            raise RunError(f"'flwr {arguments[0]}' failed for the connection '{self.name}': {reason}")
        return answer


def _lines(pipe: int) -> Iterator[str | None]:
    """The lines that come out of a pipe, and None each second without one."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(TICK_SECONDS):
                yield None
                continue
            data = os.read(pipe, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace") + "\n"
            if not data:
                break
    if rest:
        yield rest.decode(errors="replace")
