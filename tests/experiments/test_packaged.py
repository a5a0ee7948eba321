"""Experiments by name: in a checkout, in an installed package, and in the wheel."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from naming import names

from fda_flower import ConfigError
from fda_flower.experiments import definition, read_experiment
from fda_flower.experiments.definition import find_experiment, packaged_experiments
from fda_flower.records.folder import RunFolder

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "experiments" / "tables").glob("*.toml"))
TABLES = "fda_flower/experiments/tables/"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory that is not a checkout."""
    monkeypatch.chdir(tmp_path)


def test_all_experiments_of_the_checkout_are_known_by_their_names():
    assert len(NAMES) > 20
    assert list(packaged_experiments()) == NAMES
    for name in ("fashion_mnist_noise", "fashion_mnist_noise.toml"):
        assert find_experiment(name) == ROOT / "experiments" / "tables" / "fashion_mnist_noise.toml"
    assert read_experiment("fashion_mnist_noise").name == "fashion_mnist_noise"


def test_an_installed_package_has_a_folder_of_its_own(tmp_path, monkeypatch):
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "mine.toml").write_text("")
    monkeypatch.setattr(definition, "FOLDERS", (tables, *definition.FOLDERS))
    assert packaged_experiments() == {"mine": tables / "mine.toml"}
    assert find_experiment("mine") == tables / "mine.toml"


def test_a_file_that_exists_wins_and_a_path_is_a_path_even_if_it_does_not(tmp_path):
    for name in ("fashion_mnist_noise", "fashion_mnist_noise.toml"):
        (tmp_path / name).write_text("")
        assert find_experiment(name) == Path(name)
    assert find_experiment("somewhere/fashion_mnist_noise") == Path("somewhere/fashion_mnist_noise")


@pytest.mark.parametrize("name", ["fashion_mnist", "fashion_mnist.toml"])
def test_an_unknown_name_lists_the_known_ones(tmp_path, name):
    (tmp_path / "fashion_mnist").mkdir()
    with pytest.raises(ConfigError, check=names("experiment", name, ", ".join(NAMES))):
        read_experiment(name)


def run(*command, **variables):
    """Run a command in an environment of which PYTHONPATH is no part; what it says."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
@pytest.mark.smoke
def test_the_wheel_holds_every_experiment_and_nothing_else_of_its_folder(wheel):
    files = zipfile.ZipFile(wheel).namelist()
    assert sorted(file for file in files if file.startswith(TABLES)) == [
        f"{TABLES}{name}.toml" for name in NAMES
    ]
    assert {file.split("/")[0] for file in files if ".dist-info/" not in file} == {"fda_flower"}


@pytest.mark.slow
@pytest.mark.smoke
def test_the_wheel_works_in_a_fresh_environment_as_a_plug_in_and_with_the_extras_as_the_command(
    wheel, tmp_path
):
    venv = tmp_path / "venv"
    python, fda = venv / "bin" / "python", venv / "bin" / "fda"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    constraints = ("--constraint", ROOT / "constraints.txt")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    done = run(*pip, *constraints, wheel)
    assert done.returncode == 0, done.stderr
    done = run(python, "-c", "import fda_flower.strategies as s; print(s.FedGP(), s.__file__)")
    assert str(venv) in done.stdout, done.stderr
    small = ("run", "--model", "mlp", "--rounds", "1", "--device", "cpu", "--output", tmp_path / "run")
    done = run(fda, *small)
    assert (done.returncode, "pip install 'fda-flower[torch]'" in done.stderr) == (2, True), done.stderr
    # The extras are gigabytes: they are those of this environment.
    done = run(fda, *small, PYTHONPATH=sysconfig.get_path("purelib"))
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "run").read_rounds()[0]["round"] == 1
