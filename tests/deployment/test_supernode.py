"""The SuperNode of this package, without a SuperLink."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from fda_flower.deployment import supernode


def test_it_is_a_command():
    (script,) = entry_points(group="console_scripts", name="fda-supernode")
    assert script.load() is supernode.main


def test_its_arguments_are_those_of_flower():
    command = [sys.executable, "-m", "fda_flower.deployment.supernode", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: flower-supernode")
    assert "--auth-supernode-private-key" in done.stdout


def test_it_waits_less_and_has_a_launcher_meanwhile(monkeypatch):
    seen = {}

    def theirs(share):
        seen.update(share=share, path=os.environ["PATH"], environment=dict(os.environ))

    path = os.environ["PATH"]
    monkeypatch.setattr(sys, "argv", ["fda-supernode"])
    monkeypatch.setattr(supernode, "run_supernode", theirs)
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5")
    supernode.main()
    assert seen["share"] == 1 / 12
    assert seen["environment"]["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] == "0.5", "one that is set stays"
    if sys.platform == "linux":
        assert seen["path"].endswith(path)
        assert seen["path"] != path
    assert os.environ["PATH"] == path


@pytest.mark.parametrize("package", ["torch", "sklearn", "ray"])
def test_the_launcher_holds_nothing_large(package):
    code = "from fda_flower.client_app import prepare; prepare(); import sys; "
    code += f"print({package!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
