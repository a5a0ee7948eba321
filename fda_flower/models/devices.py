"""Devices and precisions of training; torch is imported on first use."""

import os
from typing import TYPE_CHECKING

from fda_flower.errors import check_choice, invalid, unknown

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")

PRECISIONS = ("float32", "bf16")

BF16_CAPABILITY = (8, 0)
"""The lowest compute capability of an NVIDIA GPU with bfloat16 (Ampere)."""


def find_device(name: str) -> "torch.device":
    """Return the device of a name: ``cpu``, ``cuda``, ``cuda:1``, or ``auto`` for a GPU if there is one.

    For a GPU, this sets ``CUBLAS_WORKSPACE_CONFIG``, unless it is set, to make cuBLAS deterministic.
    """
    import torch

    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return torch.device("cuda" if name == "auto" else name)


def check_device(name: str) -> None:
    """Raise a `ConfigError` if this machine has no device of this name."""
    kind, colon, index = name.partition(":")
    if kind not in DEVICES or (colon and not (kind == "cuda" and index.isdecimal())):
        raise unknown("device", name, (*DEVICES, "cuda:NUMBER"))
    if kind != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise invalid("device", name, "use auto or cpu", "but torch sees no GPU here")
    if is_numbered(name) and int(index) >= (count := torch.cuda.device_count()):
        seen = ", ".join(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(count))
        raise invalid("device", name, f"{seen}; choose one of them", f"but torch sees {count} here")


def is_numbered(name: str) -> bool:
    """Return whether a device's name has a number, such as ``cuda:1``."""
    return ":" in name


def check_precision(name: str, device: str) -> None:
    """Raise a `ConfigError` if a device cannot train in the precision `name`."""
    check_choice("precision", name, PRECISIONS)
    if name == "float32" or (chosen := find_device(device)).type == "cpu":
        return
    import torch

    if torch.cuda.get_device_capability(chosen) < BF16_CAPABILITY:
        why = f"but {torch.cuda.get_device_name(chosen)} does not calculate in bfloat16"
        raise invalid("precision", name, "choose float32, or another --device", why)
