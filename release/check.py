"""Build the package, and type what README prints where only the wheel is installed; nothing is published.

``make release`` runs it, in an environment with build, twine and psutil.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple, TextIO
from zipfile import ZipFile

import psutil

from release.plan import DATA, OF_TABLES, USES, Stage, environments, typed, write_project
from release.readme import LINK
from release.versions import ROOT, differences, project, pythons

LOG = ROOT / "build" / "release.log"
DIST = ROOT / "dist"


class Row(NamedTuple):
    """What became of a command; a line of the log's last table."""

    python: str
    stage: str
    command: str
    ok: bool
    seconds: float


class Machine:
    """A folder outside the checkout, with one environment at a time, in which commands are typed."""

    def __init__(self, place: Path, python: str, wheel: Path, log: TextIO) -> None:
        self.place, self.wheel, self.log = place, wheel, log
        self.python = python
        self.rows: list[Row] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "FDA_DATA_DIR")
        self.environment = {name: value for name, value in os.environ.items() if name not in left_out} | {
            "PATH": f"{place / 'environment' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FDA_CACHE_DIR": str(place / "cache"),
            "FLWR_HOME": str(place / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
            "RAY_ADDRESS": "local",  # no other's cluster that runs on this machine
            "PIP_NO_COMPILE": "1",  # of the modules of PyTorch most are never imported
            "PIP_PROGRESS_BAR": "off",
        }

    def renew(self, interpreter: str) -> None:
        """Replace the environment by an empty one."""
        shutil.rmtree(self.place / "environment", ignore_errors=True)
        self.call(f"{interpreter} -m venv {self.place / 'environment'}", self.place)

    def type(self, stage: Stage) -> bool:
        """Type a stage's commands until one fails; each is a row."""
        for command in stage.commands:
            begin = time.monotonic()
            ok = self.call(command, self.place / "work" / stage.folder)
            text = re.sub(r"\s+# .*", "", command.replace(str(DATA), "release/data.py").splitlines()[0])
            row = Row(self.python, stage.name, text, ok, time.monotonic() - begin)
            self.rows.append(row)
            tell(self.log, line(row))
            if not ok:
                return False
        return True

    def call(self, command: str, folder: Path) -> bool:
        """Run a command in a shell; whether it ended well."""
        tell(self.log, f"\n$ {command}", to_screen=False)
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", from_wheel(command, self.wheel)],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode == 0

    def end(self) -> None:
        """End what a command left running: Flower's SuperLink, and Ray."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("FLWR_HOME") == self.environment["FLWR_HOME"]:
                    process.kill()
            except psutil.Error:
                continue  # it has ended, or is another user's


def from_wheel(command: str, wheel: Path) -> str:
    """Replace the package's name on an index by the wheel, in a command that installs it."""
    if not re.search(r"\bpip install\b", command):
        return command
    return re.sub(r"'?\bfda-flower(\[[\w,]+\])?'?(?=\s|$)", rf"'fda-flower\1 @ {wheel.as_uri()}'", command)


def tell(log: TextIO, text: str, to_screen: bool = True) -> None:
    """Write a line to the log, and show it."""
    print(text, file=log, flush=True)
    if to_screen:
        print(text, flush=True)


def line(row: Row) -> str:
    """Return a line of the table."""
    command = row.command.replace("|", "\\|")
    return (
        f"| {row.python} | {row.stage} | `{command}` | {'ok' if row.ok else 'FAILED'} | {row.seconds:.0f} |"
    )


def build(log: TextIO) -> tuple[Path, str]:
    """Build both distributions and check them; return the wheel, and its page as an index shows it."""
    shutil.rmtree(DIST, ignore_errors=True)
    for command in (["build", "--outdir", str(DIST), str(ROOT)], ["twine", "check", "--strict", "DIST"]):
        files = [str(path) for path in sorted(DIST.glob("*"))]
        words = [word for part in command for word in (files if part == "DIST" else [part])]
        subprocess.run([sys.executable, "-m", *words], stdout=log, stderr=subprocess.STDOUT, check=True)
    (wheel,) = DIST.glob("*.whl")
    with ZipFile(wheel) as files_of_wheel:
        (name,) = (name for name in files_of_wheel.namelist() if name.endswith(".dist-info/METADATA"))
        page = Parser().parsestr(files_of_wheel.read(name).decode()).get_payload()
    assert isinstance(page, str)
    if relative := re.search(LINK, page):
        raise ValueError(f"the page of an index has a relative link: {relative[0]}")
    return wheel, page


def interpreter(name: str) -> tuple[str, str]:
    """Return version and path of a Python by its version, name or path; empty texts if it is missing."""
    code = "import sys; print(*sys.version_info[:2], sep='.', end=' '); print(sys.executable)"
    if not (path := shutil.which(f"python{name}" if re.fullmatch(r"3\.\d+", name) else name)):
        return "", ""
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    version, _, executable = done.stdout.strip().partition(" ")
    return version, executable


def same_rows(printed: str, report: str) -> str:
    """Return how many rows of a table are in a report, which may have more columns; ``**`` does not count."""
    (names, *rows), (columns, *others) = table(printed), table(report)
    there = [[row[columns.index(name)] for name in names] for row in others]
    return f"{sum(row in there for row in rows)} of {len(rows)} rows of README's table are the same here"


def table(page: str) -> list[list[str]]:
    """Return the cells of a page's first table, its head first."""
    lines = re.findall(r"^\| \w.* \|$", page, flags=re.MULTILINE)
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == len(rows[0])]


