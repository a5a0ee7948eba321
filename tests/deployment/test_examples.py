"""The examples in deploy/: what they start is what Flower's own parsers take."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
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


DOCKER, KUBERNETES = DEPLOY / "docker", DEPLOY / "kubernetes"
STAGES = {
    text.split()[0]: text
    for text in re.split(r"^FROM \S+ AS ", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), flags=re.M)
}
SERVICES = {
    name: service
    for file in ("compose.server.yaml", "compose.site.yaml")
    for name, service in yaml.safe_load((DOCKER / file).read_text(encoding="utf-8"))["services"].items()
}
PODS = {
    (pod := each["spec"]["template"]["spec"])["containers"][0]["name"]: pod
    for file in KUBERNETES.glob("*.yaml")
    for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if each["kind"] == "StatefulSet"
}


def of_image(stage, name):
    """The words of an instruction of an image, in its JSON form."""
    found = re.search(rf"^{name} (\[.*\])$", STAGES[stage], re.MULTILINE)
    return json.loads(found[1]) if found else []


COMMANDS = {
    **{unit.stem: shlex.split(command_of_unit(unit)[0]) for unit in UNITS},
    **{f"image {name}": of_image(name, "ENTRYPOINT") + of_image(name, "CMD") for name in SERVICES},
    **{f"compose {n}": of_image(n, "ENTRYPOINT") + each.get("command", []) for n, each in SERVICES.items()},
    **{
        f"pod {name}": of_image(name, "ENTRYPOINT") + pod["containers"][0].get("args", [])
        for name, pod in PODS.items()
    },
}


@pytest.mark.parametrize("started", COMMANDS)
def test_flower_takes_the_command_and_it_is_secure(started):
    program, *arguments = COMMANDS[started]
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


def test_an_image_has_its_users_state_on_a_volume_and_no_telemetry():
    assert "\nUSER 10001:10001\n" in STAGES["base"]
    assert "\nVOLUME /var/lib/fda-flower" in STAGES["base"]
    assert "FLWR_TELEMETRY_ENABLED=0" in STAGES["base"]
    for name in SERVICES:
        assert f"FROM base AS {name}\n" in (DOCKER / "Dockerfile").read_text(encoding="utf-8")
        program, option, code = of_image(name, "HEALTHCHECK .* CMD")
        assert (program, option) == ("python", "-c")
        compile(code, name, "exec")


def test_a_container_has_no_rights_and_mounts_what_its_command_reads():
    assert set(SERVICES) == set(PODS) == {"superlink", "supernode"}
    for name, service in SERVICES.items():
        assert (service["read_only"], service["cap_drop"], service["restart"]) == (True, ["ALL"], "always")
        assert service["build"]["target"] == name
        read = {word for word in of_image(name, "ENTRYPOINT") if word.startswith(("/run/", "/etc/"))}
        configs = {each["target"] for each in service.get("configs", ())}
        assert {f"/run/secrets/{secret}" for secret in service["secrets"]} | configs == read
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert writable == {"/var/lib/fda-flower", "/tmp"}
        mounted = tuple(each["mountPath"] for each in container["volumeMounts"])
        assert all(word.startswith(mounted) for word in of_image(name, "ENTRYPOINT") if word.startswith("/"))
    data = [each for each in SERVICES["supernode"]["volumes"] if isinstance(each, dict)]
    assert [(each["target"], each["read_only"]) for each in data] == [("/srv/fl", True)]


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", DOCKER / "Dockerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", *DOCKER.glob("compose.*.yaml")],
        ["kubernetes-validate", "--strict", *KUBERNETES.glob("*.yaml")],
    ],
    ids=lambda command: command[0],
)
def test_the_tools_of_containers_take_the_files(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_containers_node_configuration_names_what_is_mounted():
    node = tomllib.loads((DOCKER / "node.toml").read_text(encoding="utf-8"))
    assert node["data-dir"] == "/srv/fl"
    assert Path(node["state-dir"]).is_relative_to("/var/lib/fda-flower")


def test_the_node_configuration_has_a_role_and_a_domain():
    node = tomllib.loads((DEPLOY / "systemd" / "node.toml").read_text(encoding="utf-8"))
    assert node == {"domain": "source-1", "role": "source"}
