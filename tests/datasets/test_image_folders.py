"""What is found of a consortium's images: domains, sizes, damaged files."""

from pathlib import Path

import pytest
from naming import names
from PIL import Image
from sites import write_images

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.images import common_size, files_of, sizes_of
from fda_flower.datasets.own_data import network_for_images, network_for_inputs, read_size
from fda_flower.datasets.preparation import unreadable
from fda_flower.errors import ConfigError
from fda_flower.runs.config import RunConfig


def write(place: Path, size: tuple[int, int], count: int = 10) -> None:
    """Images of a width and height."""
    for label in ("ant", "bee"):
        (place / label).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", size, (i, 2 * i, 3 * i)).save(place / label / f"{size[0]}-{i}.png")


def spec_of(folder: Path, **options: str) -> DataSpec:
    return DataSpec("images", data_dir=str(folder), dataset_options=tuple(options.items()))


def test_domains_and_size_follow_from_the_folder(tmp_path: Path) -> None:
    for name in ("south", "north"):
        write(tmp_path / name, (32, 48))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    spec = spec_of(tmp_path)
    assert dict(spec.dataset_options) == {"domains": "north,south", "image_size": "48x32"}
    assert load_federation(spec).shape == (3, 48, 32)
    assert load_federation(spec_of(tmp_path, image_size="16")).shape == (3, 16, 16)


def test_images_of_different_sizes_are_brought_to_one(tmp_path: Path) -> None:
    write(tmp_path / "a", (40, 60), 3)
    write(tmp_path / "a", (50, 60), 3)
    write(tmp_path / "b", (60, 30), 3)
    assert common_size(sizes_of([files_of(tmp_path / "a"), files_of(tmp_path / "b")])) == (40, 40)


def test_photos_are_reduced_to_224(tmp_path: Path) -> None:
    write(tmp_path / "a", (300, 400), 1)
    assert common_size(sizes_of([files_of(tmp_path / "a")])) == (224, 224)


def test_damaged_images_have_no_size_and_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", (8, 8), 2)
    (tmp_path / "a/ant/bad.png").write_text("not an image")
    assert sizes_of([files_of(tmp_path / "a")]) == {(8, 8): 4}
    (message,) = unreadable(path for paths in files_of(tmp_path / "a").values() for path in paths)
    assert "bad.png' is damaged" in message
    assert files_of(tmp_path / "nowhere") == {}


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, check=names("data set", "images")):
        spec_of(tmp_path)


def test_a_site_whose_images_are_missing_has_no_size_of_its_own(tmp_path: Path) -> None:
    assert dict(spec_of(tmp_path, domains="a,b").dataset_options) == {"domains": "a,b"}
    write_images(tmp_path / "a", 0)
    assert dict(spec_of(tmp_path, domains="a,b").dataset_options)["image_size"] == "8x8"


@pytest.mark.parametrize("text", ["0", "8x", "a", "8x8x8", "-4"])
def test_an_invalid_size_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, check=names("option 'image_size'")):
        read_size(text)


def test_the_network_fits_the_size_and_is_asked_for_where_it_is_unknown() -> None:
    assert [network_for_images({"image_size": size}) for size in ("63x224", "64", 224)] == [
        "cnn",
        "resnet18",
        "resnet18",
    ]
    assert network_for_inputs({}) == "mlp"
    assert network_for_inputs({"image_size": 8}) == "cnn"
    with pytest.raises(ConfigError, match=r"size of the images is not known here, .*image_size=64.*--model"):
        RunConfig(dataset="images", dataset_options={"domains": "a,b"})


def test_the_network_that_was_chosen_is_in_the_settings(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 0)
    config = RunConfig(dataset="images", data_dir=str(tmp_path), target_samples=8)
    assert config.model == config.settings()["model"] == config.to_flower()["model"] == "cnn"
    again = RunConfig.from_flower({**config.to_flower(), "data-dir": ""})
    assert again.fingerprint() == config.fingerprint()
