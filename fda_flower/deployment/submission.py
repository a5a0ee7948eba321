"""Runs submitted to a SuperLink: their records come back, their model stays on the server."""

import hashlib
import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from fda_flower.deployment.processes import IN_UTF8, running
from fda_flower.deployment.results import Receiver
from fda_flower.errors import RunError, printable
from fda_flower.files import version, write_atomically
from fda_flower.records.chain import without_link
from fda_flower.records.folder import CONFIG, ROUNDS, SUBMITTED, RunFolder
from fda_flower.records.record import Record
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import check_federated
from fda_flower.runs.settings import SETTINGS, as_flower
from fda_flower.wire.internals import app_digest


def write_app(folder: Path) -> None:
    """Write the Flower app to an empty folder: the same for all runs, so that a site can approve it."""
    project = {
        "name": "fda-flower",
        "version": version(),
        "description": "Federated domain adaptation, from the installed package",
        "license": "Apache-2.0",
        # Flower would install them again for each run.
        "dependencies": [],
    }
    app = {
        "publisher": "fda-flower",
        "components": {
            "serverapp": "fda_flower.server_app:app",
            "clientapp": "fda_flower.client_app:app",
        },
        "config": {**{each.key: as_flower(each.default) for each in SETTINGS}, **OF_SERVER},
    }
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def app_hash(folder: Path | None = None) -> str:
    """Return what a site's rule ``apps`` calls an app: by default the app that `run_deployed` submits."""
    if folder is not None:
        return f"sha256:{app_digest(folder)}"
    with TemporaryDirectory(prefix="fda-flower-") as ours:
        write_app(Path(ours))
        return f"sha256:{app_digest(Path(ours))}"


OF_SERVER: Mapping[str, Any] = {"output": "", "resume": False, "send-results": False}
"""Settings of the server app that are not the run's, and their defaults."""

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONUNBUFFERED": "1",
}
COLORED = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""Variables that let ``flwr`` colour its JSON, set for example in notebooks and by CI services."""

GRACE_SECONDS = 1.0
TICK_SECONDS = 1.0
"""How long a reader waits for a line of the log before it does something else."""


class Connection:
    """Runs of a SuperLink, handled by the ``flwr`` command; a `RunError` is raised if the command fails.

    `name` is a connection of Flower's ``config.toml``. The default environment is this process's.
    """

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        given = os.environ if environment is None else environment
        others = {name: given[name] for name in given if name not in COLORED}
        self._environment = {**QUIET, **others, **IN_UTF8}

    def submit(self, app: Path, settings: Path) -> str:
        """Start a run of the app in the folder `app` with the settings in a TOML file, and return its id."""
        return str(self._ask("run", str(app), self.name, "--run-config", str(settings))["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """Return the status of a run, such as ``running`` or ``finished:failed``, and its details."""
        (run,) = self._ask("list", self.name, "--run-id", run_id)["runs"]
        return run["status"], run["status-details"]

    def log(self, run_id: str) -> Iterator[str | None]:
        """Yield the lines of a run's log, until the run ends or the stream breaks.

        The stream of a dead SuperLink may stay open for ever, so each second without a line yields None.
        """
        with self._running("log", run_id, self.name, "--stream", stderr=subprocess.DEVNULL) as command:
            assert command.stdout is not None
            with command.stdout as pipe:
                yield from _lines(pipe.fileno())

    def stop(self, run_id: str) -> None:
        """Stop a run."""
        self._ask("stop", run_id, self.name)

    def _running(self, *arguments: str, stderr: int) -> "AbstractContextManager[subprocess.Popen[bytes]]":
        command = [str(Path(sys.executable).with_name("flwr")), *arguments]
        return running(command, GRACE_SECONDS, env=self._environment, stdout=subprocess.PIPE, stderr=stderr)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        with self._running(*arguments, "--format", "json", stderr=subprocess.PIPE) as command:
            output, errors = (data.decode(errors="replace") for data in command.communicate())
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            answer = {"success": False, "error-message": output + errors}
        if not answer["success"]:
            reason = " ".join(str(answer["error-message"]).split())
            raise RunError(
                f"'flwr {arguments[0]}' failed for the connection '{self.name}': {reason}",
                thing="connection",
                value=self.name,
            )
        return answer


def _lines(pipe: int) -> Iterator[str | None]:
    """Yield the lines of a pipe, and None for each second without one."""
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


COMPLETED = "finished:completed"
"""Flower's status of a complete run."""
PATIENCE = 30.0
"""Seconds that a SuperLink may be out of reach, for example during a restart."""
SILENCE = 20.0
"""Seconds without a line of the log after which the SuperLink is asked for the run's status."""


