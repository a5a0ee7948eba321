"""Devices of training: their names, precisions and random numbers; torch is imported on first use.

An accelerator is whatever `torch.accelerator` finds; the rest is asked of its module, such as `torch.cuda`.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from fda_flower.errors import RunError, check_choice, invalid, unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
"""Names of devices; the back end of another accelerator, where PyTorch has one, adds its own."""

OF_RAY = ("cuda", "xpu")
"""Kinds of devices that Ray counts and shares out as GPUs."""

WITHOUT_FLOAT64: tuple[str, ...] = ("mps",)
"""Kinds of devices that do not calculate in float64."""

PRECISIONS = ("float32", "bf16")


def find_device(name: str) -> "torch.device":
    """Return the device of a name: ``cpu``, ``cuda:1``, ...; ``auto`` is an accelerator if there is one.

    For CUDA, this sets ``CUBLAS_WORKSPACE_CONFIG``, unless it is set, to make cuBLAS deterministic.

    Raises
    ------
    ConfigError
        If this machine, or its PyTorch, has no such device.
    """
    import torch

    check_device(name)
    here = None if name == "cpu" else _accelerator()
    if here is None:
        return torch.device("cpu")
    if here.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return here if name == "auto" else torch.device(name)


def check_device(name: str) -> None:
    """Raise a `ConfigError` if this machine has no device of this name."""
    if name in ("auto", "cpu"):
        return
    kind, colon, index = name.partition(":")
    here = _accelerator()
    is_here = here is not None and here.type == kind
    if (kind not in DEVICES[2:] and not is_here) or (colon and not index.isdecimal()):
        raise unknown("device", name, (*DEVICES, "cuda:NUMBER"))
    if here is None:
        raise invalid("device", name, "use auto or cpu", "but PyTorch sees no accelerator here")
    if not is_here:
        raise invalid("device", name, f"use auto, {here.type} or cpu", f"but PyTorch has {here.type} here")
    count = _module(here).device_count()
    if colon and int(index) >= count:
        seen = ", ".join(_with_name(f"{kind}:{i}") for i in range(count))
        raise invalid("device", name, f"{seen}; choose one of them", f"but PyTorch sees {count} here")


def is_numbered(name: str) -> bool:
    """Return whether a device's name has a number, such as ``cuda:1``."""
    return ":" in name


def check_precision(name: str, device: str) -> None:
    """Raise a `ConfigError` if a device cannot train in the precision `name`."""
    check_choice("precision", name, PRECISIONS)
    if name == "float32" or (chosen := find_device(device)).type == "cpu":
        return
    if not _has_bf16(chosen):
        why = f"but {_with_name(str(chosen))} does not calculate in bfloat16"
        raise invalid("precision", name, "choose float32, or another --device", why)


def widest_float(device: "torch.device") -> "torch.dtype":
    """Return the type of a device's long sums: float64, or float32 where there is no float64."""
    import torch

    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


@contextmanager
def forked(device: "torch.device") -> Iterator[None]:
    """Restore torch's global random states after the block, on the CPU and on `device`."""
    import torch

    if device.type != "cpu":
        with torch.random.fork_rng([device], device_type=device.type):
            yield
        return
    state = torch.get_rng_state()  # fork_rng looks for an accelerator each time
    try:
        yield
    finally:
        torch.set_rng_state(state)


@contextmanager
def deterministic(seed: int, device: "torch.device") -> Iterator[None]:
    """Seed an accelerator, and let only its deterministic algorithms run; the CPU has no others.

    Raises
    ------
    RunError
        If an operation in the block has no deterministic algorithm.
    """
    import torch

    if device.type == "cpu":
        yield
        return
    before, of_cudnn = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic
    with _current(device):
        _module(device).manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        try:
            yield
        except RuntimeError as error:
            if "deterministic" not in str(error):
                raise
            raise RunError(
                f"{str(error).split()[0]} has no deterministic algorithm on {device.type}",
                thing="network",
                value=str(error).split()[0],
                remedy="choose another network, or --device cpu",
            ) from error
        finally:
            torch.use_deterministic_algorithms(before)
            torch.backends.cudnn.deterministic = of_cudnn


class RandomNumbers:
    """A random stream separate from torch's global ones, which starts in their current state.

    Parameters
    ----------
    device : torch.device
        Where random numbers are drawn in addition to the CPU.
    """

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        self._states = self._now()

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let torch draw from this stream in the block, without advancing its global streams."""
        import torch

        with forked(self._device):
            cpu, *others = self._states
            torch.set_rng_state(cpu)
            for state in others:
                _module(self._device).set_rng_state(state, self._device)
            yield
            self._states = self._now()

    def _now(self) -> "list[Tensor]":
        import torch

        cpu, device = torch.get_rng_state(), self._device
        return [cpu] if device.type == "cpu" else [cpu, _module(device).get_rng_state(device)]


def _accelerator() -> "torch.device | None":
    import torch

    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def _module(device: "torch.device | str") -> Any:
    import torch

    return torch.get_device_module(device)


def _current(device: "torch.device") -> AbstractContextManager[Any]:
    """Return a block in which a device is the current one of its kind; there is only one ``mps``."""
    chosen: AbstractContextManager[Any] = getattr(_module(device), "device", nullcontext)(device)
    return chosen


def _with_name(device: str) -> str:
    """Return a device's name with its hardware's, if its back end has it."""
    named = getattr(_module(device), "get_device_name", None)
    return device if named is None else f"{device} ({named(device)})"


def _has_bf16(device: "torch.device") -> bool:
    """Return whether a device says that it calculates in bfloat16 or, where it does not say, does."""
    import torch

    said = getattr(_module(device), "is_bf16_supported", None)
    if said is not None:
        with _current(device):
            return bool(said(including_emulation=False))
    number = torch.ones(1, 1, device=device)
    with warnings.catch_warnings(), torch.autocast(device.type, torch.bfloat16):
        warnings.simplefilter("ignore")
        return (number @ number).dtype == torch.bfloat16
