"""The command that pins a file of weights: what it prints is what a run takes."""

import json
from shlex import split

import pytest
import torch

from fda_flower.models import weights

NETWORK = "--model timm:test_vit --model-option init_values=1e-5 --model-option image_size=32"
SMALL = "--sources 2 --rounds 1 --target-samples 20 --source-samples 10 --test-samples 10 --device cpu"


@pytest.fixture(autouse=True)
def _file(tmp_path, monkeypatch):
    timm = pytest.importorskip("timm")
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))
    state = timm.create_model("test_vit", num_classes=0, init_values=1e-5).state_dict()
    torch.save(state, "vit.pth")
    torch.save({f"module.{name}": value for name, value in state.items()}, "parallel.pth")
    torch.save(state | {"cls_token": state["cls_token"] * torch.nan}, "nan.pth")


def test_the_printed_options_are_those_of_a_run_and_of_a_site(fda, tmp_path):
    code, printed, _ = fda("weights", "vit.pth", *NETWORK.split(), "--json")
    result = json.loads(printed)
    assert (code, result["problems"], result["model"]) == (0, [], "timm:test_vit")
    (tmp_path / "vit.pth").unlink()
    code, _, error = fda(
        "run", *SMALL.split(), "--method", "fedavg", *split(result["options"]), "--output", "r"
    )
    assert (code, error) == (0, "")
    settings = json.loads((tmp_path / "r/config.json").read_text())["settings"]
    assert result["digest"] in str(settings["model_options"])


@pytest.mark.parametrize(
    ("arguments", "says", "count"),
    [
        ("vit.pth --model timm:test_vit", "'blocks.0.ls1.gamma' (64 there, missing in the model)", 12),
        (
            f"parallel.pth {NETWORK}",
            "every name begins with 'module.': save the state_dict() of the model inside",
            1,
        ),
        (f"nan.pth {NETWORK}", "'cls_token' holds NaN or infinity", 1),
        (
            "nan.pth",
            "'cls_token' holds NaN or infinity: save finite numbers, or add --model, if the network has no "
            "such array",
            1,
        ),
        ("parallel.pth", "every name begins with 'module.': save the state_dict() of the model inside", 1),
    ],
)
def test_a_file_that_does_not_fit_is_not_stored(fda, arguments, says, count):
    code, printed, _ = fda("weights", *arguments.split(), "--json")
    problems = json.loads(printed)["problems"]
    assert (code, len(problems), says in problems) == (1, count, True)
    assert not weights.weights_folder().exists()


@pytest.mark.parametrize(
    ("arguments", "thing"),
    [
        ("timm:test_vit --model timm:test_resnet", "model"),
        ("timm:test_vit3.nope", "model"),
        ("vit.pth --model-option init_values=1", "model-option"),
        ("vit.pth --model cnn", "option"),
        ("timm:test_vit", "model"),
        ("resnet18", "weights"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_stored(fda, monkeypatch, arguments, thing):
    def fetch(address, place):
        raise OSError("no internet")

    monkeypatch.setattr(weights, "_fetch", fetch)
    code, printed, _ = fda("weights", *arguments.split(), "--json")
    assert (code, json.loads(printed)["error"]["thing"]) == (2, thing)
    folder = weights.weights_folder()
    assert not folder.exists() or not [*folder.iterdir()]
