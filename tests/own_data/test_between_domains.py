"""Columns and classes compared between domains: what is said of them, and what is refused."""

from typing import Any

import numpy as np
import pytest

from fda_flower.datasets import DataSpec
from fda_flower.datasets.federation import load_domain
from fda_flower.errors import ConfigError
from fda_flower.own_data.between_domains import another_unit, coded_apart, only_at
from fda_flower.own_data.table import OwnTables

RNG = np.random.default_rng(0)


def write(folder, **sites):
    for name, rows in sites.items():
        lines = [",".join(map(str, row)) for row in rows]
        (folder / f"{name}.csv").write_text("\n".join(["age,sex,label", *lines]) + "\n")


def rows(label=(0, 1), words=("M", "F"), number=40):
    ages = RNG.normal(50, 10, number).round(1)
    return [(age, words[i % 3 % len(words)], label[i % len(label)]) for i, age in enumerate(ages)]


def numbers(spread=0.3):
    return {name: 80 * np.exp(RNG.normal(0, spread, 300)) for name in ("east", "north", "west")}


@pytest.mark.parametrize("factor", [1 / 18.02, 2.2046, 7.5, 10.9, 12, 38.67, 1000])
@pytest.mark.parametrize("site", ["east", "west"])
def test_a_column_in_another_unit_is_told_with_both_numbers(factor, site):
    values = numbers(0.2)
    values[site] = values[site] * factor
    (note,) = another_unit({"chol": values})
    assert "another unit?" in note
    about = {f"{np.exp(np.median(np.log(each))):.2g}" for each in values.values()}
    assert f"at {site}" in note
    assert len(about) > 1


@pytest.mark.parametrize(
    "values",
    [
        {name: each + shift for (name, each), shift in zip(numbers().items(), (0, 20, -15), strict=True)},
        {name: each * factor for (name, each), factor in zip(numbers(1.2).items(), (1, 4, 1), strict=True)},
        {"a": np.zeros(50), "b": RNG.normal(200, 30, 50)},
        {"a": RNG.integers(0, 5, 50), "b": 10 * RNG.integers(0, 5, 50)},
        {"a": RNG.normal(0, 1, 200), "b": RNG.normal(0, 2, 200)},
        {"a": np.array([5.0] * 10), "b": np.array([500.0] * 10)},
    ],
    ids=["shift", "skewed", "zeros", "codes", "around zero", "few"],
)
def test_other_patients_are_no_other_unit(values):
    assert another_unit({"x": {name: np.asarray(each, float) for name, each in values.items()}}) == []


def test_celsius_and_fahrenheit_differ():
    degrees = RNG.normal(37.2, 0.6, 100).round(1)
    assert another_unit({"temp": {"a": degrees, "b": (1.8 * degrees + 32).round(1)}})


def test_codes_from_0_and_from_1_are_told():
    codes = np.arange(40.0) % 2
    assert "codes" in coded_apart({"sex": {"a": codes, "b": codes + 1}})[0]
    assert coded_apart({"sex": {"a": codes, "b": np.ones(40)}}) == []


def test_many_words_are_cut():
    assert len(only_at({f"site{i}": map(str, range(i, i + 200)) for i in range(0, 4000, 200)})) < 600


@pytest.mark.parametrize(
    ("west", "said"),
    [((2, 3), "no class of the target 'west' (2, 3)"), ((1, 2), "0 only at east, north; 2 only at west")],
)
def test_classes_in_other_codes_are_refused(tmp_path, west, said):
    write(tmp_path, east=rows(), north=rows(), west=rows(west))
    spec = DataSpec(dataset="table", data_dir=str(tmp_path), dataset_options=(("ignore", "sex"),))
    with pytest.raises(ConfigError) as refusal:
        load_domain(spec, "east")
    assert said in str(refusal.value)


def test_classes_that_are_named_may_be_at_some_sites_only(tmp_path):
    write(tmp_path, east=rows(), north=rows(), west=rows((1, 2)))
    survey = OwnTables(tmp_path, 0, "east,north,west", ignore="sex", classes="0,1,2").survey
    assert not survey.problems
    assert "2 only at west" in " ".join(survey.notes)


def test_words_of_a_column_that_no_other_domain_has_are_refused_unless_listed(tmp_path):
    write(tmp_path, east=rows(), north=rows(words=("male", "female")), west=rows())
    options: dict[str, Any] = {"categorical": "onehot", "domains": "east,north,west"}
    (problem,) = OwnTables(tmp_path, 0, **options).survey.problems.entries.values()
    assert "north.csv' has none of the others' words" in str(problem)
    assert "female" not in str(problem)
    listed = OwnTables(tmp_path, 0, **options, categories="sex:M|F|male|female").survey
    assert not listed.problems
    assert "female, male only at north" in " ".join(listed.notes)
    write(tmp_path, east=rows(words=("M",)), north=rows(words=("F",)), west=rows(words=("X",)))
    assert not OwnTables(tmp_path, 0, **options).survey.problems


def test_a_file_that_is_no_domain_is_named_with_what_helps(tmp_path):
    write(tmp_path, east=rows(), north=rows(), west=rows())
    (tmp_path / "codebook.csv").write_text("column,meaning\nage,years\nlabel,0 healthy\n")
    survey = OwnTables(tmp_path, 0, "codebook,east,north,west", ignore="sex").survey
    (problem,) = survey.problems.entries.values()
    assert "no column in common" in str(problem)
    assert "domains=east,north,west" in str(problem)


def test_survival_and_several_labels_are_named_as_tasks_that_are_not_there(tmp_path):
    write(tmp_path, east=rows(("Edema", "Effusion|Edema")), west=rows(("Edema", "none")))
    (problem,) = OwnTables(tmp_path, 0, "east,west", ignore="sex").survey.problems.entries.values()
    assert "multilabel" in str(problem)
    for name in ("east", "west"):
        (tmp_path / f"{name}.csv").write_text("age,time,event\n" + "50,3,1\n61,4,0\n" * 5)
    assert "look like a survival" in str(
        next(iter(OwnTables(tmp_path, 0, "east,west").survey.problems.entries.values()))
    )
