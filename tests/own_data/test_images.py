"""Image folders: on made images of mixed sizes and modes, and on the real ones where they are."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from naming import names
from PIL import Image
from sites import write_images, write_sites

from fda_flower.datasets import DATASETS, Dataset, DataSpec, load_federation
from fda_flower.datasets.folders import read_size
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.datasets.registry import network_for_images, network_for_inputs
from fda_flower.errors import ConfigError
from fda_flower.own_data import images
from fda_flower.own_data.image_folder import ImageFolder
from fda_flower.own_data.image_sizes import common_size, sizes_of
from fda_flower.prediction.batches import batches
from fda_flower.runs.config import RunConfig

DATA_DIR = Path(os.environ.get("FDA_DATA_DIR", "no data"))
CLASSES = ("ant", "bee", "cat")
COUNT, SIZE = 10, 5
MODES = ("RGB", "L", "RGBA", "P", "LA", "1", "CMYK", "I;16")
SUFFIX = {"CMYK": ".JPG", "RGB": ".jpeg"}

load = partial(images.load, "made", ("one", "two"), "its authors")


def make(path, number):
    """An image whose size and mode depend on its number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = MODES[number % len(MODES)]
    size = (5 + number % 7, 9 - number % 4)
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(pixels).convert(mode)
    image.save(path.with_suffix(SUFFIX.get(mode, ".png")))


@pytest.fixture
def made(tmp_path):
    """Two domains of three classes, and what systems add."""
    places = [tmp_path / "made" / domain / name for domain in ("one", "two") for name in CLASSES]
    for number in range(len(places) * COUNT):
        make(places[number // COUNT] / str(number % COUNT), number)
    (tmp_path / "made" / ".hidden" / "zebra").mkdir(parents=True)
    for added in (
        "Thumbs.db",
        "one/ant/.DS_Store",
        "one/ant/._0.png",
        "__MACOSX/one/0.png",
        "one/@eaDir/0.png",
    ):
        (tmp_path / "made" / added).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "made" / added).write_text("no image")
    return tmp_path


def rows(x):
    return {image.tobytes() for image in x}


def write(place, size, count=10):
    """Images of a width and height."""
    for label in ("ant", "bee"):
        (place / label).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", size, (i, 2 * i, 3 * i)).save(place / label / f"{size[0]}-{i}.png")


def spec_of(folder, **options):
    return DataSpec("images", data_dir=str(folder), dataset_options=tuple(options.items()))


# Folders of a known data set


def test_every_image_is_trained_or_tested_on_once_in_the_size_asked_for(made, caplog):
    splits = load(made, 0, image_size=8)
    assert list(splits) == ["one", "two"]
    for split in splits.values():
        assert (split.classes, split.class_names) == (3, CLASSES)
        assert (split.train.x.shape, split.test.x.shape) == ((24, 3, 8, 8), (6, 3, 8, 8))
        assert split.train.x.dtype == split.test.x.dtype == np.uint8
        assert np.bincount(split.train.y).tolist() == [8] * 3
        assert np.bincount(split.test.y).tolist() == [2] * 3
        assert not rows(split.train.x[:]) & rows(split.test.x[:])
        assert len(rows(split.train.x[:]) | rows(split.test.x[:])) == len(CLASSES) * COUNT
    assert caplog.messages == []
    alone = images.load("made", ("two",), "its authors", made, 0, 8)["two"]
    assert np.array_equal(alone.test.x[:], splits["two"].test.x[:])


@pytest.mark.parametrize(("count", "tested"), [(1, 0), (2, 1), (3, 1), (7, 1), (8, 2)])
def test_a_fifth_of_a_class_is_tested_on_but_not_its_only_image(tmp_path, count, tested):
    for i in range(count):
        make(tmp_path / "made/one/ant" / str(i), i)
    for i in range(5):
        make(tmp_path / "made/one/bee" / str(i), i)
    split = images.load("made", ("one",), "its authors", tmp_path, 0, 4)["one"]
    for part, others, ants in ((split.train, 4, count - tested), (split.test, 1, tested)):
        assert np.bincount(part.y, minlength=2).tolist() == [ants, others]
        assert part.x.shape == (ants + others, 3, 4, 4)


def test_a_large_data_set_is_read_batch_by_batch_with_the_same_bits(made, monkeypatch):
    def read(name, lazy):
        monkeypatch.setitem(DATASETS, name, Dataset("made for a test", load, ("one", "two")))
        size = (("image_size", SIZE),)
        spec = DataSpec(
            name, dataset_options=size, data_dir=str(made), target_samples=7, source_samples="50%"
        )
        federation = load_federation(spec)
        assert federation.shape == (3, SIZE, SIZE)
        samples = [part for domain in federation.domains.values() for part in (domain.train, domain.test)]
        assert [len(part) for part in samples] == [12, 6, 7, 6]
        assert all(isinstance(part.x, ImageFiles) for part in samples), "none is decoded that is left out"
        samples = [part.in_memory() for part in samples]
        assert all(isinstance(part.x, ImageFiles) == lazy for part in samples)
        generator = torch.Generator().manual_seed(0)
        return [tensor for part in samples for batch in batches(part, 4, generator, True) for tensor in batch]

    everything = 2 * len(CLASSES) * COUNT * 3 * SIZE**2
    monkeypatch.setattr(images, "MEMORY_LIMIT", everything)
    in_memory = read("in-memory", lazy=False)
    monkeypatch.setattr(images, "MEMORY_LIMIT", everything - 1)
    from_files = read("from-files", lazy=True)
    assert all(torch.equal(*pair) for pair in zip(in_memory, from_files, strict=True))
    assert {batch.dtype for batch in from_files} == {torch.float32, torch.int64}


def test_what_is_missing_is_named_with_where_to_get_it(made):
    with pytest.raises(ConfigError, check=names("data set", "made", "get it from its authors")):
        load(None, 0)
    with pytest.raises(ConfigError, check=names("data folder", made / "made/made", "its authors")):
        load(made / "made", 0)
    (made / "made/two").rename(made / "made/Two")
    splits = load(made, 0)
    assert splits["one"].classes == 3
    missing = names("domain folder", made / "made/two", "its authors")
    with pytest.raises(ConfigError, match="Two, one", check=missing):
        _ = splits["two"]


def test_the_options_are_the_size_and_the_classes(made):
    given = (("image-size", "64"), ("classes", "dog,cat"))
    options = DataSpec("pacs", dataset_options=given).dataset_options
    assert options == (("classes", "dog,cat"), ("image_size", 64))
    for name in ("folder", "seed", "data_dir"):
        with pytest.raises(ConfigError, check=names("option", name)):
            DataSpec("pacs", dataset_options=((name, "1"),))
    for name, value in (("image_size", 0), ("classes", "a,,b"), ("classes", "a,b,a"), ("classes", ",")):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, check=names(f"option '{name}'", value)):
            load(made, 0, **wrong)


