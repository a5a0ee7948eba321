"""A federation of real processes on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import tomli_w

from fda_flower.deployment.certificates import Certificates, make_certificates, make_key
from fda_flower.deployment.processes import IN_UTF8, Service, end, free_port, uninterrupted
from fda_flower.errors import RunError, unknown

HOST = "127.0.0.1"
START_SECONDS = 120.0
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""Lets glibc return the memory of large arrays to the system when they are freed."""
NodeConfig = Mapping[str, str | int | float]
COMMANDS = """
import json, sys
from importlib.metadata import entry_points
(flwr,) = entry_points(group="console_scripts", name="flwr")
run = flwr.load()
for arguments in json.load(sys.stdin):
    try:
        run(arguments, prog_name="flwr")
    except SystemExit as end:
        if end.code:
            raise
"""
"""Imports Flower, which takes a second or more, then runs the ``flwr`` commands listed on standard input."""


class Federation:
    """A SuperLink and SuperNodes on the loopback interface, from ``with`` until its end.

    Parameters
    ----------
    folder : Path
        Gets certificates, node configurations, the database, the Flower configuration, keys unless ``keys``
        has them, and, in ``logs``, each process's output.
    nodes : Mapping[str, Mapping]
        The node configuration of each SuperNode, by a name of its own.
    secure : bool
        With TLS and node authentication, as over a network.
    temporary : bool
        Whether to remove the folder, with all keys, if this process dies before the end.

    Attributes
    ----------
    connection : str
        The name of the SuperLink in the Flower configuration.
    environment : dict[str, str]
        Variables for ``flwr`` commands, ``FLWR_HOME`` among them.

    Raises
    ------
    RunError
        If a process does not start within 2 minutes.

    Examples
    --------
    >>> nodes = {"a": {"role": "source", "domain": "a"}, "b": {"role": "target", "domain": "b"}}
    >>> with Federation(Path("rehearsal"), nodes) as federation:  # doctest: +SKIP
    ...     subprocess.run(["flwr", "run", "app", federation.connection], env=federation.environment)
    """

    connection = "rehearsal"

    def __init__(
        self, folder: Path, nodes: Mapping[str, NodeConfig], secure: bool = True, temporary: bool = False
    ) -> None:
        self.folder = folder.absolute()
        self.secure = secure
        self._temporary = temporary
        self._first_nodes = dict(nodes)
        self._nodes: set[str] = set()
        self._services: dict[str, Service] = {}
        self._certificates: Certificates | None = None
        self._port = free_port()
        bin_dir = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(self.folder / "flwr-home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            **MEMORY,
            **IN_UTF8,
            "PATH": f"{bin_dir}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    def __enter__(self) -> Self:
        """Start the SuperLink and the first nodes, and wait until they are connected."""
        try:
            if self.secure:
                self._certificates = make_certificates(self.folder / "certificates", ["localhost", HOST])
            self._write_connection()
            # The process that registers the nodes imports Flower while the SuperLink does.
            with self._flwr_process() as process:
                self.start_superlink()
                self._add(self._first_nodes, process)
            for name in self._first_nodes:
                self.wait_for_node(name)
        except BaseException:
            end(self._services.values())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._services.values())

    @property
    def address(self) -> str:
        """The SuperLink's ``HOST:PORT``."""
        return f"{HOST}:{self._port}"

    def add_node(self, name: str, config: NodeConfig, registered: bool = True) -> None:
        """Make a node's key, register it unless told not to, and start its SuperNode."""
        with self._flwr_process() as process:
            self._add({name: config}, process, registered)

    def _add(
        self, nodes: Mapping[str, NodeConfig], process: "subprocess.Popen[str]", registered: bool = True
    ) -> None:
        commands = list[list[str]]()
        for name, config in nodes.items():
            self._config_path(name).parent.mkdir(parents=True, exist_ok=True)
            self._config_path(name).write_text(tomli_w.dumps(dict(config)), encoding="utf-8")
            if self.secure:
                public = self.folder / "keys" / f"{name}.pub"
                if not public.exists():
                    make_key(public.parent, name)
                commands.append(["supernode", "register", str(public), self.connection, "--name", name])
        if commands and registered:
            self._flwr(process, commands)
        for name in nodes:
            self._nodes.add(name)
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Start or restart a node's SuperNode, without waiting for its connection."""
        self._check(name)
        end([self._services[name]] if name in self._services else [])
        command = [Path(sys.executable).name, "-m", "fda_flower.supernode.command"]
        command += ["--superlink", self.address, "--host", HOST, "--port", str(free_port())]
        command += ["--node-config", str(self._config_path(name))]
        if self._certificates is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._certificates.ca)]
            command += ["--auth-supernode-private-key", str(self.folder / "keys" / name)]
        self._start(name, command)

    def wait_for_node(self, name: str, timeout: float = START_SECONDS) -> None:
        """Wait until a node is connected; raise a `RunError` if it ends, or after `timeout` seconds."""
        self._check(name)
        self._services[name].wait_until_it_says("SuperNode ID:", timeout)

    def stop_node(self, name: str, kill: bool = False) -> None:
        """Stop a node's SuperNode and its running task; with `kill`, as in a power failure."""
        self._check(name)
        end([self._services[name]], kill)

    def start_superlink(self) -> None:
        """Start or restart the SuperLink, and wait until it answers."""
        command = ["flower-superlink", "--host", HOST, "--port", str(self._port)]
        command += ["--database", str(self.folder / "state.db"), "--disable-runtime-dependency-installation"]
        if self._certificates is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(self._certificates.ca)]
            command += ["--ssl-certfile", str(self._certificates.server)]
            command += ["--ssl-keyfile", str(self._certificates.server_key), "--enable-supernode-auth"]
        self._start("superlink", command)
        self._services["superlink"].wait_until_it_says("Uvicorn running on", START_SECONDS)

    def stop_superlink(self, kill: bool = False) -> None:
        """Stop the SuperLink and the server's running task."""
        end([self._services["superlink"]], kill)

    def check_superlink(self) -> None:
        """Raise a `RunError` with the last output of the SuperLink if it has ended."""
        self._services["superlink"].check()

    def logs(self, name: str) -> str:
        """Return the output of a node's processes, or of ``"superlink"``."""
        if name not in self._services:
            raise unknown("node", name, self._services)
        return self._services[name].log.read_text(encoding="utf-8", errors="replace")

    def flwr(self, *arguments: str) -> str:
        """Return the output of a ``flwr`` command in this federation; raise a `RunError` if it fails."""
        with self._flwr_process() as process:
            return self._flwr(process, [arguments])

    def _flwr_process(self) -> "subprocess.Popen[str]":
        """Start a process that imports Flower and waits for ``flwr`` commands."""
        return subprocess.Popen(
            [sys.executable, "-P", "-c", COMMANDS],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def _flwr(self, process: "subprocess.Popen[str]", commands: Sequence[Sequence[str]]) -> str:
        output, errors = process.communicate(json.dumps(commands))
        if process.returncode:
            said = " && ".join(" ".join(["flwr", *arguments]) for arguments in commands)
            raise RunError(f"'{said}' failed with exit code {process.returncode}: {output}{errors}".strip())
        return output

    def _start(self, name: str, command: list[str]) -> None:
        command[0] = str(Path(sys.executable).parent / command[0])
        with uninterrupted():
            self._services[name] = Service(name, command, self.folder, self.environment, self._temporary)

    def _check(self, name: str) -> None:
        if name not in self._nodes:
            raise unknown("node", name, self._nodes)

    def _config_path(self, name: str) -> Path:
        return self.folder / "nodes" / f"{name}.toml"

    def _write_connection(self) -> None:
        ca = self._certificates and self._certificates.ca
        trust = {"insecure": True} if ca is None else {"root-certificates": str(ca)}
        link = {self.connection: {"address": self.address, **trust}}
        home = Path(self.environment["FLWR_HOME"])
        home.mkdir(parents=True, exist_ok=True)
        config = {"superlink": {"default": self.connection, **link}}
        (home / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
