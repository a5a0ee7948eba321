"""Images with masks: the package of `examples/plugin-segmentation`, and what is refused."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fda_flower import ConfigError, RunConfig, load, run
from fda_flower.datasets import DATASETS
from fda_flower.metrics import dice
from fda_flower.models import MODELS
from fda_flower.prediction.export import export

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "plugin-segmentation"
SETTINGS: dict[str, Any] = {
    "dataset": "ellipses",
    "target": "inverted",
    "target_samples": 20,
    "metric": "dice",
}


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The example's data set and network, by their names."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    ellipses = import_module("plugin_segmentation.ellipses")
    unet = import_module("plugin_segmentation.unet")

    DATASETS["ellipses"], MODELS["unet"] = ellipses.ELLIPSES, unet.UNET
    yield
    del DATASETS["ellipses"], MODELS["unet"]
    for name in [each for each in sys.modules if each.startswith("plugin_segmentation")]:
        del sys.modules[name]


def test_dice_is_the_overlap_of_the_pixels_above_a_half():
    masks = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32)
    outputs = np.array([[0.9, 0.5, 0.6, -3], [0.1, 0.2, 0.3, 0.4], [0.0, 7.0, 0.0, 0.0]])
    assert dice(outputs, masks) == pytest.approx((2 * 1 / 4 + 1 + 0) / 3)


@pytest.mark.parametrize(
    ("settings", "thing"),
    [
        (SETTINGS | {"method": "ridge"}, "method"),
        ({"dataset": "ellipses", "target": "all", "method": "ridge"}, "method"),
        ({"dataset": "rbf", "model": "sigmoid", "metric": "dice"}, "metric"),
        ({"metric": "dice"}, "metric"),
    ],
)
def test_a_linear_layer_for_masks_and_dice_without_masks_are_refused(settings, thing):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**settings)
    assert caught.value.thing == thing


@pytest.mark.usefixtures("by_the_rule")
def test_without_a_method_masks_have_mixture():
    assert RunConfig(**SETTINGS).method == "mixture"


def test_a_model_of_masks_promises_no_share_and_is_no_onnx_file(tmp_path):
    run(method="target-only", rounds=1, test_samples=4, output=tmp_path, **SETTINGS)
    model = load(tmp_path)
    assert model.about.mask
    assert model.predict(np.zeros((2, 1, 32, 32))).shape == (2, 1024)
    for refused in (lambda: model.thresholds(0.9), lambda: export(model, tmp_path / "model.onnx")):
        with pytest.raises(ConfigError, match="pixels of a mask"):
            refused()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.smoke), 1, 2])
def test_mixture_is_ahead_of_the_target_alone_and_that_of_the_sources(seed):
    settings = SETTINGS | {"rounds": 8, "seed": seed}
    methods = ("mixture", "target-only", "source-only")
    best, alone, sources = (run(method=each, **settings).history[-1]["dice"] for each in methods)
    assert best > 0.85 > alone > sources
    assert sources < 0.1
