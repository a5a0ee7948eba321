"""A list of images: a table that gives each file its label and, where columns say so, patient and domain."""

import re
from unittest.mock import ANY

import numpy as np
import pytest
from naming import names
from PIL import Image

from fda_flower import load, run
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.errors import ConfigError
from fda_flower.own_data.check import check, find_dataset
from fda_flower.prediction.new_samples import from_images

HEADER = "file,label,patient,site"


def picture(path, number):
    """An image like no other, bright above if its number is odd."""
    pixels = np.random.default_rng(number).integers(0, 90, (8, 8, 3)).astype(np.uint8)
    pixels[slice(4) if number % 2 else slice(4, 8)] += 140
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def rows_of(site, count=20):
    """Rows of two images of each patient, of which one is in a folder."""
    return [
        f"{'images/' * (i % 2)}{site}{i}.png,{('ill', 'well')[i // 2 % 2]},{site}-{i // 2},{site}"
        for i in range(count)
    ]


@pytest.fixture
def listed(tmp_path):
    """Two sites in one list, whose images are in the folder and in another below it."""
    for number, row in enumerate(rows := [*rows_of("a"), *rows_of("b")]):
        picture(tmp_path / row.partition(",")[0], number)
    (tmp_path / "labels.csv").write_text("\n".join([HEADER, *rows]))
    return tmp_path


OPTIONS = {"domain": "site", "group": "patient"}


def spec_of(folder, **options):
    return DataSpec("images", data_dir=str(folder), dataset_options=tuple(options.items()))


def test_one_list_gives_labels_patients_and_domains(listed):
    assert find_dataset(listed) == "images"
    spec = spec_of(listed, **OPTIONS)
    assert (spec.all_names, dict(spec.dataset_options)["image_size"]) == (["a", "b"], "8x8")
    data = load_federation(spec)
    assert data.class_names == ("ill", "well")
    for domain in data.domains.values():
        assert domain.train.units + domain.test.units == 10
        assert len(domain.train) + len(domain.test) == 20
        assert {*domain.train.groups.tolist()}.isdisjoint(domain.test.groups.tolist())
    first = data.domains["a"].train.x.paths[0]
    assert first.read_bytes() == (listed / first.relative_to(listed)).read_bytes()


def test_a_list_in_each_folder_and_classes_in_folders_give_the_same(listed, tmp_path):
    for at, site in enumerate("ab"):
        for i, row in enumerate(rows_of(site)):
            picture(tmp_path / "each" / site / row.split(",")[0], 20 * at + i)
    (tmp_path / "each/a/metadata.csv").write_text(
        "\n".join(["file_name;finding", *(";".join(row.split(",")[:2]) for row in rows_of("a"))])
    )
    for row in rows_of("b"):
        file, label, *_ = row.split(",")
        (tmp_path / "each/b" / label).mkdir(exist_ok=True)
        (tmp_path / "each/b" / file).rename(tmp_path / "each/b" / label / file.replace("/", ""))
    (tmp_path / "each/b/images").rmdir()
    whole = load_federation(spec_of(listed, domain="site"))
    each = load_federation(spec_of(tmp_path / "each", label="finding"))
    for domain in "ab":
        parts = [[*data.domains[domain].train.y, *data.domains[domain].test.y] for data in (whole, each)]
        assert sorted(parts[0]) == sorted(parts[1])


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [
        ("nowhere.png,ill,p,a", "file", "a file that is not there"),
        ("../secret.png,ill,p,a", "file", "a file outside the folder"),
        ("/etc/passwd,ill,p,a", "file", "a file outside the folder"),
        ("C:/x.png,ill,p,a", "file", "a file outside the folder"),
        (r"images\a1.png,ill,p,a", "file", "a path with"),
        ("labels.csv,ill,p,a", "file", "a file that is no image"),
        ("./a0.png,ill,p,a", "file", "a file for the second time"),
        (",ill,p,a", "file", "no file"),
        ("c.png,,p,a", "label", "no label"),
        ("c.png,ill|well,p,a", "label", "several labels"),
        ("c.png,ill;well,p,a", "label", "several labels"),
        ("c.png,ill,,a", "patient", "no patient"),
        ("c.png,ill,p,", "site", "no domain"),
    ],
)
def test_a_row_that_is_not_understood_is_named_with_its_number(listed, line, column, what):
    picture(listed / "c.png", 99)
    picture(listed.parent / "secret.png", 98)
    with (listed / "labels.csv").open("a") as file:
        file.write(f"\n{line}")
    (problem,) = check(spec_of(listed, **OPTIONS)).problems.entries.values()
    assert problem.what.startswith(what)
    assert (problem.line, problem.column, problem.path) == (42, column, listed / "labels.csv")
    assert "multilabel" in problem.remedy or column != "label" or not line.split(",")[1]


