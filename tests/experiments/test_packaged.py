"""Experiments by name: in a checkout, in an installed package, and in the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fda_flower import ConfigError
from fda_flower.experiments import packaged, read_experiment
from fda_flower.experiments.packaged import find_experiment, packaged_experiments

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
TABLES = "fda_flower/experiments/tables/"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory that is not a checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["fashion_mnist_noise", "fashion_mnist_noise.toml"])
def test_a_name_is_an_experiment_of_the_checkout(name):
    assert find_experiment(name) == ROOT / "experiments" / "fashion_mnist_noise.toml"
    assert read_experiment(name).name == "fashion_mnist_noise"


def test_all_experiments_of_the_checkout_are_known():
    assert len(NAMES) > 20
    assert list(packaged_experiments()) == NAMES


def test_an_installed_package_has_a_folder_of_its_own(tmp_path, monkeypatch):
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "mine.toml").write_text("")
    monkeypatch.setattr(packaged, "FOLDERS", (tables, *packaged.FOLDERS))
    assert packaged_experiments() == {"mine": tables / "mine.toml"}
    assert find_experiment("mine") == tables / "mine.toml"


@pytest.mark.parametrize("name", ["fashion_mnist_noise", "fashion_mnist_noise.toml"])
def test_a_file_that_exists_wins(tmp_path, name):
    (tmp_path / name).write_text("")
    assert find_experiment(name) == Path(name)


def test_a_path_is_a_path_even_if_it_does_not_exist():
    assert find_experiment("somewhere/fashion_mnist_noise") == Path("somewhere/fashion_mnist_noise")


@pytest.mark.parametrize("name", ["fashion_mnist", "fashion_mnist.toml"])
def test_an_unknown_name_lists_the_known_ones(tmp_path, name):
    (tmp_path / "fashion_mnist").mkdir()
    with pytest.raises(ConfigError) as caught:
        read_experiment(name)
    message = str(caught.value)
    assert message.startswith(
        f"unknown experiment '{name}' (did you mean 'beta_fashion_mnist'?): give the path"
    )
    assert message.endswith(", ".join(NAMES))


@pytest.mark.slow
def test_the_wheel_holds_every_experiment_and_nothing_else_of_its_folder(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    assert sorted(file for file in files if file.startswith(TABLES)) == [
        f"{TABLES}{name}.toml" for name in NAMES
    ]
    assert {file.split("/")[0] for file in files if ".dist-info/" not in file} == {"fda_flower"}
