"""The settings of a federation's data: defaults, chosen sources, and what is refused."""

import math
from unittest.mock import ANY

import pytest
from naming import names
from sites import write_images, write_table

from fda_flower.datasets import PARTITIONS, SHIFTS, DataSpec
from fda_flower.datasets.folders import visible
from fda_flower.errors import ConfigError

pytestmark = pytest.mark.usefixtures("loads")


@pytest.mark.parametrize(
    ("dataset", "shift", "domains"),
    [
        ("digits", "rotate", ["source-1", "source-2", "source-3", "target"]),
        ("colored-mnist", "color", ["+90%", "+80%", "-90%"]),
        ("cifar-10", "noise", ["source-1", "source-2", "source-3", "target"]),
        ("materials", None, ["brick", "glass", "wood"]),
    ],
)
def test_without_a_shift_the_data_sets_own_is_taken(dataset, shift, domains):
    spec = DataSpec(dataset)
    assert (spec.shift, spec.domain_names, spec.target_name) == (shift, domains, domains[-1])
    assert spec == DataSpec(dataset, shift)


def test_shift_and_number_of_sources_may_be_chosen():
    assert DataSpec("colored-mnist", "noise").shift == "noise"
    for count in (1, 2, 7):
        expected = [*(f"source-{i}" for i in range(1, count + 1)), "target"]
        assert DataSpec("digits", "rotate", num_sources=count).domain_names == expected
    assert DataSpec("digits", "color", num_sources=2).domain_names == ["+90%", "+80%", "-90%"]
    assert DataSpec("digits", "color", partition="even").partition == "even"


def test_only_the_sources_named_take_part_in_the_data_sets_order():
    spec = DataSpec("digits", "noise", num_sources=4, only_sources=("source-3", "source-1"))
    assert spec.domain_names == ["source-1", "source-3", "target"]
    assert spec.source_names == ["source-1", "source-3"]
    assert DataSpec("materials", target="glass", only_sources=("wood",)).domain_names == ["glass", "wood"]


def test_the_option_domains_names_them_and_the_last_is_the_target():
    spec = DataSpec("table", dataset_options=(("domains", "rome, paris,oslo"),))
    assert (spec.domain_names, spec.target_name) == (["rome", "paris", "oslo"], "oslo")
    other = DataSpec("images", target="rome", dataset_options=(("domains", "rome,New York"),))
    assert (other.source_names, other.target_name) == (["New York"], "rome")


