"""What names of images tell: which may be of one patient, and which are masks."""

import re

import pytest

from fda_flower.own_data.image_names import names_masks, told_by_names

PATIENTS = ("p01", "p02", "p03", "p04")


def told(*names, classes=("ill", "well"), domains="ab"):
    """The sentences on folders that all hold files of these names."""
    return told_by_names({f"{domain}/{name}": names for domain in domains for name in classes})


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("{0}_{1}.png", "^([^_]+)_"),
        ("{0}-img{1}.png", "^([^-]+)-"),
        ("{0} ({1}).jpg", r"^([^\s]+)\s"),
        ("site_{0}_{1}.png", "^(.+)_"),
        ("{0}_L_{1}.png", "^([^_]+)_"),
        ("{0}.{1}.png", r"^([^\.]+)\."),
    ],
)
def test_names_that_differ_by_a_number_at_the_end_are_told_with_a_pattern_that_fits(form, pattern):
    names = [form.format(patient, view) for patient in PATIENTS for view in range(3)]
    (said,) = told(*names)
    assert f"group={pattern}'" in said
    assert all(re.search(pattern, name) for name in names)
    assert "48 of 48" in said
    assert "such as '{}' and '{}'".format(*names) in said


@pytest.mark.parametrize("views", [("left", "right"), ("L", "R"), ("CC", "MLO"), ("AP", "lat"), ("a", "b")])
def test_names_that_differ_by_a_view_are_told(views):
    glue = "" if views == ("a", "b") else "_"
    assert told(*(f"{patient}{glue}{view}.png" for patient in PATIENTS for view in views))


@pytest.mark.parametrize(
    "names",
    [
        [f"{i}.png" for i in range(20)],
        [f"img_{i}.png" for i in range(20)],
        [f"IMG{i:04}.JPG" for i in range(20)],
        [f"benign ({i}).png" for i in range(20)],
        [f"ISIC_{i:07}.jpg" for i in range(20)],
        [f"{word}.png" for word in ("oak", "elm", "ash", "yew")],
        [*(f"{i}.png" for i in range(20)), *(f"{patient}_{i}.png" for patient in PATIENTS for i in (1, 2))],
    ],
    ids=lambda names: names[0],
)
def test_names_that_number_images_are_not_told(names):
    assert told(*names) == []


@pytest.mark.parametrize(
    "mask", ["{0}_mask.png", "{0}_seg.png", "{0}-label.png", "{0}.mask.png", "mask_{0}.png", "{0}_mask_1.png"]
)
def test_masks_beside_images_are_told_and_are_no_views_of_a_patient(mask):
    images = [f"benign ({i}).png" for i in range(15)]
    (said,) = told(*images, *(mask.format(name.removesuffix(".png")) for name in images))
    assert "60 of 120" in said
    assert "if they are masks" in said


def test_any_word_is_told_where_most_images_have_a_twin_but_no_view():
    images = [f"x{i}" for i in range(9)]
    assert "'tumour': 36 of 72" in told(*images, *(f"{name}_tumour" for name in images))[0]
    assert told(*images, "x1_tumour") == told(*images, "x1_left") == []
    assert "'mask': 4 of 40" in told(*images, "x1_mask")[0]


@pytest.mark.parametrize(
    ("names", "are_masks"),
    [
        (("masks", "Mask", "labels", "labelsTr", "annotations", "SegmentationClass", "ground_truth"), True),
        (("lung_masks", "gt", "seg"), True),
        (("ill", "with_mask", "no mask", "images", "label-free", "segmented"), False),
    ],
)
def test_folders_of_masks_are_known_by_their_names(names, are_masks):
    assert {name: names_masks(name) for name in names} == dict.fromkeys(names, are_masks)


def test_masks_are_told_where_patients_are_known_and_beside_volumes():
    names = {"a/ill": [f"{i}{word}.nii.gz" for i in range(6) for word in ("", "_mask")]}
    assert "'mask': 6 of 12" in told_by_names(names, grouped=True)[0]