def run_deployed(
    config: RunConfig,
    connection: str,
    output: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Record], None] | None = None,
    environment: Mapping[str, str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[list[Record], str]:
    """Submit a run to a SuperLink, follow it to its end, and collect its records.

    Ctrl-C stops the run. If this process dies, the run goes on; call again with `resume` to follow it.

    Parameters
    ----------
    config : RunConfig
        The run; its `data_dir` is a folder of the server alone.
    connection : str
        The SuperLink's name in Flower's ``config.toml``.
    output : Path
        The caller's folder; the server's is ``fda-runs/...`` in the SuperLink's.
    resume : bool
        Continue the run in `output` and on the server, if there is one.
    on_round : callable, optional
        Called with each round's record as the round ends.
    environment : Mapping, optional
        Environment variables for Flower's command, such as ``FLWR_HOME``; by default this process's.
    check : callable, optional
        Called repeatedly during the run; an error that it raises ends this function.

    Returns
    -------
    tuple
        The record of each round, and the run's folder on the server, with its checkpoint and model.

    Raises
    ------
    ConfigError
        If the folder belongs to another run.
    RunError
        If the SuperLink cannot be reached, or the run fails; the records so far stay valid.
    """
    check_federated(config.method)
    flower = Connection(connection, environment)
    written = RunFolder(
        output,
        config.fingerprint(),
        {
            "rounds": config.rounds,
            "device": config.device,
            "connection": connection,
            "settings": config.settings(),
        },
        resume,
        mirror=True,
    )
    with closing(written) as folder:
        return _run(flower, config, folder, resume, on_round, check)


def _run(
    flower: Connection,
    config: RunConfig,
    folder: RunFolder,
    resume: bool,
    on_round: Callable[[Record], None] | None,
    check: Callable[[], None],
) -> tuple[list[Record], str]:
    output = folder.path
    strategy = config.strategy
    folder.open({"name": type(strategy).__name__, **strategy.settings()})
    known, lines = len(folder.read_rounds(light=True)), list[str]()
    run_id = _still_running(flower, output) if resume else None
    if run_id is None:
        run_id = _submit(flower, config, output, resume)
    folder.begin(known)

    def on_record(record: Record) -> None:
        lines.append(json.dumps(record) + "\n")
        if len(lines) >= known:
            _write(output / ROUNDS, "".join(lines).encode())
        if len(lines) > known and on_round is not None:
            on_round(without_link(record))

    receiver = Receiver(lambda text: _write(output / CONFIG, text.encode()), on_record)
    try:
        status, details = _follow(flower, run_id, receiver, check)
    except KeyboardInterrupt:
        try:
            flower.stop(run_id)
        except RunError as error:
            raise RunError(
                f"run {run_id} on '{flower.name}' could not be stopped and goes on: {error}"
            ) from error
        raise
    if status != COMPLETED:
        begun = bool(known or lines)
        if not begun:
            _free(output)
        raise RunError(
            receiver.error
            or f"run {run_id} on '{flower.name}' ended as {status} ({printable(details)}): see "
            f"`flwr log {run_id} {flower.name}`, and {'go on with --resume' if begun else 'start again'}"
        )
    if not receiver.complete:
        raise RunError(f"the results of run {run_id} are incomplete: fetch them again with --resume")
    _write(output / ROUNDS, "".join(lines).encode())
    return folder.read_rounds(), receiver.folder


def _free(output: Path) -> None:
    """Remove what is known of a run that has ended before its first round, so that another may begin."""
    for name in (CONFIG, ROUNDS, SUBMITTED):
        (output / name).unlink(missing_ok=True)


def server_folder(config: RunConfig, output: Path) -> str:
    """Return the run's folder, relative to the SuperLink's; the same run and output give the same folder."""
    identity = json.dumps(config.fingerprint(), sort_keys=True)
    name = re.sub(r"[^\w.-]", "_", output.name)
    return f"fda-runs/{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _submit(flower: Connection, config: RunConfig, output: Path, resume: bool) -> str:
    path = server_folder(config, output)
    settings: dict[str, Any] = config.to_flower() | {"output": path, "resume": resume, "send-results": True}
    with TemporaryDirectory(prefix="fda-flower-") as folder:
        app, given = Path(folder) / "app", Path(folder) / "settings.toml"
        app.mkdir()
        write_app(app)
        given.write_text(tomli_w.dumps(settings), encoding="utf-8")
        run_id = flower.submit(app, given)
    about = {"connection": flower.name, "run-id": run_id, "server-folder": path}
    _write(output / SUBMITTED, (json.dumps(about, indent=2) + "\n").encode())
    return run_id


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise RunError(
            f"'{path}' cannot be written ({error}): make room, and fetch the results again with --resume",
            thing=str(path),
        ) from error


def _still_running(flower: Connection, output: Path) -> str | None:
    """Return the run submitted from this folder, unless it has ended."""
    try:
        about = json.loads((output / SUBMITTED).read_text(encoding="utf-8"))
        if about["connection"] != flower.name:
            return None
        run_id = str(about["run-id"])
        return None if flower.status(run_id)[0].startswith("finished") else run_id
    except (OSError, ValueError, KeyError, TypeError, RunError):
        return None


def _follow(
    flower: Connection, run_id: str, receiver: Receiver, check: Callable[[], None]
) -> tuple[str, str]:
    """Read a run's log to its end and return its status; Flower is asked only if results are missing."""
    while True:
        _read(flower, run_id, receiver, check)
        if receiver.complete and receiver.error is None:
            return COMPLETED, ""
        status, details = _status(flower, run_id, check)
        if status.startswith("finished"):
            if not receiver.complete and receiver.error is None:
                # The stream may miss lines written as it ended.
                _read(flower, run_id, receiver, check)
            return status, details
        time.sleep(1)


def _read(flower: Connection, run_id: str, receiver: Receiver, check: Callable[[], None]) -> None:
    """Read a run's log until its stream ends, or until the run has ended and the stream is silent."""
    heard = time.monotonic()
    for line in flower.log(run_id):
        if line is not None:
            receiver.read(line)
            heard = time.monotonic()
            continue
        check()
        if time.monotonic() - heard > SILENCE:
            if _status(flower, run_id, check)[0].startswith("finished"):
                return
            heard = time.monotonic()


def _status(flower: Connection, run_id: str, check: Callable[[], None]) -> tuple[str, str]:
    """Return the status of a run and its details; tolerate a short absence of the SuperLink."""
    deadline = time.monotonic() + PATIENCE
    while True:
        check()
        try:
            return flower.status(run_id)
        except RunError as error:
            if time.monotonic() > deadline:
                raise RunError(
                    f"the SuperLink of '{flower.name}' was lost in run {run_id} ({error}): once it is back, "
                    "--resume goes on",
                    thing="SuperLink of",
                    value=flower.name,
                ) from error
        time.sleep(1)