def check(machine: Machine, interpreter: str, page: str, plan: list[list[Stage]]) -> None:
    """Type everything with one Python, in one environment after another; each command becomes a row."""
    write_project(machine.place / "work" / "project", typed(page)[4].code)
    for stages in plan:
        machine.renew(interpreter)
        try:
            for stage in stages:
                machine.type(stage)
        finally:
            machine.end()
    report = machine.place / "work" / "runs" / "demo" / "report.md"
    if report.exists():
        same = same_rows(
            page.split("<!-- demo table")[1].split("\n## ")[0], report.read_text(encoding="utf-8")
        )
        tell(machine.log, f"Python {machine.python}: {same}")


def main() -> int:
    """Build, check, and say what would be published."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", nargs="*", help="versions, names or paths; all that the package is for")
    parser.add_argument("--torch-index", default="", help="an index with a smaller PyTorch, tried first")
    every = [*OF_TABLES, *USES]
    parser.add_argument(
        "--extras", nargs="*", default=every, choices=[*every, "none"], help="beyond README's"
    )
    arguments = parser.parse_args()
    names = arguments.pythons or pythons()
    interpreters = {name: interpreter(name) for name in names}
    if missing := [name for name, (_, path) in interpreters.items() if not path]:
        print(f"This machine has no Python {', '.join(missing)}: install it, or choose with PYTHONS='...'")
        return 1
    if different := differences():
        print("Files differ:", *different, sep="\n")
        return 1
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        wheel, page = build(log)
        heads = ["| Python | stage | command | | s |", "| --- | --- | --- | --- | ---: |"]
        tell(log, "\n".join([f"{wheel.name} is built; twine has nothing to say against it", *heads]))
        rows: list[Row] = []
        plan = environments(page, arguments.torch_index, arguments.extras)
        for version, path in interpreters.values():
            with tempfile.TemporaryDirectory(prefix="fda-release-") as folder:
                machine = Machine(Path(folder), version, wheel, log)
                check(machine, path, page, plan)
                rows += machine.rows
        failed = [row for row in rows if not row.ok]
        tell(log, "\n".join(["", *heads, *map(line, rows)]), to_screen=False)
        tell(log, f"{len(rows) - len(failed)} of {len(rows)} commands ended well; all output is in {LOG}")
        address = project()["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
        missing_address = "" if address else ", once `repository` in pyproject.toml has the address"
        tell(log, f"Nothing was published. What would be{missing_address}: twine upload {DIST.name}/*")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
