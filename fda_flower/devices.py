"""Where clients train; torch is loaded on first use."""

from typing import TYPE_CHECKING

from fda_flower.errors import ConfigError, unknown

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")


def find_device(name: str) -> "torch.device":
    """Return the device of a name: ``cpu``, ``cuda``, or ``auto`` for a GPU if there is one."""
    import torch

    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def check_device(name: str) -> None:
    """Raise a `ConfigError` if there is no device of this name on this machine."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda" and find_device(name).type != "cuda":
        raise ConfigError("device is 'cuda', but torch sees no GPU here: use auto or cpu")