def test_a_class_may_be_missing_in_a_domain(made, caplog):
    shutil.rmtree(made / "made/two/bee")
    splits = load(made, 0, image_size=4)
    assert splits["one"].classes == splits["two"].classes == 3
    assert sorted(set(splits["two"].train.y.tolist())) == [0, 2]
    assert caplog.messages == ["made: domain two has no image of bee"]


def test_a_domain_alone_knows_the_classes_of_others_by_the_option_classes_in_its_order(made, caplog):
    shutil.rmtree(made / "made/one")
    shutil.rmtree(made / "made/two/bee")
    assert load(made, 0, image_size=4)["two"].class_names == ("ant", "cat")
    (message,) = caplog.messages
    assert "made: of all domains, only two is here, so the 2 classes are those found in it" in message
    caplog.clear()
    split = load(made, 0, image_size=4, classes="cat, dog,bee,ant")["two"]
    assert (split.classes, split.class_names) == (4, ("cat", "dog", "bee", "ant"))
    assert np.bincount(split.train.y).tolist() == [8, 0, 0, 8]
    assert caplog.messages == ["made: domain two has no image of dog, bee"]
    with pytest.raises(ConfigError, check=names("domain folder", made / "made/two", "list all classes")):
        _ = load(made, 0, image_size=4, classes="bee,cat")["two"]


