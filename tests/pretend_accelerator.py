"""A pretend accelerator: a PyTorch back end in Python whose tensors wrap tensors of the CPU.

As on a GPU, tensors of the CPU do not mix with its tensors, whose numbers only an explicit copy reads.
Unlike on a GPU, results have the bits of the CPU. A back end is registered once, for a whole process:
tests send their work to a process of its own (`in_process`).
"""

import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration
from whole_runs import untimed

import fda_flower
from fda_flower.files import MODEL
from fda_flower.models import ONNX_RUNTIME, devices
from fda_flower.prediction.export import export

NAME = "pretend"
ATEN = torch.ops.aten
CALLS = Counter()
"""How often the device has run each operation."""


class Wrapped(torch.Tensor):
    """A tensor on the device."""

    raw: torch.Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, raw, requires_grad=False):
        """Wrap a tensor of the CPU."""
        with torch.inference_mode(raw.is_inference()):
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                raw.size(),
                strides=raw.stride(),
                storage_offset=raw.storage_offset(),
                dtype=raw.dtype,
                device=torch.device(NAME, 0),
                requires_grad=requires_grad,
            )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):  # type: ignore[override]
        return run(operation, args, kwargs or {})

    def __repr__(self, *, tensor_contents=None):
        return f"{NAME}: {self.raw!r}"

    def tolist(self):
        """A copy that is asked for, as on a GPU."""
        return self.cpu().tolist()

    def __deepcopy__(self, memo):
        copy = Wrapped(self.raw.clone(), self.requires_grad)
        copy._is_param = getattr(self, "_is_param", False)  # what makes it a parameter
        memo[id(self)] = copy
        return copy


class Generator(torch.Generator):
    """A generator on the device: the CPU's numbers."""

    def __new__(cls, device="cpu"):
        return torch._C.Generator.__new__(cls if is_ours(device) else torch._C.Generator)


class Module:
    """What ``torch.pretend`` is, as `torch.cuda` is for CUDA; its random numbers are the CPU's."""

    device = nullcontext
    float64 = True

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def _is_in_bad_fork(self):
        return False

    def manual_seed(self, seed):
        torch.default_generator.manual_seed(seed)

    def manual_seed_all(self, seed):
        """The CPU's generator has the seed."""

    def get_rng_state(self, device):
        return torch.get_rng_state()

    def set_rng_state(self, state, device):
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]


def is_ours(device):
    return device is not None and torch.device(device).type == NAME


def run(operation, args, kwargs):
    """Run an operation on the tensors that are wrapped."""
    CALLS[operation.name()] += 1
    if operation is ATEN._to_copy.default:
        return _copied(operation, *args, **kwargs)
    if operation in (ATEN.copy_.default, ATEN._copy_from.default):
        into, source = args[:2] if operation is ATEN.copy_.default else args[1::-1]
        raw(into).copy_(raw(source))
        return into
    given = pytree.tree_leaves((args, kwargs))
    _check(operation, given)
    if kwargs.get("device") is not None:
        kwargs["device"] = "cpu"
    inner = pytree.tree_map_only(Wrapped, raw, (args, kwargs))
    results = REPLACED.get(operation, operation)(*inner[0], **inner[1])
    wrapped = {id(tensor.raw): tensor for tensor in given if isinstance(tensor, Wrapped)}
    for tensor in wrapped.values():
        assert tensor.shape == tensor.raw.shape, (
            f"{operation} changes the shape of a tensor, which is not written"
        )

    def wrap(tensor):
        if tensor.dtype in FORBIDDEN:
            raise TypeError(f"{operation}: {NAME} has no {tensor.dtype}")
        same = wrapped.get(id(tensor))
        return Wrapped(tensor) if same is None else same

    return pytree.tree_map_only(torch.Tensor, wrap, results)


def raw(tensor):
    return tensor.raw if isinstance(tensor, Wrapped) else tensor


def _copied(operation, source, device=None, **kwargs):
    copy = operation(raw(source), device="cpu", **kwargs)
    if not is_ours(source.device if device is None else device):
        return copy
    if copy.dtype in FORBIDDEN:
        raise TypeError(f"{operation}: {NAME} has no {copy.dtype}")
    return Wrapped(copy)


def _check(operation, given):
    """Refuse what a GPU refuses; it takes a single number from the CPU."""
    for each in given:
        if isinstance(each, torch.Tensor) and not isinstance(each, Wrapped) and each.dim():
            raise RuntimeError(f"{operation}: expected all tensors on {NAME}, but one is on {each.device}")
        if isinstance(each, torch.Generator) and not isinstance(each, Generator):
            raise RuntimeError(f"{operation}: expected a generator on {NAME}")