@pytest.mark.parametrize(
    ("header", "options", "thing", "remedy"),
    [
        (HEADER, {}, "data file", "domain=COLUMN"),
        (HEADER, {"domain": "hospital"}, "option 'domain'", "file, label, patient, site"),
        (HEADER, {"domain": "site", "label": "finding"}, "option 'label'", "label=COLUMN"),
        (HEADER, {"domain": "site", "group": "person"}, "option 'group'", "group=COLUMN"),
        ("name,label,patient,site", {"domain": "site"}, "data file", "call one of them file"),
        ("file,path,patient,site", {"domain": "site", "label": "path"}, "data file", "call one of them file"),
    ],
)
def test_columns_that_are_not_there_are_named_with_those_that_are(listed, header, options, thing, remedy):
    text = (listed / "labels.csv").read_text()
    (listed / "labels.csv").write_text(text.replace(HEADER, header))
    with pytest.raises(ConfigError, check=names(thing, remedy=remedy)):
        load_federation(spec_of(listed, **options))


def test_new_images_have_labels_by_a_list_and_patients_if_it_tells_them(listed, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs")
    run(
        dataset="images",
        data_dir=listed,
        dataset_options=OPTIONS,
        method="target-only",
        rounds=1,
        output=output,
    )
    model = load(output)
    new = from_images(model, listed, labelled=True)
    assert (len(new.samples), new.samples.units, new.notes) == (40, 20, (ANY,))  # the sites are not read
    assert new.names["file"][-1] == "images/b9.png"
    text = (listed / "labels.csv").read_text()
    (listed / "labels.csv").write_text(text.replace(HEADER, "file,label,person,site"))
    assert "says which images are of one patient" in from_images(model, listed, labelled=True).notes[-1]
    (listed / "labels.csv").write_text(text.replace(HEADER, "file,class,patient,site"))
    with pytest.raises(ConfigError, check=names("option 'label'", remedy="call a column so")):
        from_images(model, listed, labelled=True)
    assert from_images(model, listed).notes == ()


def test_what_a_list_leaves_out_is_told(listed, caplog):
    picture(listed / "images/c.png", 99)
    load_federation(spec_of(listed, domain="site"))
    said = "\n".join(caplog.messages)
    assert f"columns of '{listed / 'labels.csv'}' that are not read: patient" in said
    assert re.search(r"columns that seem to name patients.*group=patient", said)
    assert "images that no row of" in said
    assert "left out: 1, images/c.png" in said


@pytest.mark.parametrize("option", ["domain", "label"])
def test_a_column_is_named_only_where_a_list_is(listed, option):
    for path in (listed / "images").iterdir():
        for site, label in (("a", "ill"), ("a", "well"), ("b", "ill"), ("b", "well")):
            (listed / "folders" / site / label).mkdir(parents=True, exist_ok=True)
            picture(
                listed / "folders" / site / label / path.name, len(list((listed / "folders").rglob("*.png")))
            )
    with pytest.raises(ConfigError, check=names(f"option '{option}'", "finding", "leave it out")):
        load_federation(spec_of(listed / "folders", **{option: "finding"}))


def test_two_lists_and_a_list_of_another_name_are_refused(listed):
    (listed / "metadata.csv").write_text(HEADER)
    with pytest.raises(ConfigError, match="two lists of images"):
        load_federation(spec_of(listed, **OPTIONS))
    (listed / "metadata.csv").unlink()
    (listed / "labels.csv").rename(listed / "photos.csv")
    with pytest.raises(ConfigError, check=names("data file", listed / "photos.csv", "call it labels.csv")):
        find_dataset(listed)
