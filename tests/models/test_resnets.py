"""torchvision's networks: weights from files, what they do not fit, and what happens to the images."""

import tarfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from naming import names
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.names import read_options

SHAPE = (3, 32, 32)


def original(classes: int = 1000) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return models.resnet18(num_classes=classes).eval()


def images(channels: int = 3) -> torch.Tensor:
    return torch.rand(2, channels, 32, 32, generator=torch.Generator().manual_seed(0))


def build(weights: object, classes: int = 1000, shape: tuple[int, ...] = SHAPE) -> Any:
    return build_model("resnet18", shape, classes, 0, {"weights": str(weights)}).eval()


def saved(path: Path, state: dict[str, torch.Tensor]) -> Path:
    (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


def normalised(x: torch.Tensor) -> torch.Tensor:
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (x - mean[:, None, None]) / deviation[:, None, None]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_of_a_file_on_normalised_images(tmp_path: Path, suffix: str) -> None:
    there = original()
    path = saved(tmp_path / f"weights{suffix}", there.state_dict())
    model = build(path)
    assert list(model.state_dict()) == list(there.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model(images()), there(normalised(images())))


def test_grey_images_are_repeated(tmp_path: Path) -> None:
    path = saved(tmp_path / "weights.pth", original().state_dict())
    grey = images(1)
    for weights in ("", path):
        with torch.no_grad():
            expected = build(weights)(grey.repeat(1, 3, 1, 1))
            assert torch.equal(build(weights, shape=(1, 32, 32))(grey), expected)


def test_without_weights_images_are_not_normalised() -> None:
    plain = models.resnet18(num_classes=4).eval()
    model = build("", 4)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(images()), plain(images()))


@pytest.mark.parametrize("headless", [False, True])
def test_a_head_that_does_not_fit_is_left_out(tmp_path: Path, headless: bool) -> None:
    state = original().state_dict()
    if headless:
        state = {name: value for name, value in state.items() if not name.startswith("fc.")}
    model, random = build(saved(tmp_path / "weights.pth", state), 4), build("", 4)
    assert torch.equal(model.conv1.weight, state["conv1.weight"])
    assert torch.equal(model.fc.weight, random.fc.weight)
    assert torch.equal(model.fc.bias, random.fc.bias)


def test_old_files_without_batchnorms_counters_are_read(tmp_path: Path) -> None:
    state = {name: v for name, v in original().state_dict().items() if "num_batches" not in name}
    assert torch.equal(build(saved(tmp_path / "weights.pth", state)).fc.weight, state["fc.weight"])


def test_normalising_is_no_part_of_the_state_and_moves_with_the_model(tmp_path: Path) -> None:
    model = build(saved(tmp_path / "weights.pth", original().state_dict())).double()
    assert model.prepare.mean.dtype == torch.float64
    assert not [name for name in model.state_dict() if "prepare" in name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conv1.weight": torch.zeros(64, 3, 5, 5)}, ["1 entries differ", "64x3x5x5 there, 64x3x7x7 in"]),
        ({"bn1.weight": None}, ["'bn1.weight'", "missing there, 64 in"]),
        ({"extra": torch.tensor(1.0)}, ["'extra'", "a number there, missing in"]),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path: Path, change: dict, words: list[str]) -> None:
    state = {**original().state_dict(), **change}
    path = saved(tmp_path / "w.pth", {name: value for name, value in state.items() if value is not None})
    with pytest.raises(ConfigError) as caught:
        build(path)
    assert all(word in str(caught.value) for word in (*words, str(path), "'resnet18'"))


@pytest.mark.parametrize("name", ["none.pth", "none.safetensors", "text.pth", "text.safetensors", "cut.pth"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    if name.startswith("text"):
        (tmp_path / name).write_text("no weights at all")
    if name == "cut.pth":
        path = saved(tmp_path / name, {"a": torch.zeros(99)})
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, check=names("weights")):
        build(tmp_path / name)


@pytest.mark.parametrize("kind", ["object", "program", "tar"])
def test_a_file_that_is_no_state_is_refused_without_torchs_advice_to_run_it(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "w.pth"
    if kind == "object":
        torch.save({"path": tmp_path}, path)
    elif kind == "program":
        with zipfile.ZipFile(path, "w") as archive:  # torch takes it for TorchScript
            for name in ("data.pkl", "constants.pkl", "version"):
                archive.writestr(f"w/{name}", "3")
    else:
        with tarfile.open(path, "w") as archive:
            archive.add(__file__, "storages")
    with pytest.raises(ConfigError) as caught:
        build(path)
    assert str(path) in str(caught.value)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("content", [{"state_dict": {}}, [torch.zeros(2)], {0: torch.zeros(2)}])
def test_a_file_without_a_state_dictionary_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(ConfigError, check=names("weights")):
        build(tmp_path / "w.pth")


def test_imagenets_weights_are_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, state = [], original().state_dict()

    def download(url: str, **_: object) -> dict[str, torch.Tensor]:
        asked.append(url)
        return state

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    assert torch.equal(build("imagenet", 4).conv1.weight, state["conv1.weight"])
    assert asked == [models.ResNet18_Weights.DEFAULT.url]


def test_a_download_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(url: str, **_: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fails)
    with pytest.raises(ConfigError, match=r"cannot be downloaded.*no network.*resnet18.*weights=FILE"):
        build("imagenet", 4)


def test_two_channels_are_refused() -> None:
    with pytest.raises(ConfigError, check=names("model", "resnet18")):
        build("", 4, (2, 32, 32))


def test_weights_are_an_option() -> None:
    from fda_flower.models import MODELS

    given = read_options("model", MODELS["resnet50"].builder, {"weights": "a.pth"}, {"shape", "classes"})
    assert given == {"weights": "a.pth"}
