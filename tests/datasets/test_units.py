"""A patient's samples: named by an option, kept together, and told where they contradict each other."""

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets.arrow_dataset import Dataset
from datasets.features import Image as Picture
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from naming import names
from PIL import Image

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.federation import forget
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import HeldOut, divide, hold_out, numbered
from fda_flower.datasets.units import Grouping, in_several_domains
from fda_flower.errors import ConfigError

Row = tuple[str, str, str]
"""A sample's domain, patient and class."""

ROWS = [
    (domain, f"{domain}{i // 3:02}", "ill" if i // 3 % 2 else "well") for domain in "ab" for i in range(60)
]
"""Two domains of 20 patients with three samples each."""


def numbers(i):
    """Three numbers of a sample."""
    return np.random.default_rng(i).integers(1, 255, 3).tolist()


def write_table(folder, rows, **more):
    for domain in {row[0] for row in rows}:
        lines = ["age,height,patient,label"]
        for i, (where, patient, label) in enumerate(rows):
            age, height, _ = numbers(i)
            lines += [f"{age}.5,{height}.25,{patient},{label}"] if where == domain else []
        (folder / f"{domain}.csv").write_text("\n".join(lines))
    return {"group": "patient"}


def write_images(folder, rows, of_folder):
    seen = dict[str, int]()
    for i, (domain, patient, label) in enumerate(rows):
        number = seen[patient] = seen.get(patient, 0) + 1
        name = f"{patient}/{number}.png" if of_folder else f"{patient}_{number}.png"
        path = folder / domain / label / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(i).save(path)
    return {"group": "folder" if of_folder else "^([^_]+)_"}


def picture(i):
    return Image.fromarray(np.full((8, 8, 3), numbers(i), dtype=np.uint8))


def write_folders(folder, rows):
    return write_images(folder, rows, of_folder=True)


def write_names(folder, rows):
    return write_images(folder, rows, of_folder=False)


def write_saved(folder, rows, pictures=False):
    columns: dict[str, Any] = dict(
        zip(("site", "patient", "label"), map(list, zip(*rows, strict=True)), strict=True)
    )
    if pictures:
        columns["image"] = [picture(i) for i in range(len(rows))]
    else:
        columns |= {
            "age": [numbers(i)[0] + 0.5 for i in range(len(rows))],
            "height": [numbers(i)[1] + 0.25 for i in range(len(rows))],
        }
    made = Dataset.from_dict(columns)
    (made.cast_column("image", Picture()) if pictures else made).save_to_disk(folder)
    return {"group": "patient", "domain": "site"}


def write_pictures(folder, rows):
    return write_saved(folder, rows, pictures=True)


WRITERS = {
    "table": ("table", write_table),
    "folders": ("images", write_folders),
    "names": ("images", write_names),
    "hf": ("hf", write_saved),
    "pictures": ("hf", write_pictures),
}


@pytest.fixture(params=WRITERS)
def made(request, tmp_path):
    """A function that writes samples as a kind of data, and returns the spec that reads them."""
    dataset, write = WRITERS[request.param]

    def make(rows=ROWS, **options):
        found = {**write(tmp_path / "data", rows), **options}
        forget()
        return DataSpec(dataset, data_dir=str(tmp_path / "data"), dataset_options=tuple(found.items()))

    (tmp_path / "data").mkdir()
    yield make
    forget()


def patients(samples: Samples) -> set[int]:
    assert samples.groups is not None
    return {*samples.groups.tolist()}


def test_a_patient_is_trained_or_tested_on_and_has_a_number_by_name(made, caplog):
    for domain in load_federation(made()).domains.values():
        assert (len(domain.train), len(domain.test)) == (48, 12)
        assert (domain.train.units, domain.test.units) == (16, 4)
        assert not patients(domain.train) & patients(domain.test)
        assert patients(domain.train) | patients(domain.test) == {*range(20)}
        for part in (domain.train, domain.test):
            classes = [1 - group % 2 for group in part.groups.tolist()]
            assert part.y.tolist() == classes, "a patient's number follows from the name"
        assert int((domain.test.y == 0).sum()) == 6, "stratified"
    assert not [line for line in caplog.messages if "patient" in line or "beginnings" in line]


def test_the_order_of_samples_changes_no_division(made):
    first = load_federation(made()).domains
    rows = [*ROWS]
    random.Random(3).shuffle(rows)
    again = load_federation(made(rows)).domains
    for name, domain in first.items():
        assert patients(domain.test) == patients(again[name].test)
        assert np.bincount(domain.test.y).tolist() == np.bincount(again[name].test.y).tolist()


@settings(max_examples=60, deadline=None)
@drawn(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 4)),
        min_size=12,
        max_size=30,
        unique_by=lambda each: each[0],
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([HeldOut(0.2), HeldOut(0.3), HeldOut(folds=3, fold=2)]),
    st.booleans(),
)
def test_folds_depend_on_who_is_whose_patient_alone(sizes, shuffled, what, regression):
    rows = [(str(patient), patient % 2) for patient, count in sizes for _ in range(count)]

    def parts(rows):
        groups, labels = zip(*rows, strict=True)
        y = np.array(labels, np.float64 if regression else np.int64)
        samples = Samples(np.zeros((len(y), 1)), y[:, None] if regression else y, groups=numbered(groups))
        held = hold_out(samples, what, 5, "a")[1].groups.tolist()
        test = divide(y, 5, "a", groups=groups)[1].tolist()
        return {*held}, {groups[i] for i in test}

    other = [*rows]
    shuffled.shuffle(other)
    assert parts(rows) == parts(other)


