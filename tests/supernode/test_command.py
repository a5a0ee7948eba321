"""The SuperNode of this package, without a SuperLink."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from flwr.supernode import start_client_internal

from fda_flower.site import Site
from fda_flower.supernode import command
from fda_flower.supernode.resident import launched_worker


def test_it_is_a_command_whose_arguments_are_those_of_flower():
    (script,) = entry_points(group="console_scripts", name="fda-supernode")
    assert script.load() is command.main
    said = subprocess.check_output([sys.executable, "-m", command.__name__, "--help"], text=True)
    assert said.startswith("usage: flower-supernode")
    assert "--auth-supernode-private-key" in said


def test_it_waits_less_and_has_a_launcher_meanwhile(monkeypatch):
    seen = {}

    def theirs(least, share, gate):
        seen.update(
            waits=(least, share), marks=gate.marks, path=os.environ["PATH"], environment=dict(os.environ)
        )

    path = os.environ["PATH"]
    monkeypatch.setattr(sys, "argv", ["fda-supernode"])
    monkeypatch.setattr(command, "run_supernode", theirs)
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5")
    command.main()
    assert seen["waits"] == (0.25, 0.05)
    assert seen["marks"] == {"gated": True}
    assert seen["environment"]["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] == "0.5", "one that is set stays"
    if sys.platform == "linux":
        assert seen["path"].endswith(path)
        assert seen["path"] != path
    assert os.environ["PATH"] == path


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ([], 1),
        (["--insecure", "--node-config", 'domain="a" role="target"'], 1),
        (["--node-config", "resident=false"], 1),
        (["--node-config=resident=true domain='a'", "--insecure"], 2),
        (["--node-config", "node.toml"], 2),
    ],
)
def test_the_launcher_has_what_flower_starts_and_one_for_a_resident_worker(
    arguments, number, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("node.toml").write_text('domain = "a"\nresident = true\n')
    first, *others = command.stages(Site.read(command.configured(arguments)))
    assert set(first.commands) == {"flower-superexec", "flwr-clientapp"}
    assert [list(each.commands) for each in others] == [[launched_worker()]] * (number - 1)
    for stage in (first, *others):
        for reference in (*stage.commands.values(), stage.prepare):
            assert callable(EntryPoint("", reference, "").load())


def test_a_rule_that_is_not_understood_keeps_it_from_starting(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fda-supernode", "--node-config", 'allow-method="fedavg"'])
    with pytest.raises(SystemExit, match="allow-method"):
        command.main()


@pytest.mark.parametrize("private", ["_push_messages", "_pull_and_store_message", "_insert_message"])
def test_without_what_its_gate_needs_of_flower_it_does_not_start(private, monkeypatch):
    monkeypatch.delattr(start_client_internal, private)
    monkeypatch.setattr(sys, "argv", ["fda-supernode", "--node-config", "min-samples=100"])
    with pytest.raises(SystemExit, match=f"no .*{private}.*the gate of fda-supernode fails: install"):
        command.main()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--node-config", 'domain="north" dp-noise=2.0', "--node-config=min-samples=9"],
            "only the last one",
        ),
        (["--node-config", 'domain="north" dp-noise = 2.0'], "'dp-noise = 2.0', which Flower leaves out"),
        (["--node-config", "node.conf"], "call it NAME.toml"),
    ],
)
def test_a_configuration_that_nobody_would_read_keeps_it_from_starting(arguments, words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fda-supernode", *arguments])
    with pytest.raises(SystemExit, match=words):
        command.main()


@pytest.mark.parametrize(("prepare", "is_there"), [("prepare", False), ("prepare_worker", True)])
def test_only_the_launcher_of_a_worker_holds_what_is_large(prepare, is_there):
    code = f"from fda_flower.client_app import {prepare}; {prepare}(); import sys; "
    code += "print([name in sys.modules for name in ('torch', 'sklearn', 'ray')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"[{is_there}, {is_there}, False]\n"
