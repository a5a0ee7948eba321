"""Images that stay in their files."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sites import write_images

from fda_flower.datasets.preparation import ImageFiles


def test_pixels_are_rgb_in_rows_from_the_top_left(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0, 1] = (255, 128, 0)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    [x] = ImageFiles((tmp_path / "image.png",), 2)[torch.tensor([0])]
    assert x[:, 0, 1].tolist() == [255, 128, 0]
    assert int(x.sum()) == 383


def test_16_bits_of_grey_are_scaled_to_8(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 0x4000], [0x8000, 0xFFFF]], dtype=np.uint16)).save(tmp_path / "image.png")
    [x] = ImageFiles((tmp_path / "image.png",), 2)[torch.tensor([0])]
    assert x.tolist() == [[[0, 0x40], [0x80, 0xFF]]] * 3


def test_files_stand_in_for_a_tensor(tmp_path: Path) -> None:
    write_images(tmp_path, seed=0, classes=["bee"])
    files = ImageFiles(tuple(sorted((tmp_path / "bee").iterdir())), 4)
    whole = files[torch.arange(len(files))]
    assert (files.shape, files.dtype) == (whole.shape, whole.dtype)
    chosen = torch.tensor([3, 1, 1])
    taken = files.index_select(0, chosen)
    assert isinstance(taken, ImageFiles)
    assert torch.equal(taken[torch.arange(3)], whole[chosen])
    assert torch.equal(files[chosen], whole[chosen])
    assert torch.equal(files[1:3], whole[1:3])
    joined = taken.joined(files.index_select(0, torch.tensor([0])))
    assert torch.equal(joined[torch.arange(4)], whole[torch.tensor([3, 1, 1, 0])])
    assert files.to(torch.device("meta"))[chosen].device.type == "meta"