REAL = {
    "pacs": ("PACS", 7, [2048, 2344, 1670, 3929]),
    "office-caltech10": ("office_caltech_10", 10, [958, 1123, 157, 295]),
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_data_set(name):
    folder, classes, sizes = REAL[name]
    assert DATASETS[name].published == (sum(sizes), classes)
    if not (DATA_DIR / folder).is_dir():
        pytest.skip(f"{folder} is not in FDA_DATA_DIR ({DATA_DIR})")
    splits: Any = DATASETS[name].loader(DATA_DIR, 0, image_size=16)
    for split, size in zip(splits.values(), sizes, strict=True):
        assert (split.classes, len(split.train) + len(split.test)) == (classes, size)
        assert len(split.test) == pytest.approx(size / 5, abs=classes / 2)
        for samples in (split.train, split.test):
            assert sorted(set(samples.y.tolist())) == list(range(classes))
            assert 0.2 < float(samples.x[:].mean() / 255) < 0.99


# A consortium's own images


def test_own_images_are_read_like_those_of_a_known_data_set(made):
    own = partial(images.load_own, made / "made", 0, image_size=4)
    for name, split in load(made, 0, image_size=4).items():
        assert np.array_equal(own("one,two")[name].train.x[:], split.train.x[:])
        assert np.array_equal(own("one,two", classes="ant,bee,cat")[name].test.y, split.test.y)
    with pytest.raises(ConfigError, check=names("data set", "images")):
        images.load_own(None, 0, "one,two")
    with pytest.raises(ConfigError, check=names("domain folder", made / "made/three", "put the domain's")):
        _ = own("one,two,three")["three"]
    with pytest.raises(ConfigError, check=names("domain folder", made / "elsewhere/one")):
        _ = images.load_own(made / "elsewhere", 0, "one")["one"]


def test_domains_and_size_follow_from_the_folder(tmp_path):
    with pytest.raises(ConfigError, check=names("data set", "images")):
        spec_of(tmp_path)
    for name in ("south", "north"):
        write(tmp_path / name, (32, 48))
    spec = spec_of(tmp_path)
    assert dict(spec.dataset_options) == {"domains": "north,south", "image_size": "48x32"}
    assert load_federation(spec).shape == (3, 48, 32)
    (tmp_path / ".empty").mkdir()
    named = dict(spec_of(tmp_path / ".empty", domains="a,b").dataset_options)
    assert named == {"domains": "a,b"}, "a site without its images knows no size"
    assert dict(spec_of(tmp_path, domains="north,b").dataset_options)["image_size"] == "48x32"
    assert load_federation(spec_of(tmp_path, image_size="16")).shape == (3, 16, 16)
    assert images.load_own(tmp_path, 0, "north")["north"].train.x.shape == (16, 3, 48, 32)


def test_images_of_different_sizes_are_brought_to_one_and_photos_are_reduced_to_224(tmp_path):
    for name, size, count in (
        ("a", (40, 60), 3),
        ("a", (50, 60), 3),
        ("b", (60, 30), 3),
        ("c", (300, 400), 1),
    ):
        write(tmp_path / name, size, count)
    a, b, c = (ImageFolder.read(tmp_path / name).classes for name in "abc")
    assert (common_size(sizes_of([a, b])), common_size(sizes_of([c]))) == ((40, 40), (224, 224))


def test_damaged_images_have_no_size_and_are_named(tmp_path):
    write(tmp_path / "a", (8, 8), 2)
    (tmp_path / "a/ant/bad.png").write_text("not an image")
    classes = ImageFolder.read(tmp_path / "a").classes
    assert sizes_of([classes]) == {(8, 8): 4}
    for good in (tmp_path / "a").rglob("8-*"):
        good.write_text("not an image either")
    with pytest.raises(ConfigError, check=names("image")):
        spec_of(tmp_path, domains="a,b")


@pytest.mark.parametrize("text", ["0", "8x", "a", "8x8x8", "-4"])
def test_an_invalid_size_is_an_error(text):
    with pytest.raises(ConfigError, check=names("option 'image_size'", text)):
        read_size(text)


def test_the_network_fits_the_size_and_is_asked_for_where_it_is_unknown(tmp_path):
    sizes = {"63x224": "cnn", "64": "efficientnet-lite0", 224: "efficientnet-lite0"}
    assert {size: network_for_images({"image_size": size}) for size in sizes} == sizes
    assert (network_for_inputs({}), network_for_inputs({"image_size": 8})) == ("mlp", "cnn")
    whole, small = DataSpec("pacs"), DataSpec("pacs", dataset_options=(("image_size", 32),))
    assert (whole.fitting_model, small.fitting_model) == ("efficientnet-lite0", "cnn")
    with pytest.raises(ConfigError, check=names("option 'image_size'", None, "image_size=64")):
        RunConfig(dataset="images", dataset_options={"domains": "a,b"})
    for name in "ab":
        write_images(tmp_path / name, 0)
    config = RunConfig(dataset="images", data_dir=str(tmp_path), target_samples=8)
    assert config.model == config.settings()["model"] == config.to_flower()["model"] == "cnn"
    again = RunConfig.from_flower({**config.to_flower(), "data-dir": ""})
    assert again.fingerprint() == config.fingerprint()


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_stored_sideways_are_turned_as_viewers_turn_them(tmp_path, orientation, suffix):
    stored_by = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's numbers of the turns back
    seen = np.zeros((40, 24, 3), dtype=np.uint8)
    seen[:20] = 200
    seen[:, :8] //= 2
    shown = Image.fromarray(seen)
    back = stored_by.get(orientation)
    stored = shown if back is None else shown.transpose(Image.Transpose(back))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{suffix}"
    stored.save(path, exif=exif, quality=100, lossless=True)
    assert sizes_of([{"ant": [path]}]) == {(40, 24): 1}
    (read,) = ImageFiles((path,), (40, 24))[:]
    np.testing.assert_allclose(read.transpose(1, 2, 0), seen, atol=2 if suffix == "jpg" else 0)


def deepen(folder, bits):
    """Save the images of a folder in 16 bits, of which they use some; return their grey values by path."""
    found = {}
    for path in folder.rglob("*.png"):
        grey = found[path] = np.array(Image.open(path).convert("L")) | 0x80
        Image.fromarray(grey.astype(np.uint16) << (bits - 8)).save(path)
    return found


def test_a_given_depth_is_every_domains_and_no_image_changes_another(tmp_path):
    write_sites(write_images, tmp_path, "ab")
    greys = deepen(tmp_path / "a", 12)
    split = images.load_own(tmp_path, 0, "a,b", image_size=8, depth="16")["a"]
    preparation: Any = split.preparation
    assert (preparation.depth, preparation.follows_from_all_rows) == (16, ())
    files: Any = split.train.x
    dark = np.stack([(greys[path].astype(np.uint16) << 4) >> 8 for path in files.paths])
    np.testing.assert_array_equal(files[:][:, 0], dark)
    found: Any = images.load_own(tmp_path, 0, "a,b")["b"].preparation
    assert found.follows_from_all_rows == ("image_size", "depth")
    split = images.load_own(tmp_path, 0, "a,b", image_size=8, depth="10")["a"]
    with pytest.raises(ConfigError, match="12 bits", check=names("image", ANY, "depth=12")):
        _ = split.train.x[:]
    with pytest.raises(ConfigError, check=names("option", "depth", "8, 10, 12, 14, 16")):
        spec_of(tmp_path, depth="9")


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_images_of_16_bits_are_scaled_by_those_that_their_domain_uses_which_is_told(tmp_path, caplog, bits):
    write_sites(write_images, tmp_path, "abc")
    greys = deepen(tmp_path / "a", bits) | deepen(tmp_path / "b", 16)
    splits = images.load_own(tmp_path, 0, "a,b,c")
    for name, depth in (("a", bits), ("b", 16), ("c", 8)):
        preparation: Any = splits[name].preparation
        assert preparation.depth == depth
    for name in "ab":
        files: Any = splits[name].train.x
        expected = np.stack([greys[path] for path in files.paths])
        np.testing.assert_array_equal(files[:][:, 0], expected)
        np.testing.assert_array_equal(splits[name].preparation.apply(files.paths)[:][:, 2], expected)
    (message,) = caplog.messages
    assert f"domain a: images of 16 bits use up to {bits} ({bits} bits: 20)" in message
