"""The rehearsal: a node a domain, one run, and nothing left but the output folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from naming import names
from sites import run_sites
from waiting import running_in, until
from whole_runs import same_bits

from fda_flower import RunConfig, run
from fda_flower.deployment import rehearse
from fda_flower.deployment.rehearsal import node_configs
from fda_flower.errors import ConfigError
from fda_flower.running.run import run_config
from fda_flower.strategies import RunFolder


@pytest.mark.parametrize("resident", [True, False])
def test_there_is_a_node_for_each_domain_with_its_role(tmp_path, resident):
    roles = {"source-1": "source", "source-2": "source", "target": "target"}
    assert node_configs(RunConfig(sources=2), tmp_path, resident) == {
        domain: {
            **{"domain": domain, "role": role, "state-dir": f"{tmp_path}/{domain}", "resident": resident},
            "require-secure": False,
        }
        for domain, role in roles.items()
    }


@pytest.mark.parametrize("in_one", [False, True], ids=["files", "one table"])
def test_sites_with_tables_get_what_one_machine_finds_and_say_who_is_a_patient(in_one, tmp_path):
    data = tmp_path / "hospitals"
    data.mkdir()
    for seed, name in enumerate(("north", "south", "west")):
        drawn, lines = np.random.default_rng(seed), ["patient,age,ward,outcome"]
        for row in range(40):
            words = drawn.choice(["a|b", "c"]), drawn.choice(["ill", "well, again"])
            lines.append(f'{name}{row // 2},{drawn.integers(90)},{words[0]},"{words[1]}"')
        (data / f"{name}.csv").write_text("\n".join(lines))
    (data / "fda.toml").write_text('label = "outcome"\ngroup = "patient"\ncategorical = "onehot"')
    if in_one:
        tables = [pd.read_csv(path).assign(site=path.stem) for path in data.glob("*.csv")]
        pd.concat(tables).to_csv(tmp_path / "hospitals" / "all.tsv", index=False, sep="\t")
        (data / "fda.toml").write_text(f'{(data / "fda.toml").read_text()}\ndomain = "site"')
        data /= "all.tsv"
    config = RunConfig(dataset="table", data_dir=str(data), model="logistic", method="fedavg", rounds=1)
    model, _ = run_sites(config, [*node_configs(config, tmp_path / "sites", resident=False).values()])
    assert same_bits(model, run_config(config).model)


def test_nodes_have_the_runs_noise_and_the_target_alone_is_open(tmp_path):
    noise: dict[str, Any] = {"dp_unit": "patient", "dp_group": "row", "max_epsilon": 4.0}
    nodes = node_configs(
        RunConfig(sources=2, method="ridge", dp_open_target=True, **noise), tmp_path, resident=False
    )
    shown = {name.replace("_", "-"): value for name, value in noise.items()}
    assert all(shown.items() <= node.items() for node in nodes.values())
    assert [name for name, node in nodes.items() if "dp-open-target" in node] == ["target"]


@pytest.mark.parametrize("name", ["out/config.json", "out"])
def test_an_output_that_is_there_is_refused_before_anything_starts(tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").touch()
    with pytest.raises(ConfigError, check=names(str(tmp_path / name))):
        rehearse(RunConfig(rounds=1), tmp_path / name, on_step=pytest.fail)


# The real thing


@pytest.fixture
def start(tmp_path, tmp_path_factory):
    """Starts the command in folders of its own; it is killed after the test if it still runs."""
    commands = []

    def start(*options):
        for name in ("tmp", "home"):
            (tmp_path / name).mkdir()
        folders = {
            "TMPDIR": str(tmp_path / "tmp"),
            "HOME": str(tmp_path / "home"),
            "MPLCONFIGDIR": str(tmp_path_factory.mktemp("matplotlib")),
        }
        command = subprocess.Popen(
            [
                *(sys.executable, "-c", "from fda_flower.cli import main; main()"),
                *("deploy", "rehearse", "--output", "out", "--device", "cpu"),
                *("--method", "fedgp-auto", *options),
            ],
            cwd=tmp_path,
            env={**os.environ, **folders, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell that starts tests in the background has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        commands.append(command)
        return command

    yield start
    for command in commands:
        if command.poll() is None:
            command.terminate()
            command.wait()


def left_over(tmp_path):
    """Processes of a rehearsal that has ended, and files that are not its output."""
    # os.walk passes over a folder that is deleted meanwhile
    paths = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    files = sorted(str(path.relative_to(tmp_path)) for path in paths)
    return running_in(tmp_path), [name for name in files if not name.startswith("out/")]


@pytest.mark.slow
def test_the_command_ends_with_the_table_of_a_run_with_the_bits_of_a_local_one(start, tmp_path):
    done = start("--seed", "3", "--rounds", "1", "--data-dir", "data")
    said, _ = done.communicate()
    assert done.returncode == 0, said
    assert "round 1/1: target " in said
    assert "β of source-2" in said
    local = run(sources=2, rounds=1, seed=3, device="cpu")
    checkpoint = RunFolder(tmp_path / "out").load_checkpoint()
    assert checkpoint.round == 1
    assert same_bits(checkpoint.model, local.model)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"rounds.jsonl", "summary.json", "logs"}
    about = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert about["settings"]["data_dir"] == str(tmp_path / "data"), "nodes run in folders of their own"
    assert left_over(tmp_path) == ([], [])


@pytest.mark.slow
def test_masked_sums_over_a_superlink_give_the_head_of_a_local_run(start, tmp_path):
    done = start("--method", "ridge", "--method-option", "secure=true", "--sources", "3")
    said, _ = done.communicate()
    assert done.returncode == 0, said
    (line,) = (tmp_path / "out" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    assert (record["held"], record["dropped"], record["ridge"]["secure"]) == (None, [], True)
    local = run(method="ridge", sources=3, device="cpu")
    model = RunFolder(tmp_path / "out").load_checkpoint().model
    for name, array in local.model.items():
        np.testing.assert_allclose(np.float64(model[name]), np.float64(array), atol=1e-5)
    logs = (tmp_path / "out" / "logs").glob("source-*.log")
    assert ["sums leave masked" in path.read_text(encoding="utf-8") for path in logs] == [True] * 3


def until_it_says(command, text):
    said = ""
    while text not in said:
        line = command.stdout.readline()
        assert line, f"the command has ended: {said}"
        said += line


def until_it_runs(command, tmp_path):
    until_it_says(command, "Running 500 rounds")
    until(lambda: len(running_in(tmp_path)) >= 8)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_takes_everything_down(start, tmp_path, number):
    command = start("--rounds", "500")
    until_it_runs(command, tmp_path)
    command.send_signal(number)
    command.communicate()
    assert command.returncode != 0
    assert left_over(tmp_path) == ([], [])


@pytest.mark.slow
def test_no_process_and_no_key_outlives_a_command_that_is_killed_while_the_run_goes_on(start, tmp_path):
    command = start("--rounds", "500")
    until_it_says(command, "round 1/500")
    assert list(tmp_path.rglob("ca.key"))
    command.kill()
    command.communicate()
    until(lambda: left_over(tmp_path) == ([], []))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["the link itself", "its guard"])
def test_a_superlink_that_is_killed_ends_the_rehearsal_with_what_it_said(start, tmp_path, which):
    command = start("--rounds", "1000")
    until_it_says(command, "round 1/1000")
    links = [process for process in running_in(tmp_path) if "flower-superlink" in " ".join(process.cmdline())]
    (guard,) = [process for process in links if process.ppid() == command.pid]
    (link,) = guard.children()
    (guard if which == "its guard" else link).kill()
    said, _ = command.communicate()
    assert command.returncode == 1, said
    assert "superlink ended with exit code" in said
    assert "fda_flower" not in said.partition("Traceback")[2], "Flower's processes may say where they were"
    assert (tmp_path / "out" / "logs" / "superlink.log").exists()
    assert left_over(tmp_path) == ([], [])
