"""Devices and precisions: names, and what a GPU needs for the same bits, on one that is pretended or real."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from naming import names
from sites import write_images, write_sites
from tensors import samples_of
from torch import nn

from fda_flower import run
from fda_flower.clients.training import repeatable
from fda_flower.errors import ConfigError, RunError
from fda_flower.models import MODELS, build_model
from fda_flower.models.devices import check_device, find_device, is_numbered, widest_float
from fda_flower.models.parts import features_of, in_precision
from fda_flower.prediction.batches import batches, on_device
from fda_flower.prediction.model import LoadedModel
from fda_flower.prediction.network_passes import predict
from fda_flower.runs.config import RunConfig

GPU = torch.device("cuda", 0)


def load_on(device):
    """A model of a run on a device."""
    return LoadedModel(None, None, device)  # type: ignore[arg-type]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def pretend(monkeypatch, kind, count):
    """PyTorch says that it has accelerators, in any build of it."""
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr("torch.accelerator.is_available", lambda: count > 0)
    monkeypatch.setattr(f"torch.{kind}.device_count", lambda: count)


@pytest.fixture
def two_gpus(monkeypatch):
    pretend(monkeypatch, "cuda", 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Toy")
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr("torch.cuda.device", nullcontext)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)


def test_a_gpu_is_found_by_its_number_and_cublas_is_asked_for_repeatable_results(two_gpus, monkeypatch):
    assert find_device("cpu").type == "cpu"
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert find_device("cuda:1") == torch.device("cuda", 1)
    assert find_device("auto") == find_device("cuda") == torch.device("cuda")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    find_device("cuda")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_a_number_beyond_the_gpus_is_refused_with_those_there_are(two_gpus):
    check_device("cuda:1")
    assert is_numbered("cuda:1")
    assert not is_numbered("cuda")
    with pytest.raises(ConfigError, check=names("device", "cuda:2", "cuda:0 (Toy), cuda:1 (Toy)")):
        check_device("cuda:2")
    for name in ("cuda:", "cuda:-1", "cuda:x", "cpu:0", "auto:1", "tpu"):
        with pytest.raises(ConfigError, check=names("device", name)):
            check_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "xpu:1"])
@pytest.mark.parametrize("look", [check_device, find_device, load_on])
def test_without_an_accelerator_none_is_taken_for_another(monkeypatch, name, look):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    with pytest.raises(ConfigError, check=names("device", name, "use auto or cpu")):
        look(name)
    assert find_device("auto").type == "cpu"


@pytest.mark.parametrize(("kind", "others"), [("mps", ("cuda", "xpu")), ("xpu", ("cuda:0", "mps"))])
def test_the_accelerator_that_pytorch_has_is_taken_and_no_other(monkeypatch, kind, others):
    pretend(monkeypatch, kind, 1)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert find_device("auto") == find_device(kind) == torch.device(kind)
    assert find_device(f"{kind}:0") == torch.device(kind, 0)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    for name in others:
        with pytest.raises(ConfigError, check=names("device", name, f"use auto, {kind} or cpu")):
            check_device(name)
    with pytest.raises(ConfigError, check=names("device", "tpu", kind)):
        check_device("tpu")


def test_sums_are_as_wide_as_the_device_allows():
    assert widest_float(GPU) == widest_float(torch.device("cpu")) == torch.float64
    assert widest_float(torch.device("mps")) == torch.float32


def test_a_share_of_a_gpu_and_a_certain_gpu_exclude_each_other(two_gpus):
    with pytest.raises(ConfigError, check=names("gpus-per-client", 0.5)):
        run(engine="ray", device="cuda:1", gpus_per_client=0.5, model="mlp", rounds=1)


def test_a_precision_that_the_gpu_lacks_is_refused(two_gpus, monkeypatch):
    with pytest.raises(ConfigError, check=names("precision", "bf16")):
        RunConfig(precision="bf16", device="cuda:1")
    assert RunConfig(precision="bf16", device="cpu").fingerprint()["precision"] == "bf16"
    assert RunConfig(device="cuda:1").precision == "float32"
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    RunConfig(precision="bf16", device="cuda:1")
    with pytest.raises(ConfigError, check=names("precision", "bf8")):
        RunConfig(precision="bf8")


@pytest.fixture
def pretended(monkeypatch):
    """Random numbers and the current device of a GPU that is not there: what was asked of them."""
    asked: list[object] = []
    monkeypatch.setattr("torch.cuda.get_rng_state", lambda device: torch.tensor([7]))
    monkeypatch.setattr("torch.cuda.set_rng_state", lambda state, device: asked.append(int(state)))
    monkeypatch.setattr("torch.cuda.manual_seed", asked.append)

    def current(device: torch.device) -> AbstractContextManager[None]:
        asked.append(device)
        return nullcontext()

    monkeypatch.setattr("torch.cuda.device", current)
    return asked


def test_on_a_gpu_only_deterministic_algorithms_run_from_the_seed(pretended):
    with repeatable(5, 1, GPU):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic
        assert torch.initial_seed() == 5
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert pretended == [GPU, 5, 7]
    with repeatable(5, 1):
        assert not torch.are_deterministic_algorithms_enabled()


def test_what_has_no_deterministic_algorithm_is_named(pretended):
    says = "adaptive_max_pool2d_backward_cuda does not have a deterministic implementation, but you set"
    named = "adaptive_max_pool2d_backward_cuda has no deterministic algorithm on cuda"
    with pytest.raises(RunError, match=named), repeatable(5, 1, GPU):
        raise RuntimeError(says)
    with pytest.raises(RuntimeError, match="out of memory"), repeatable(5, 1, GPU):
        raise RuntimeError("CUDA out of memory")
    assert not torch.are_deterministic_algorithms_enabled()


def test_noise_of_a_gpu_has_a_seed_that_the_generator_draws(monkeypatch):
    class Pretended:
        def __init__(self, device):
            self.device = device

        def manual_seed(self, seed):
            return self.device, seed

    generator = torch.Generator().manual_seed(3)
    assert on_device(generator, torch.device("cpu")) is generator
    monkeypatch.setattr("torch.Generator", Pretended)
    drawn: list[Any] = [on_device(generator, GPU) for _ in range(2)]
    assert [device for device, _ in drawn] == [GPU, GPU]
    assert drawn[0] != drawn[1]
    assert all(0 <= seed < 2**63 for _, seed in drawn)


# half precision, on the CPU


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name == "lenet" or ("net" not in name and name != "minilm")]
)
def test_a_network_in_bf16_trains_float32_parameters_near_those_of_float32(name):
    """The class, the names and what is evaluated stay as they are, in copies too."""
    shape = (1, 16, 16) if name not in ("mlp", "logistic", "sigmoid", "hinges") else (20,)
    x, y = torch.rand(6, *shape, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    plain, half = build_model(name, shape, 3, 0), in_precision(build_model(name, shape, 3, 0), "bf16")
    assert type(in_precision(plain, "float32")) is type(plain)
    assert isinstance(half, type(plain))
    assert list(half.state_dict()) == list(plain.state_dict())
    for model in (plain, half):
        outputs = model(x)
        assert outputs.dtype == torch.float32
        nn.functional.cross_entropy(outputs, y).backward()
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    for ours, theirs in zip(gradients(half), gradients(plain), strict=True):
        assert ours.dtype == torch.float32
        assert not torch.equal(ours, theirs)
        torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.1)
    samples, generator = samples_of(x, y), torch.Generator()
    assert torch.equal(predict(half, samples, generator), predict(plain, samples, generator))
    with features_of(half) as features:
        half(x)
    assert features[0].dtype == torch.float32


@pytest.mark.slow
@pytest.mark.smoke
def test_a_run_in_bf16_learns_and_differs_from_one_in_float32():
    settings: dict[str, Any] = {"model": "cnn", "method": "fedgp", "rounds": 2, "target_samples": 16}
    settings["device"] = "cpu"
    half, plain = (run(precision=precision, **settings) for precision in ("bf16", "float32"))
    again = run(precision="bf16", **settings)
    for name, array in half.model.items():
        assert array.dtype == plain.model[name].dtype
        assert array.tobytes() == again.model[name].tobytes()
    assert any(array.tobytes() != plain.model[name].tobytes() for name, array in half.model.items())
    assert abs(half.accuracies[-1] - plain.accuracies[-1]) < 10


# on a GPU


@needs_gpu
@pytest.mark.parametrize(
    "model", [name for name in MODELS if name not in ("resnet18", "resnet50", "efficientnet-lite0", "minilm")]
)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_gpu_gives_the_same_bits_twice(model, precision, tmp_path):
    settings: dict[str, Any] = {"model": model, "rounds": 2, "device": "cuda", "precision": precision}
    settings |= {"dataset": "rbf"} if model in ("sigmoid", "hinges") else {}
    if model in ("lenet", "resnet9"):
        write_sites(write_images, tmp_path, "abc")
        settings |= {"dataset": "images", "dataset_options": {"image_size": 16}, "data_dir": str(tmp_path)}
    settings["target_samples"] = 8
    one, other = run(**settings), run(**settings)
    for name, array in one.model.items():
        assert array.tobytes() == other.model[name].tobytes()


@needs_gpu
def test_noise_is_drawn_on_the_gpu_anew_in_each_pass_and_the_same_from_a_seed():
    samples = samples_of(torch.zeros(8, 1, 4, 4), torch.arange(8), noise=1.0)

    def passes(seed):
        generator = torch.Generator().manual_seed(seed)
        drawn = (batches(samples, 4, generator, device=torch.device("cuda")) for _ in range(2))
        return [torch.cat([x for x, _ in each]) for each in drawn]

    first, second = passes(1)
    assert first.device.type == "cuda"
    assert not torch.equal(first, second)
    assert all(torch.equal(*pair) for pair in zip(passes(1), (first, second), strict=True))
