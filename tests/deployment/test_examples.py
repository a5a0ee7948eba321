"""The examples in deploy/: what they start is what Flower's own parsers take."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PARSERS = {"flower-superlink": _parse_args_run_superlink, "fda-supernode": _parse_args_run_supernode}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def command_of_unit(path):
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser["Service"]["ExecStart"], dict(parser["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_flower_takes_the_command_and_it_is_secure(unit):
    program, *arguments = shlex.split(command_of_unit(unit)[0])
    name = Path(program).name
    options = PARSERS[name]().parse_args(arguments)
    assert not options.insecure
    if name == "flower-superlink":
        assert options.enable_supernode_auth
        assert not options.runtime_dependency_install
        assert None not in (options.ssl_ca_certfile, options.ssl_certfile, options.ssl_keyfile)
        assert options.database
    else:
        assert options.auth_supernode_private_key
        assert options.root_certificates
        assert options.node_config.endswith(".toml")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_restarted_for_ever_after_a_pause(unit):
    _, service = command_of_unit(unit)
    assert service["Restart"] == "always"
    assert int(service["RestartSec"]) >= 10
    assert "\nStartLimitIntervalSec=0\n" in unit.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_unit(unit, tmp_path):
    text = unit.read_text(encoding="utf-8").replace("/opt/fda-flower/bin", str(Path(sys.executable).parent))
    (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_node_configuration_has_a_role_and_a_domain():
    node = tomllib.loads((DEPLOY / "systemd" / "node.toml").read_text(encoding="utf-8"))
    assert node == {"domain": "source-1", "role": "source"}
