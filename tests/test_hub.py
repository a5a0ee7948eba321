"""The app for Flower's hub: it is published, needs what it asks for, and runs where nothing is installed."""

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sites import write_images, write_table
from waiting import until

from fda_flower import RunConfig

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The app as `make hub` assembles it."""
    folder = tmp_path_factory.mktemp("hub") / "fda-flower"
    subprocess.run([sys.executable, ROOT / "hub" / "assemble.py", folder], check=True)
    return folder


def project_of(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_flower_publishes_the_app(app, monkeypatch):
    """All checks are Flower's own; only the account and the upload are ours."""
    # Its package has a function of that name.
    publish: Any = importlib.import_module("flwr.cli.app_cmd.publish")
    base: Any = publish.OidcCliPlugin
    sent = {}

    class Plugin(base):  # type: ignore[misc]
        access_token = "a token"

        def __init__(self):
            pass

        def load_tokens(self):
            pass

    def post(parts, token):
        sent.update({name: file.read() for _, (name, file, _) in parts})
        return SimpleNamespace(ok=True)

    monkeypatch.setattr(publish, "load_cli_auth_plugin_from_connection", lambda address: Plugin())
    monkeypatch.setattr(publish, "_post_files", post)
    publish.publish(app)
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fda_flower").rglob("*.py")}
    assert {*sent} == here | {"LICENSE", "README.md", "pyproject.toml"}
    assert sent["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert not re.findall(rb"\]\((?!https?://|#)", sent["README.md"]), "the hub cannot follow a relative link"


def test_the_app_asks_for_what_the_package_and_its_extras_ask_for(app):
    package, ours = project_of(ROOT)["project"], project_of(app)["project"]
    offered = {*package["dependencies"]}.union(*package["optional-dependencies"].values())
    assert {*ours["dependencies"]} <= offered
    assert {*package["optional-dependencies"]["torch"]} <= {*ours["dependencies"]}
    assert [line for line in ours["dependencies"] if line.startswith("flwr")] == ["flwr[simulation]>=1.40,<2"]
    assert "optional-dependencies" not in ours


def test_without_an_option_the_app_needs_the_two_nodes_that_flower_simulates(app):
    config = RunConfig.from_flower(project_of(app)["tool"]["flwr"]["app"]["config"])
    assert (config.dataset, len(config.data.domain_names)) == ("digits", 2)


def closure(requirements):
    """The names of the installed distributions that requirements need, directly or not."""
    found, waiting = set(), [Requirement(line) for line in requirements]
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if (name, *sorted(each.extras)) in found:
            continue
        found.add((name, *sorted(each.extras)))
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, or of a wheel that this one has not
        for requirement in map(Requirement, needed):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *each.extras)):
                waiting.append(requirement)
    return {name for name, *_ in found}


CLOSED = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from packaging.utils import canonicalize_name

DISTRIBUTIONS = {distributions!r}
OTHERS = {{
    module
    for module, names in packages_distributions().items()
    if not {{canonicalize_name(name) for name in names}} & DISTRIBUTIONS
}} - {{"fda_flower"}}


class Closed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in OTHERS else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *context):
        found = PathFinder.find_distributions(*context)
        return (each for each in found if canonicalize_name(each.name) in DISTRIBUTIONS)


sys.meta_path[sys.meta_path.index(PathFinder)] = Closed
import fda_flower.client_app, fda_flower.server_app
from fda_flower import run

assert fda_flower.__file__.startswith({app!r})
assert "matplotlib" in OTHERS and "matplotlib" not in sys.modules
for settings in {runs!r}:
    run(rounds=1, model="mlp", device="cpu", **settings)