@pytest.mark.parametrize("validation", ["fold:1/5", "fold:4/4"])
def test_fewer_patients_than_folds_are_refused_with_their_number(made, validation):
    spec = made([row for row in ROWS if row[1][1:] < "04"])
    with pytest.raises(ConfigError, match="3 patients: give those of", check=names("validation")):
        load_domain(replace(spec, validation=validation), "b")


def test_a_part_without_a_case_is_told(made, caplog):
    rows = [(domain, patient, "ill" if patient[1:] == "03" else "well") for domain, patient, _ in ROWS]
    load_federation(made(rows))
    said = [line for line in caplog.messages if "no sample in" in line]
    assert len(said) == 2
    assert all(line.endswith("is of ill") for line in said)


def test_a_patient_of_two_domains_or_two_classes_is_named_with_counts(made, caplog):
    rows = [*ROWS, ("b", "a04", "well"), ("b", "b05", "well")]
    load_federation(made(rows))
    (several,) = [line for line in caplog.messages if "several domains" in line]
    assert "1, 'a04' (3 in a, 1 in b)" in several
    (classes,) = [line for line in caplog.messages if "several classes" in line]
    assert "1, 'b05' (3 in ill, 1 in well)" in classes
    assert "leave them out" in several
    assert "leave them out" in classes
    assert "group" not in several + classes


def test_a_patient_of_two_domains_is_named_in_either_spelling_and_one_without_a_name_is_none():
    (told,) = in_several_domains({"a": ["07", "P1", "8", ""], "b": ["7", "p1", "9", ""]})
    assert "2, '07' (1 in a, 1 in b), 'P1' (1 in a, 1 in b);" in told
    assert not in_several_domains({"a": ["8", ""], "b": ["9", ""]})


@pytest.mark.parametrize("two", ["a01 ,a02", "A01,a02"])
def test_names_that_look_alike_are_refused(made, two):
    spellings = dict(zip(("a01", "a02"), two.split(","), strict=True))
    seen = dict[str, int]()
    rows = []
    for domain, patient, label in ROWS:
        seen[patient] = seen.get(patient, 0) + 1
        rows.append((domain, spellings.get(patient, patient) if seen[patient] == 1 else patient, label))
    if two.startswith("A"):
        with pytest.raises(ConfigError, match="case, spacing, marks or zeros"):
            load_domain(made(rows), "a")
    else:
        assert load_domain(made(rows), "a").domains["a"].train.units == 16


@pytest.mark.parametrize(
    ("group", "thing", "says"),
    [
        ("[", "option 'group'", "no pattern"),
        ("^(x+)_", "domain folder", "60 of 60"),
        ("^(a0[0-8])_", "domain folder", "33 of 60"),
        ("folder", "domain folder", "in a folder of a patient"),
    ],
)
def test_a_pattern_that_names_no_patient_is_refused_with_the_number_of_files(tmp_path, group, thing, says):
    write_names(tmp_path, ROWS)
    with pytest.raises(ConfigError, match=says, check=names(thing)):
        load_domain(DataSpec("images", data_dir=str(tmp_path), dataset_options=(("group", group),)), "a")


def test_a_patient_in_both_parts_of_a_given_split_is_named_here_and_counted_in_the_error(tmp_path, caplog):
    for site in "ab":
        rows = [f"{site}{i // 3:02},{i}.5,{'test' if i > 24 else 'train'},{i % 2}" for i in range(30)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["patient,age,split,label", *rows]))
    spec = DataSpec("table", data_dir=str(tmp_path), dataset_options=(("group", "patient"),))
    with pytest.raises(ConfigError, check=names("groups", 1, "leave them out of one part")) as error:
        load_domain(spec, "a")
    assert "a08" not in str(error.value)
    (said,) = [line for line in caplog.messages if "in training and in test" in line]
    assert "1, 'a08' (1 in train, 2 in test)" in said


@pytest.mark.parametrize("depth", ["auto", "8"])
def test_no_noise_protects_a_patient_of_images_whose_depth_is_found_in_all(tmp_path, depth):
    given = {**write_folders(tmp_path, ROWS), "depth": depth, "image_size": 8}
    spec = DataSpec("images", data_dir=str(tmp_path), dataset_options=tuple(given.items()))
    domain = load_domain(spec, "a").domains["a"]
    with (
        nullcontext()
        if depth == "8"
        else pytest.raises(ConfigError, check=names("dp-unit", "patient", "depth"))
    ):
        domain.check_patients()


def test_folders_of_patients_are_refused_without_the_option_that_reads_them(tmp_path):
    write_folders(tmp_path, ROWS)
    with pytest.raises(ConfigError, check=names("domain folder", remedy="group=folder")):
        DataSpec("images", data_dir=str(tmp_path))


def test_a_pattern_finds_the_first_parenthesis_or_the_whole_match():
    find = lambda pattern, name: Grouping.read(pattern).patient(Path(name))  # noqa: E731
    assert find("^([^_]+)_", "p01_2.png") == find("p[0-9]+", "x/p01_2.png") == "p01"
    assert find("(a)|b", "b.png") == find("^x", "p01.png") == ""
    assert Grouping.read("") is None


def test_where_each_patient_is_protected_folders_of_patients_are_read_as_such(tmp_path):
    write_folders(tmp_path, ROWS)
    with pytest.raises(ConfigError, match="the option 'image_size' is open"):
        DataSpec("images", data_dir=str(tmp_path), patients="folder")
    options = (("classes", "ill,well"), ("depth", 8), ("image_size", 8))
    spec = DataSpec("images", data_dir=str(tmp_path), dataset_options=options, patients="folder")
    assert [each.train.units for each in load_federation(spec).domains.values()] == [16, 16]
