"""Entry points of other packages: errors in them, and what they cannot do."""

import importlib
import sys

import pytest
from installed import describe, install
from naming import names

from fda_flower import ConfigError
from fda_flower.datasets import DATASETS, Dataset
from fda_flower.models import MODELS, Model
from fda_flower.names.registry import Registry

OURS = {"datasets": (Dataset, dict(DATASETS)), "models": (Model, dict(MODELS))}
"""By group the kind of an entry, and the entries of this package, read before others are installed."""

SOURCE = """
from fda_flower.datasets import Dataset

ENTRY = Dataset("made for a test", "others:load")
BROKEN = Dataset("made for a test", "others:laod")
NUMBER = 3


def load(data_dir, seed): ...
"""


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Install a package `others` that names a data set or a model by an entry point."""

    def add(group, name, value):
        entry_points = f'[project.entry-points."fda_flower.{group}"]\n{name} = "{value}"\n'
        install(tmp_path, {"__init__": SOURCE}, entry_points, name="others")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "others", raising=False)
        importlib.invalidate_caches()
        return Registry(group, *OURS[group])  # type: ignore[arg-type]

    return add


def test_an_entry_point_is_loaded_on_first_use(add):
    registry = add("datasets", "mine", "others:ENTRY")
    assert "mine" in registry
    assert list(registry) == [*DATASETS, "mine"]
    assert "others" not in sys.modules
    assert registry["mine"].summary == "made for a test"
    assert registry["mine"].loader.func is sys.modules["others"].load


@pytest.mark.parametrize(
    ("group", "value", "message"),
    [
        ("datasets", "nowhere:ENTRY", "No module named 'nowhere'"),
        ("models", "others:NOTHING", "has no attribute 'NOTHING'"),
        ("datasets", "others:NUMBER", f"{Dataset.__module__}.Dataset"),
        ("models", "others:ENTRY", "fda_flower.models.Model"),
    ],
)
def test_an_invalid_one_is_an_error_that_names_it(add, group, value, message):
    registry = add(group, "mine", value)
    with pytest.raises(ConfigError, check=names("mine", None)) as caught:
        _ = registry["mine"]
    for words in (value, message):
        assert words in str(caught.value)


def test_a_reference_to_nothing_is_an_error_that_names_it(add):
    with pytest.raises(ConfigError, check=names("others:laod", None)):
        _ = add("datasets", "mine", "others:BROKEN")["mine"].loader


def test_one_does_not_take_the_place_of_a_name_of_ours_which_is_logged_once(add, caplog):
    registry = add("datasets", "digits", "others:ENTRY")
    assert registry["digits"] is registry["digits"] is DATASETS["digits"]
    assert (list(registry), registry.added) == (list(DATASETS), ())
    (line,) = caplog.messages
    assert "'digits' of fda_flower.datasets is fda-flower's own, not others:ENTRY of others" in line


def test_a_name_that_two_packages_add_is_an_error_that_names_both_unless_they_mean_one_thing(add, tmp_path):
    describe(tmp_path, "elders", '[project.entry-points."fda_flower.datasets"]\nmine = "others:ENTRY"\n')
    assert add("datasets", "mine", "others:ENTRY")["mine"].summary == "made for a test"
    describe(tmp_path, "youngs", '[project.entry-points."fda_flower.datasets"]\nmine = "others:BROKEN"\n')
    with pytest.raises(ConfigError, check=names("mine", None, "uninstall")) as caught:
        _ = Registry("datasets", *OURS["datasets"])["mine"]  # type: ignore[arg-type]
    assert "others:BROKEN of youngs and others:ENTRY of " in str(caught.value)
