"""How raw samples become inputs: tables, kept as JSON, and images that stay in their files."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from naming import names
from PIL import Image
from sites import write_images

from fda_flower.datasets.preparation import ImageFiles, ImagePreparation, Preparation, TablePreparation
from fda_flower.errors import ConfigError


def again(preparation):
    return Preparation.from_json(json.loads(json.dumps(preparation.to_json())))


def test_a_table_is_standardised_as_in_one_go_with_the_same_bits_from_json():
    x = np.random.default_rng(0).normal(3, 7, (40, 5))
    x[:, 2] = 0.1
    train = np.arange(0, 40, 2)
    columns = dict(zip("edcba", x.T, strict=True))
    preparation = TablePreparation.fit(columns, train)
    deviation, mean = (each.numpy() for each in torch.std_mean(torch.tensor(x[train]), dim=0, correction=0))
    deviation[2] = 1.0
    expected = ((x - mean) / deviation).astype(np.float32)
    assert preparation.columns == tuple("edcba")
    assert (preparation.mean, preparation.deviation) == (tuple(mean), tuple(deviation))
    assert np.array_equal(preparation.apply(columns), expected)
    as_lists = {name: column.tolist() for name, column in reversed(columns.items())}
    assert again(preparation) == preparation
    assert np.array_equal(again(preparation).apply(as_lists | {"other": [0.0]}), expected)
    with pytest.raises(ConfigError, check=names("kind of preparation", "text")):
        Preparation.from_json({"kind": "text"})


def test_a_column_without_a_value_in_training_has_no_mean_to_fill_in():
    columns: dict[str, list[Any]] = {
        "kind": ["x", "", "y"],
        "age": [1.0, 2.0, 3.0],
        "size": [float("nan"), float("nan"), 120.0],
    }
    with pytest.raises(ConfigError, check=names("column", "size", remedy="ignore")):
        TablePreparation.fit(columns, np.array([0, 1]), {"kind": ["x", "y"]}, missing=True)


@pytest.mark.parametrize("rows", [3, 20, 33])
def test_a_column_of_equal_values_and_missing_ones_is_constant(rows):
    preparation = TablePreparation.fit(
        {"a": [0.1] * rows + [float("nan")]}, np.arange(rows + 1), missing=True
    )
    assert (preparation.mean, preparation.deviation, preparation.fill) == ((0.1,), (1.0,), (0.1,))
    assert preparation.described(preparation.apply({"a": [0.1, float("nan")]})).deviations.tolist() == [0.0]


def test_outputs_of_a_regression_and_labels_are_each_others_inverse():
    preparation = TablePreparation(("age",), (0.0,), (1.0,), label_mean=50.0, label_deviation=10.0)
    outputs = preparation.outputs(np.array([40.0, 70.0]))
    assert outputs.tolist() == [[-1.0], [2.0]]
    assert preparation.labels(outputs).tolist() == [[40.0], [70.0]]


# Images


def test_what_is_not_finite_after_standardising_is_named():
    preparation = TablePreparation(("age", "bp"), (0.0, 0.0), (1.0, 1e-9), label_deviation=1e-9)
    for wrong, apply in (
        ("bp", lambda: preparation.apply({"age": [1e30, 1.0], "bp": [1.0, 1e30]})),
        ("label", lambda: preparation.outputs(np.array([1e30]))),
    ):
        with pytest.raises(ConfigError, check=names("column", wrong)):
            apply()


def test_pixels_are_rgb_in_rows_from_the_top_left_decoded_when_indexed(tmp_path):
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0, 1] = (255, 128, 0)
    path = tmp_path / "image.png"
    x = again(ImagePreparation(2)).apply([path])
    Image.fromarray(pixels).save(path)
    assert x[np.array([0])].tolist() == [pixels.transpose(2, 0, 1).tolist()]
    Image.fromarray(np.array([[0, 0x4000], [0x8000, 0xFFFF]], dtype=np.uint16)).save(path)
    assert x[:1].tolist() == [[[[0, 0x40], [0x80, 0xFF]]] * 3], "16 bits of grey are scaled to 8"
    Image.new("L", (6, 4), 100).save(path)
    assert np.array_equal(again(ImagePreparation((8, 7))).apply([path])[:1], np.full((1, 3, 8, 7), 100))


def test_a_damaged_image_is_named_with_the_others_that_are(tmp_path):
    write_images(tmp_path, seed=0, classes=["bee"], count=16)
    paths = tuple(sorted((tmp_path / "bee").iterdir()))
    for path in paths[2:]:
        path.write_bytes(b"")
    for path in paths[3:]:
        path.unlink()
    files = ImageFiles((*paths, *paths), 4)
    others = f"{', '.join(map(str, paths[3:13]))} and 3 more"
    for wanted in (slice(None), slice(2, 3), np.array([0, 18])):
        with pytest.raises(ConfigError, match=re.escape(others), check=names("image", paths[2], "remove")):
            _ = files[wanted]
    with pytest.raises(ConfigError, match=r"is empty:"):
        _ = ImageFiles(paths[:3], 4)[:]


def test_files_stand_in_for_an_array(tmp_path):
    write_images(tmp_path, seed=0, classes=["bee"])
    files = ImageFiles(tuple(sorted((tmp_path / "bee").iterdir())), 4)
    images = files[np.arange(len(files))]
    assert (files.shape, files.dtype) == (images.shape, images.dtype)
    chosen = np.array([3, 1, 1])
    taken = files.take(chosen)
    assert isinstance(taken, ImageFiles)
    assert np.array_equal(taken[np.arange(3)], images[chosen])
    assert np.array_equal(files[chosen], images[chosen])
    assert np.array_equal(files[1:3], images[1:3])
    joined = taken.joined(files.take(np.array([0])))
    assert np.array_equal(joined[np.arange(4)], images[np.array([3, 1, 1, 0])])
