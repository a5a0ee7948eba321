"""Image folders: on made images of mixed sizes and modes, and on the real ones where they are."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from naming import names
from PIL import Image

from fda_flower.datasets import DATASETS, Dataset, DataSpec, Split, Splits, images, load_federation
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.errors import ConfigError

DATA_DIR = os.environ.get("FDA_DATA_DIR")
CLASSES = ("ant", "bee", "cat")
COUNT, SIZE = 10, 5
MODES = ("RGB", "L", "RGBA", "P", "LA", "1", "CMYK", "I;16")
SUFFIX = {"CMYK": ".JPG", "RGB": ".jpeg"}

load = partial(images.load, "made", ("one", "two"), "its authors")


def make(path: Path, number: int) -> None:
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
def made(tmp_path: Path) -> Path:
    """Two domains of three classes, and files that are not images."""
    number = 0
    for domain in ("one", "two"):
        for name in CLASSES:
            for i in range(COUNT):
                make(tmp_path / "made" / domain / name / str(i), number)
                number += 1
    (tmp_path / "made" / ".hidden" / "zebra").mkdir(parents=True)
    for stray in ("one/ant/.DS_Store", "one/ant/._0.png", "one/ant/notes.txt", "one/readme.png"):
        (tmp_path / "made" / stray).write_text("no image")
    (tmp_path / "made/one/.git").mkdir()
    (tmp_path / "made/one/without images").mkdir()
    return tmp_path


def rows(x: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in x}


def test_domains_classes_and_sizes(made: Path) -> None:
    splits = load(made, 0, image_size=6)
    assert list(splits) == ["one", "two"]
    for split in splits.values():
        assert split.classes == len(CLASSES)
        assert split.train.x.shape == (24, 3, 6, 6)
        assert split.test.x.shape == (6, 3, 6, 6)
        assert split.train.x.dtype == split.test.x.dtype == torch.uint8
        assert torch.bincount(split.train.y).tolist() == [8] * 3
        assert torch.bincount(split.test.y).tolist() == [2] * 3


def test_every_image_is_trained_or_tested_on_once(made: Path) -> None:
    for split in load(made, 0, image_size=8).values():
        assert not rows(split.train.x) & rows(split.test.x)
        assert len(rows(split.train.x) | rows(split.test.x)) == len(CLASSES) * COUNT


def test_the_split_is_the_seeds_and_the_domains_alone(made: Path) -> None:
    splits = load(made, 0, image_size=4)
    alone = images.load("made", ("two",), "its authors", made, 0, 4)["two"]
    assert torch.equal(splits["two"].train.x, alone.train.x)
    assert torch.equal(splits["two"].test.x, load(made, 0, image_size=4)["two"].test.x)
    for name, split in load(made, 1, image_size=4).items():
        assert rows(split.test.x) != rows(splits[name].test.x)


def test_a_class_may_be_missing_in_a_domain(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in (made / "made/two/bee").iterdir():
        path.unlink()
    splits = load(made, 0, image_size=4)
    assert splits["one"].classes == splits["two"].classes == 3
    assert sorted(set(splits["two"].train.y.tolist())) == [0, 2]
    assert caplog.messages == ["made: domain two has no image of bee"]


def test_a_complete_data_set_is_not_logged_about(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    dict(load(made, 0, image_size=4))
    assert caplog.messages == []


@pytest.mark.parametrize(("count", "tested"), [(1, 0), (2, 1), (3, 1), (7, 1), (8, 2)])
def test_a_fifth_of_a_class_is_tested_on_but_not_its_only_image(
    tmp_path: Path, count: int, tested: int
) -> None:
    for i in range(count):
        make(tmp_path / "made/one/ant" / str(i), i)
    split = images.load("made", ("one",), "its authors", tmp_path, 0, 4)["one"]
    assert (len(split.train), len(split.test)) == (count - tested, tested)
    assert split.test.x.shape == (tested, 3, 4, 4)


def test_a_large_data_set_is_read_batch_by_batch_with_the_same_bits(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(name: str, lazy: bool) -> list[torch.Tensor]:
        monkeypatch.setitem(DATASETS, name, Dataset("made for a test", load, ("one", "two")))
        size = (("image_size", SIZE),)
        spec = DataSpec(
            name, dataset_options=size, data_dir=str(made), target_samples=7, source_samples="50%"
        )
        federation = load_federation(spec)
        assert federation.shape == (3, SIZE, SIZE)
        samples = [part for domain in federation.domains.values() for part in (domain.train, domain.test)]
        assert [len(part) for part in samples] == [12, 6, 7, 6]
        assert all(isinstance(part.x, ImageFiles) == lazy for part in samples)
        moved = [part.to(torch.device("cpu")) for part in samples]
        generator = torch.Generator().manual_seed(0)
        return [tensor for part in moved for batch in part.batches(4, generator, True) for tensor in batch]

    everything = 2 * len(CLASSES) * COUNT * 3 * SIZE**2
    monkeypatch.setattr(images, "MEMORY_LIMIT", everything)
    in_memory = batches("in-memory", lazy=False)
    monkeypatch.setattr(images, "MEMORY_LIMIT", everything - 1)
    from_files = batches("from-files", lazy=True)
    assert all(map(torch.equal, in_memory, from_files))
    assert len(in_memory) == len(from_files)
    assert {batch.dtype for batch in from_files} == {torch.float32, torch.int64}


def test_without_a_folder_the_error_says_where_to_get_it(made: Path) -> None:
    with pytest.raises(ConfigError, match=r"made cannot be downloaded: get it from its authors.*--data-dir"):
        load(None, 0)


def test_a_missing_folder_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, check=names("data folder")):
        load(tmp_path, 0)


def test_a_missing_domain_is_named_with_those_found(made: Path) -> None:
    (made / "made/two").rename(made / "made/Two")
    splits = load(made, 0)
    assert splits["one"].classes == 3
    with pytest.raises(ConfigError, check=names("domain folder")):
        _ = splits["two"]


def test_a_domain_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "made/one/ant").mkdir(parents=True)
    (tmp_path / "made/one/ant/notes.txt").write_text("no image")
    with pytest.raises(ConfigError, check=names("domain folder")):
        _ = load(tmp_path, 0)["one"]


def test_a_damaged_image_is_named(made: Path) -> None:
    path = made / "made/two/cat/cut.png"
    make(path, 1)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ConfigError, check=names("image")):
        _ = load(made, 0, image_size=4)["two"]
    path.write_text("no image")
    with pytest.raises(ConfigError, check=names("image")):
        _ = load(made, 0, image_size=4)["two"]


@pytest.mark.parametrize("size", [0, -3])
def test_an_image_has_at_least_one_pixel(made: Path, size: int) -> None:
    with pytest.raises(ConfigError, match=f"option 'image_size' of made is {size}, it must be at least 1"):
        load(made, 0, image_size=size)


def test_the_options_are_the_size_and_the_classes() -> None:
    given = (("image-size", "64"), ("classes", "dog,cat"))
    assert DataSpec("pacs", dataset_options=given).dataset_options == (
        ("classes", "dog,cat"),
        ("image_size", 64),
    )
    for name in ("folder", "seed", "data_dir"):
        with pytest.raises(ConfigError, check=names("option")):
            DataSpec("pacs", dataset_options=((name, "1"),))


# A site's own domain alone


def alone(made: Path) -> Path:
    """The folder without its domain "one"."""
    shutil.rmtree(made / "made/one")
    return made


def test_a_domain_alone_has_the_same_bits_as_with_others(made: Path) -> None:
    whole = load(made, 0, image_size=4)["two"]
    split = load(alone(made), 0, image_size=4)["two"]
    assert torch.equal(split.train.x, whole.train.x)
    assert torch.equal(split.test.y, whole.test.y)
    assert split.class_names == whole.class_names == CLASSES


def test_a_domain_alone_says_that_it_cannot_know_the_classes_of_others(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(made / "made/two/bee")
    assert load(alone(made), 0, image_size=4)["two"].class_names == ("ant", "cat")
    (message,) = caplog.messages
    assert "made: of all domains, only two is here, so the 2 classes are those found in it" in message
    assert "option 'classes'" in message


def test_the_option_classes_names_them_in_its_order(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    split = load(alone(made), 0, image_size=4, classes="cat, dog,bee,ant")["two"]
    assert (split.classes, split.class_names) == (4, ("cat", "dog", "bee", "ant"))
    assert torch.bincount(split.train.y).tolist() == [8, 0, 8, 8]
    assert caplog.messages == ["made: domain two has no image of dog"]


def test_images_of_a_class_that_is_not_named_are_an_error(made: Path) -> None:
    with pytest.raises(ConfigError, check=names("domain folder")):
        _ = load(made, 0, image_size=4, classes="bee,cat")["two"]


@pytest.mark.parametrize("classes", ["a,,b", "a,b,a", ","])
def test_classes_that_are_not_names_are_an_error(made: Path, classes: str) -> None:
    with pytest.raises(ConfigError, check=names("option 'classes'")):
        load(made, 0, classes=classes)


# A consortium's own images


def own(made: Path, domains: str = "one,two", **options: Any) -> Splits:
    return images.load_own(made / "made", 0, domains, image_size=4, **options)


def test_own_images_are_read_like_those_of_a_known_data_set(made: Path) -> None:
    for name, split in load(made, 0, image_size=4).items():
        assert torch.equal(own(made)[name].train.x, split.train.x)
        assert torch.equal(own(made, classes="ant,bee,cat")[name].test.y, split.test.y)


def test_own_images_need_a_folder_and_the_domain_that_is_accessed(made: Path) -> None:
    with pytest.raises(ConfigError, check=names("data set", "images")):
        images.load_own(None, 0, "one,two")
    with pytest.raises(ConfigError, check=names("domain folder")):
        _ = own(made, "one,two,three")["three"]
    with pytest.raises(ConfigError, check=names("domain folder")):
        _ = images.load_own(made / "elsewhere", 0, "one")["one"]


REAL = {
    "pacs": ("PACS", 7, [2048, 2344, 1670, 3929]),
    "office-caltech10": ("office_caltech_10", 10, [958, 1123, 157, 295]),
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_data_set(name: str) -> None:
    folder, classes, sizes = REAL[name]
    if DATA_DIR is None or not (Path(DATA_DIR) / folder).is_dir():
        pytest.skip(f"{folder} is not in FDA_DATA_DIR ({DATA_DIR})")
    splits = DATASETS[name].loader(Path(DATA_DIR), 0, image_size=16)
    assert not isinstance(splits, Split)
    assert tuple(splits) == DATASETS[name].domains
    assert [len(split.train) + len(split.test) for split in splits.values()] == sizes
    for split in splits.values():
        assert split.classes == classes
        assert len(split.test) == pytest.approx((len(split.train) + len(split.test)) / 5, abs=classes / 2)
        for samples in (split.train, split.test):
            assert sorted(set(samples.y.tolist())) == list(range(classes))
            assert 0.2 < float(samples.x.float().mean() / 255) < 0.99