@pytest.mark.parametrize(
    ("settings", "thing", "value", "remedy"),
    [
        ({"dataset": "letters"}, "data set", "letters", "rbf, table, terra-incognita"),
        ({"shift": "blur"}, "shift", "blur", ", ".join(sorted(SHIFTS))),
        ({"partition": "striped"}, "partition", "striped", "dirichlet, even, labels"),
        ({"num_sources": 0}, "sources", 0, "at least 1"),
        *(({"shift": "color", "num_sources": count}, "sources", count, "") for count in (1, 3)),
        ({"target_samples": 0}, "target-samples", "0", "at least 1"),
        ({"source_samples": 0}, "source-samples", "0", "at least 1"),
        ({"test_samples": "0%"}, "test-samples", "0%", ""),
        ({"target": "source-9"}, "target domain", "source-9", "source-1, source-2, source-3, target"),
        ({"shift": "color", "target": "target"}, "target domain", "target", "+80%, +90%, -90%"),
        ({"shift": "color", "partition": "labels"}, "partition", "labels", "leave it out"),
        ({"only_sources": ("source-9",)}, "source", "source-9", "source-1, source-2, source-3"),
        ({"only_sources": ("source-1", "nobody")}, "source", "nobody", ""),
        ({"only_sources": ("target",)}, "source", "target", "source-1, source-2, source-3"),
        ({"dataset": "materials", "only_sources": ("wood",)}, "source", "wood", "brick, glass"),
        ({"dataset": "materials", "only_sources": ()}, "only-sources", (), "brick, glass"),
        ({"dataset": "materials", "shift": "noise"}, "shift", "noise", "leave it out"),
        ({"dataset": "materials", "num_sources": 2}, "sources", 2, "leave it out"),
        ({"dataset": "materials", "partition": "labels"}, "partition", "labels", "leave it out"),
        ({"dataset": "materials", "shift_options": (("std", 1),)}, "data set", "materials", "leave them out"),
        ({"dataset": "materials", "target": "steel"}, "target domain", "steel", "brick, glass, wood"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_before_anything_is_loaded(loads, settings, thing, value, remedy):
    with pytest.raises(ConfigError, check=names(thing, value, remedy)):
        DataSpec(**{"dataset": "digits", **settings})
    assert loads == []


@pytest.mark.parametrize("dataset", ["images", "table"])
@pytest.mark.parametrize(
    ("domains", "settings", "thing", "value", "remedy"),
    [
        ("", {}, "option 'domains'", None, "--data-dir"),
        ("", {"data_dir": "/nowhere"}, "data-dir", "/nowhere", "name the domains"),
        ("a,,b", {}, "option 'domains'", "a,,b", "separated by commas"),
        ("a", {}, "option 'domains'", "a", "two domains"),
        ("a,b", {"shift": "noise"}, "shift", "noise", "leave it out"),
        ("a,b", {"target": "c"}, "target domain", "c", "a, b"),
    ],
)
def test_invalid_domains_are_refused(dataset, domains, settings, thing, value, remedy):
    options = (("domains", domains),) if domains else ()
    with pytest.raises(ConfigError) as caught:
        DataSpec(dataset, dataset_options=options, **settings)
    assert (caught.value.thing, str(caught.value.value)) == (thing, str(value))
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "name", "option", "value", "remedy"),
    [
        ("shift", "rotate", "colour", 1, "angle, invert"),
        ("shift", "color", "angle", 1, "it has no options"),
        ("shift", "rotate", "angle", "steep", "give a number"),
        ("shift", "rotate", "invert", "maybe", "true or false"),
        ("partition", "even", "k", 3, "it has no options"),
        ("partition", "dirichlet", "k", 3, "alpha"),
        ("partition", "dirichlet", "alpha", "big", "give a number"),
        ("partition", "labels", "k", "2.5", "give a whole number"),
        ("partition", "labels", "target", "perhaps", "true or false"),
        ("dataset", "materials", "colour", "red", "image_size"),
        ("dataset", "materials", "image_size", "big", "give a whole number"),
        ("dataset", "materials", "seed", 3, "image_size"),
        ("dataset", "materials", "data_dir", "x", "image_size"),
    ],
)
def test_an_option_that_is_unknown_or_of_another_type_is_refused(loads, kind, name, option, value, remedy):
    given = {"dataset": "digits", kind: name, f"{kind}_options": ((option, value),)}
    with pytest.raises(ConfigError, match=name, check=names("option", option, remedy)):
        DataSpec(**given)
    assert loads == []


@pytest.mark.parametrize(
    ("kind", "name", "option", "value"),
    [
        *(("shift", "rotate", "angle", value) for value in (math.nan, math.inf)),
        *(("shift", "noise", "std", value) for value in (-1.0, math.nan, math.inf)),
        *(("shift", "label", "eta", value) for value in (-0.1, 0.51, 1.0, math.nan)),
        *(("partition", "dirichlet", "alpha", value) for value in (0.0, -1.0, math.nan, math.inf)),
        ("partition", "labels", "k", 0),
    ],
)
def test_an_option_out_of_range_is_refused(kind, name, option, value):
    registry = SHIFTS if kind == "shift" else PARTITIONS
    with pytest.raises(ConfigError, check=names(f"option '{option}' of {kind} '{name}'", ANY)) as caught:
        registry[name](**{option: value})
    assert str(caught.value.value) == str(value)


def test_it_has_no_shift_object():
    with pytest.raises(ConfigError, check=names("data set", "materials")):
        _ = DataSpec("materials").shift_object


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        ("table", lambda folder: write_table(folder.with_suffix(".csv"), 0)),
        ("images", lambda folder: write_images(folder, 0)),
    ],
)
def test_options_in_the_datas_folder_count_unless_they_are_given(dataset, write, tmp_path):
    for name in ("north", "south", "west"):
        write(tmp_path / name)
    (tmp_path / "fda.toml").write_text('domains = ["west", "north"]\nclasses = "0,1"')
    for given, expected in ({}, ["west", "north"]), ({"domains": "south,north"}, ["south", "north"]):
        spec = DataSpec(dataset, data_dir=str(tmp_path), dataset_options=tuple(given.items()))
        assert spec.domain_names == expected
        assert dict(spec.dataset_options).items() >= {"domains": ",".join(expected), "classes": "0,1"}.items()
    assert not [path for path in visible(tmp_path) if path.name == "fda.toml"], "it is no data"


@pytest.mark.parametrize(
    ("text", "thing", "value"),
    [("lable = 'x'", "option", "lable"), ("task = 'guess'", "option", "task"), ("x", "options file", ANY)],
)
def test_an_options_file_is_read_as_strictly_as_the_command_line(text, thing, value, tmp_path):
    (tmp_path / "fda.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"fda\.toml", check=names(thing, value)):
        DataSpec("table", data_dir=str(tmp_path), dataset_options=(("domains", "north,west"),))
