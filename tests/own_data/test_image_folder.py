"""What lies below a folder of images: read, told as left out, or refused with its place."""

import shutil

import pytest
from naming import names
from PIL import Image
from sites import write_images, write_sites

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.errors import ConfigError
from fda_flower.own_data.image_folder import ImageFolder


@pytest.fixture
def photos(tmp_path):
    """Two domains of two classes."""
    write_sites(write_images, tmp_path, "ab")
    return tmp_path


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def spec_of(folder):
    return DataSpec("images", data_dir=str(folder))


@pytest.mark.parametrize("suffix", ["bmp", "gif", "jfif", "JPG", "png", "tif", "TIFF", "webp"])
def test_images_of_many_suffixes_are_read(photos, suffix):
    for path in (photos / "b").rglob("*.png"):
        Image.open(path).save(path.with_suffix(f".{suffix}"))
        if suffix != "png":
            path.unlink()
    domain = load_federation(spec_of(photos)).domains["b"]
    assert (len(domain.train), len(domain.test)) == (16, 4)
    assert domain.train.x[:].std() > 50


@pytest.mark.parametrize(
    ("place", "thing", "named"),
    [
        ("0.png", "data folder", "."),
        ("b/0.png", "domain folder", "b"),
        ("b/ant/patient/0.png", "domain folder", "b"),
        ("c/images/ant/0.png", "domain folder", "c"),
        ("c/0.png", "domain folder", "c"),
    ],
)
def test_images_at_another_depth_are_refused_with_their_place(photos, place, thing, named):
    picture(photos / place)
    spec = spec_of(photos)
    assert spec.target_name == ("c" if place.startswith("c") else "b"), "no other is the target in its place"
    with pytest.raises(ConfigError, match=r"0\.png", check=names(thing, photos / named, "CLASS")):
        load_federation(spec)


def test_where_no_image_is_in_its_place_the_first_that_is_not_is_named(photos, tmp_path):
    below = shutil.copytree(photos, tmp_path / "above/below")
    with pytest.raises(ConfigError, match=r"ant/0\.png", check=names("domain folder", below)):
        spec_of(below.parent)
    with pytest.raises(ConfigError, check=names("domain folder", photos / "a/ant", "one level higher")):
        spec_of(photos / "a")


@pytest.mark.parametrize("content", [None, ".mov"])
def test_a_domain_without_images_is_refused_not_dropped(photos, content):
    (photos / "c/ant").mkdir(parents=True)
    if content:
        (photos / "c/ant" / f"film{content}").touch()
    with pytest.raises(ConfigError, match=content or "no image", check=names("domain folder", photos / "c")):
        load_federation(spec_of(photos))


def test_images_of_a_single_class_are_refused(tmp_path):
    for place in ("a/ant/0.png", "b/ant/0.png"):
        picture(tmp_path / place)
    with pytest.raises(ConfigError, match="ant", check=names("data folder", tmp_path)):
        load_federation(spec_of(tmp_path))


@pytest.mark.parametrize(
    ("one", "other"), [("Bee", "bee"), ("be\u0301", "b\u00e9"), ("bee  1", "bee 1"), (" bee", "bee")]
)
def test_folders_of_classes_or_of_domains_that_look_alike_are_refused(tmp_path, one, other):
    places = {"class": ("a/ant", f"a/{one}", "b/ant", f"b/{other}"), "domain": (f"{one}/ant", f"{other}/ant")}
    for kind in places if one.strip() == one else ["class"]:
        for place in places[kind]:
            picture(tmp_path / kind / place / "0.png")
        with pytest.raises(ConfigError, check=names(f"{kind} folders", f"{one}, {other}", "rename")):
            load_federation(spec_of(tmp_path / kind))


@pytest.mark.parametrize(
    ("again", "says"),
    [
        ("b/bee/2", "more than once"),
        ("b/ant/2", "with different labels"),
        ("a/ant/2", "with different labels"),
    ],
)
def test_images_that_are_there_more_than_once_are_told(tmp_path, caplog, again, says):
    for i, place in enumerate(
        f"{domain}/{label}" for domain in "ab" for label in ("ant/1", "bee/1", "ant/3")
    ):
        (path := tmp_path / f"{place}.png").parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, 0, 0)).save(path)
    (tmp_path / f"{again}.png").write_bytes((tmp_path / "a/bee/1.png").read_bytes())
    load_federation(spec_of(tmp_path))
    (said,) = [line for line in caplog.messages if says in line]
    assert f"{says}" in said
    assert ": 1, such as " in said
    assert all(f"'{tmp_path / name}.png'" in said for name in (again, "a/bee/1"))


def test_images_of_one_name_in_several_formats_are_told(photos, caplog):
    for name in ("b/ant/3.HEIC", "b/bee/4.jpg", "b/bee/4.PNG"):
        Image.open(photos / "a/ant/0.png").resize((9, len(name))).save(photos / name, "png")
    load_federation(spec_of(photos))
    (said,) = [line for line in caplog.messages if "several formats" in line]
    assert f": 2, such as '{photos / 'b/ant/3.HEIC'}' and '{photos / 'b/ant/3.png'}'" in said


def test_what_is_left_out_is_counted_by_suffix(photos, caplog):
    for path in ("a/ant/1.mov", "b/bee/2.MOV", "b/notes.txt", "readme"):
        (photos / path).touch()
    (photos / "a/wasp").mkdir()
    load_federation(spec_of(photos))
    files, folders = caplog.messages
    assert "2 .mov, 1 without a suffix, 1 .txt" in files
    assert "a/wasp" in folders


def test_links_are_followed_but_not_in_circles(photos):
    (photos / "c").symlink_to(photos / "a")
    assert len(ImageFolder.read(photos).images) == 60
    (photos / "a/ant/again").symlink_to(photos)
    with pytest.raises(ConfigError, check=names("folder", photos / "a/ant/again")):
        ImageFolder.read(photos)


@pytest.mark.parametrize(
    ("places", "thing"),
    [
        (("images", "masks"), "domain folder"),
        (("images", "labelsTr"), "domain folder"),
        (("ill/images", "ill/masks"), "domain folder"),
        (("ill", "ill/annotations"), "domain folder"),
    ],
)
def test_folders_of_masks_are_refused_with_their_task(photos, places, thing):
    shutil.rmtree(photos / "b")
    for place in places:
        picture(photos / "b" / place / "0.png")
    with pytest.raises(ConfigError, check=names(thing, photos / "b", "segmentation")):
        load_federation(spec_of(photos))


def test_a_domain_of_masks_is_refused_and_classes_may_be_called_so_by_an_option(photos):
    (photos / "b").rename(photos / "masks")
    with pytest.raises(ConfigError, check=names("data folder", photos, "segmentation")):
        load_federation(spec_of(photos))
    (photos / "masks").rename(photos / "b")
    for domain in "ab":
        (photos / domain / "bee").rename(photos / domain / "mask")
    options = (("classes", "ant,mask"),)
    load_federation(DataSpec("images", data_dir=str(photos), dataset_options=options))


def test_folders_of_several_labels_are_refused_with_their_task(photos):
    picture(photos / "b/ant|bee/0.png")
    with pytest.raises(ConfigError, check=names("domain folder", photos / "b", "multilabel")):
        load_federation(spec_of(photos))