"""
"""Runs the app where nothing is installed but some distributions."""


@pytest.mark.slow
@pytest.mark.smoke
def test_the_app_runs_on_digits_tables_and_photos_with_its_dependencies_alone(app, tmp_path):
    for i, domain in enumerate("ab"):
        write_table(tmp_path / "tables" / f"{domain}.csv", i)
        write_images(tmp_path / "photos" / domain, i)
    runs = [
        {"sources": 1, "output": str(tmp_path / "run")},
        {"dataset": "table", "data_dir": str(tmp_path / "tables")},
        {"dataset": "images", "data_dir": str(tmp_path / "photos"), "method": "fedavg"},
    ]
    distributions = closure(project_of(app)["project"]["dependencies"])
    done = subprocess.run(
        [sys.executable, "-c", CLOSED.format(distributions=distributions, app=str(app), runs=runs)],
        cwd=app,
        env={**os.environ, "PYTHONPATH": str(app)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    about = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert about["versions"]["fda-flower"] == project_of(app)["project"]["version"]


# Where nothing is installed but Flower


class Machine:
    """A Python with Flower alone, and what runs on it; each process has a home below `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.uv = [sys.executable, "-m", "uv"]
        self.bin = folder / "flower" / "bin"
        self.environment = {
            "PATH": os.pathsep.join([str(self.bin), "/usr/bin", "/bin"]),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            **{name: value for name, value in os.environ.items() if name.startswith(("UV_", "SSL_"))},
            "UV_CACHE_DIR": str(folder / "cache"),
        }

    def home(self, name):
        home = self.folder / name
        home.mkdir(exist_ok=True)
        return {"cwd": home, "env": {**self.environment, "HOME": str(home), "FLWR_HOME": str(home / ".flwr")}}

    def call(self, name, *command):
        done = subprocess.run([*command], **self.home(name), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def runs(self, name, command, *arguments):
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*command.split(), *arguments], **self.home(name), stdout=log, stderr=log
            )
            yield
            process.terminate()
            process.wait()

    def install_flower(self):
        constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        (flower,) = re.findall(r"^flwr==.*$", constraints, re.MULTILINE)
        self.call("maker", *self.uv, "venv", "--python", sys.executable, self.bin.parent)
        self.call("maker", *self.uv, "pip", "install", "--python", self.bin / "python", flower)
        self.keep_environments()

    def keep_environments(self):
        """Take from Flower a fault.

        When a process of an app ends, it removes the run's environment: after its reply has left, so the next
        message's process finds the packages there, and then no longer.
        """
        (file,) = self.bin.parent.rglob("dependency_installer.py")
        text = file.read_text(encoding="utf-8")
        removal = "        shutil.rmtree(runtime_env_dir, ignore_errors=True)\n"
        assert text.count(removal) == 1
        file.unlink()  # the file in the cache stays
        file.write_text(text.replace(removal, "        return\n"), encoding="utf-8")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine with Flower and an empty cache of packages, which is removed: it has gigabytes."""
    folder = tmp_path_factory.mktemp("machine")
    found = Machine(folder)
    found.install_flower()
    yield found
    shutil.rmtree(folder, ignore_errors=True)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("simulated", [False, True], ids=["two SuperNodes", "simulated"])
def test_the_app_runs_where_flower_installs_what_it_asks_for(machine, app, simulated):
    for package in ("torch", "ray", "fda_flower"):
        with pytest.raises(AssertionError, match="ModuleNotFoundError"):
            machine.call("maker", "python", "-c", f"import {package}")
    port, link = free_port(), f"simulated-{simulated}"
    superlink = f"127.0.0.1:{port}"
    settings = Path(machine.home(link)["env"]["FLWR_HOME"]) / "config.toml"
    settings.parent.mkdir()
    settings.write_text(f'[superlink.here]\naddress = "{superlink}"\ninsecure = true\n', encoding="utf-8")
    serves = f"flower-superlink --insecure --host 127.0.0.1 --port {port}"
    joins = f"flower-supernode --insecure --superlink {superlink} --allow-runtime-dependency-installation"
    with ExitStack() as stack:
        stack.enter_context(machine.runs(link, serves + " --simulation" * simulated))
        until(lambda: listens(port))
        for i in range(0 if simulated else 2):
            own = ["--port", str(free_port()), "--node-config", f"partition-id={i} num-partitions=2"]
            stack.enter_context(machine.runs(f"node-{i}", joins, *own))
        wanted = 'rounds=2 method="fedgp-auto"'
        said = machine.call(link, "flwr", "run", app, "here", "--stream", "--run-config", wanted)
        (run,) = json.loads(machine.call(link, "flwr", "list", "here", "--format", "json"))["runs"]
    assert "round 2/2: target accuracy" in said
    assert "the model is unchanged" not in said
    assert run["status"] == "finished:completed", said