def _dropout(x, probability, train):
    """The CPU's own dropout; the mask has the scale, so that the gradient has the CPU's bits, too."""
    noise = torch.empty_like(x).bernoulli_(1 - probability).div_(1 - probability)
    return x * noise, noise


REPLACED = {
    ATEN.native_dropout.default: _dropout,
    ATEN.native_dropout_backward.default: lambda gradient, mask, scale: gradient * mask,
}
"""Operations that PyTorch takes for accelerators only."""

FORBIDDEN = set()
"""Types of numbers that the device lacks."""

LIBRARIES = []

is_possible = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def register(float64=True):
    """Add the device to this process; Apple's has no `float64`."""
    if not float64:
        FORBIDDEN.add(torch.float64)
        devices.WITHOUT_FLOAT64 += (NAME,)
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    setattr(torch, "Generator", Generator)  # noqa: B010
    # PyTorch asserts that data become a tensor in C++ alone.
    for name in ("tensor", "as_tensor"):
        setattr(torch, name, _made_on_cpu(getattr(torch, name)))
    every = torch.library.Library("_", "IMPL")
    every.fallback(
        lambda operation, *args, **kwargs: run(operation, args, kwargs), dispatch_key="PrivateUse1"
    )
    own = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in ("arange", "arange.start", "arange.start_step"):  # else they resize a tensor
        own.impl(name, lambda *args, device=None, **kwargs: Wrapped(torch.arange(*args, **kwargs)))
    attention = ATEN.scaled_dot_product_attention.default  # else it has other steps than the CPU's
    own.impl("scaled_dot_product_attention", lambda *args, **kwargs: run(attention, args, kwargs))
    every.fallback(torch.library.fallthrough_kernel, dispatch_key="AutocastPrivateUse1")
    half = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for name in ("conv2d", "linear", "matmul", "mm", "addmm", "bmm"):
        half.impl(name, partial(_in_half, getattr(ATEN, name).default))
    LIBRARIES.extend((every, own, half))


def _in_half(operation, *args, **kwargs):
    """Run an operation as the CPU's autocast does."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, "AutocastPrivateUse1"))  # noqa: B009
    with torch._C._ExcludeDispatchKeyGuard(keys):
        dtype = torch.get_autocast_dtype(NAME)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtype), (args, kwargs))
        return operation(*args, **kwargs)


def _made_on_cpu(make):
    def made(data, *, device=None, requires_grad=False, **options):
        if not is_ours(device):
            options |= {"requires_grad": True} if requires_grad else {}
            return make(data, device=device, **options)
        return make(data, **options).to(device).requires_grad_(requires_grad)

    return made


def in_process(**options):
    """Return a pool of one process that has the device; for `options` see `register`."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, partial(register, **options))


def both(settings, folder=None, samples=None, exports=True):
    """Run on the CPU and on the device; return how the results differ, and how often the device calculated.

    With a folder, also predict `samples`, or random ones, with each run's models on either device, and
    export them. PyTorch computes features on the CPU, too.
    """
    sys.modules[ONNX_RUNTIME] = None  # type: ignore[assignment]
    outputs = {}
    for device in ("cpu", "auto"):
        CALLS.clear()
        output = None if folder is None else folder / device
        if folder is not None:  # no features that the other device has computed
            os.environ["FDA_CACHE_DIR"] = str(folder / f"cache of {device}")
        result = fda_flower.run(device=device, output=output, **settings)
        outputs[device] = [untimed(result.history), _bits(result.model)]
        if folder is not None:
            outputs[device].append([_used(path.parent, device, samples, exports) for path in _models(output)])
    names = ("history", "model", "predictions and exports")
    different = [name for name, *pair in zip(names, *outputs.values(), strict=False) if pair[0] != pair[1]]
    return different, CALLS.total()


def _bits(arrays):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def _models(folder):
    paths = sorted(folder.rglob(MODEL))
    assert paths
    return paths


def _used(folder, device, samples, exports):
    """Return what a model predicts on a device, and the file that it is exported to."""
    model = fda_flower.load(folder, device)
    if samples is None:
        samples = np.random.default_rng(0).random((9, *model.about.shape), dtype=np.float32)
    used = [model.outputs(model.samples(samples)).tobytes()]
    if exports:
        export(model, folder / "model.onnx")
        used.append((folder / "model.onnx").read_bytes())
    kinds = {tensor.device.type for tensor in model.module.state_dict().values()}
    assert kinds == {"cpu" if device == "cpu" else NAME}, "it stays on its device"
    return used
