"""What of a network is trained, and the cut before it: what is frozen runs once for each sample."""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fda_flower.errors import ConfigError, invalid
from fda_flower.models import Train
from fda_flower.models.parts import has_body, head_of

PREPARE = "prepare"
"""The module by which a network prepares samples: it runs first, though it is the last one added."""

TUNED = (nn.Linear, nn.Conv2d)
"""The layers that get adapters, unless they are depthwise."""


@dataclass(frozen=True)
class Split:
    """A network in two.

    Attributes
    ----------
    front : Module or None
        What is frozen before everything that is trained, in evaluation mode; None if there is nothing, or
        the network cannot be cut there.
    end : Module
        The rest, which takes what `front` returns. What is frozen in it has no ``requires_grad``.
    """

    front: nn.Module | None
    end: nn.Module


def split(network: nn.Module, train: Train, shape: tuple[int, ...], name: str = "the network") -> Split:
    """Freeze what of a network is not trained, and cut it there; the adapters are drawn at random.

    Parameters
    ----------
    network : Module
        A network for samples of a `shape`; it is used up.
    train : Train
        What is trained.
    shape : tuple of int
        Of one sample.
    name : str
        How errors call the network.

    Raises
    ------
    ConfigError
        If the network has no head, no blocks, or no layers for adapters.
    """
    if train.what == "all":
        return Split(None, network)
    network.eval().requires_grad_(False)
    head = head_of(network)
    if train.what == "linear":
        return _linear(network, head, shape)
    if train.what == "head":
        if not _path(network, head):
            what = f"train is head, but '{name}' is nothing but a head, which is trained whole: leave it out"
            raise ConfigError(what, thing="train", value="head")
        front = Features(_without(network, head), shape)
        return Split(front.eval(), nn.Sequential(OrderedDict(head=head.requires_grad_(True))))
    container, block = _last_block(network, head, name)
    parts = _cut(network, container, block, shape)
    head = head_of(parts.end).requires_grad_(True)
    tuned = _from(parts.end, f"{container}.{block}", head)
    if train.what == "adapters":
        _adapt(parts.end, tuned, train.rank, name)
        head.requires_grad_(True)  # which peft freezes with all the rest
    else:
        for module in tuned.values():
            module.requires_grad_(True)
    return parts


def _without(network: nn.Module, head: nn.Module) -> nn.Module:
    """Return a network without its head, so that it returns features."""
    path = _path(network, head)
    if not path:
        return nn.Identity()
    network.set_submodule(path, nn.Identity())
    return network


def _linear(network: nn.Module, head: nn.Module, shape: tuple[int, ...]) -> Split:
    """Put a linear layer on features of unit length in a head's place; without a body, on the samples."""
    with torch.no_grad():
        classes, bare = network(torch.zeros(1, *shape)).shape[1], not has_body(network)
        body = _without(network, head)
        front = None if bare else Features(body, shape).eval()
        found = (front or body)(_agreed(shape)).flatten(1)
    roots = front is not None and bool((found >= 0).all())
    layers = {"rows": Rows(0.5 if roots else 1.0), "head": nn.Linear(found.shape[1], classes)}
    return Split(front, nn.Sequential(OrderedDict({"body": body, **layers} if bare else layers)))


class Rows(nn.Module):
    """Features of unit length: ``sign(φ) |φ|^power`` divided by its norm; features that are all 0 stay so.

    The power is 0.5, the square root, for the features of a body that are never negative, as after ReLU, and
    else 1. Whether they are is tried on samples that every site has. It travels with the model, so that all
    sites have the same.
    """

    power: Tensor

    def __init__(self, power: float) -> None:
        super().__init__()
        self.register_buffer("power", torch.tensor(power))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows, shape ``(n, features)``, of features of shape ``(n, ...)``."""
        x = x.flatten(1)
        return normalize(x.sign() * x.abs() ** self.power)


class Features(nn.Module):
    """A network without its head, whose features have a root mean square of about 1.

    One factor, a power of two, brings the features of scikit-learn's two photos to that size; features of
    anything but images keep theirs. So the factor is the same at every site. `beside` is the network's: how
    many numbers at the beginning of a sample are features already.
    """

    factor: Tensor

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.beside = int(getattr(network, "beside", 0))
        with torch.no_grad():
            size = 1.0 if len(shape) != 3 else float(network(_agreed(shape)).double().square().mean().sqrt())
        self.register_buffer("factor", torch.tensor(2.0 ** -round(torch.tensor(size).log2().item())))

    def forward(self, x: Tensor) -> Tensor:
        """Return features, float32, shape ``(n, features)``."""
        found: Tensor = self.network(x).flatten(1) * self.factor
        return found


def _agreed(shape: tuple[int, ...]) -> Tensor:
    """Return samples that are the same everywhere: scikit-learn's photos, or random rows."""
    if len(shape) != 3:
        return torch.randn(64, *shape, generator=torch.Generator().manual_seed(0))
    from PIL import Image
    from torch.nn.functional import interpolate

    channels, height, width = shape
    package = find_spec("sklearn")  # whose import would take seconds
    assert package is not None
    files = sorted(Path(str(package.origin)).parent.glob("datasets/images/*.jpg"))
    photos = np.stack([np.asarray(Image.open(file)) for file in files])
    images = torch.from_numpy(photos).permute(0, 3, 1, 2).float() / 255
    images = interpolate(images, (height, width), mode="bilinear", antialias=True)
    return images if channels == 3 else images.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)


def _path(network: nn.Module, wanted: nn.Module) -> str:
    return next(str(path) for path, module in network.named_modules() if module is wanted)


def _last_block(network: nn.Module, head: nn.Module, name: str) -> tuple[str, str]:
    """Return the path of the last sequence of blocks before the head, and the name of its last block."""
    around_head = [path for path, module in network.named_modules() if head in list(module.modules())]
    found: list[str] = []
    for path, module in network.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in [*found, _path(network, head)])
        blocks = isinstance(module, nn.Sequential | nn.ModuleList) and len(module) > 1
        if blocks and not inside and path not in around_head and [*module.parameters()]:
            found.append(path)
    if not found:
        remedy = "train its head, or all of it"
        what = f"'{name}' has no sequence of blocks, so that none is the last"
        raise ConfigError(what, thing="train", value=name, remedy=remedy)
    *_, block = (name for name, _ in network.get_submodule(found[-1]).named_children())
    return found[-1], str(block)


def _cut(network: nn.Module, container: str, block: str, shape: tuple[int, ...]) -> Split:
    """Cut a network before a block: what is done before it is replaced by identities in the end.

    That is right where a network passes on what these modules return; it is tried on random samples.
    """
    samples = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    path = f"{container}.{block}"
    before, after = _around(network, path)
    whole, end = copy.deepcopy(network), copy.deepcopy(network)
    for module in before:
        end.set_submodule(module, nn.Identity())
    for module in after:
        network.set_submodule(module, nn.Identity())
    network.set_submodule(path, Stop())
    front = Upto(network).eval()
    with torch.no_grad():
        try:
            fits = torch.equal(end(front(samples)), whole(samples))
        except (RuntimeError, ValueError, TypeError):
            fits = False
    return Split(front, end) if fits else Split(None, whole)


class Reached(Exception):  # noqa: N818 - it is no error
    """What a network has passed on when its `Stop` is reached."""

    def __init__(self, found: Tensor) -> None:
        super().__init__()
        self.found = found


class Stop(nn.Module):
    """Ends a pass through a network, whatever comes after."""

    def forward(self, x: Tensor) -> Tensor:
        """Raise `Reached`."""
        raise Reached(x)


class Upto(nn.Module):
    """A network up to its `Stop`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return what reaches the `Stop`."""
        try:
            outputs: Tensor = self.network(x)
        except Reached as reached:
            return reached.found
        return outputs


def _around(network: nn.Module, path: str) -> tuple[list[str], list[str]]:
    """Return the paths of the largest modules before and after one, in the order of the network."""
    before, after, seen = list[str](), list[str](), False

    def walk(prefix: str, module: nn.Module) -> None:
        nonlocal seen
        for name, child in module.named_children():
            full = f"{prefix}{name}"
            if full == path:
                seen = True
            elif path.startswith(f"{full}."):
                walk(f"{full}.", child)
            else:
                (after if seen and full != PREPARE else before).append(full)

    walk("", network)
    return before, after


def _from(end: nn.Module, path: str, head: nn.Module) -> dict[str, nn.Module]:
    """Return a block and the modules after it, without the head, by path."""
    _, after = _around(end, path)
    return {name: end.get_submodule(name) for name in [path, *after] if end.get_submodule(name) is not head}


def _adapt(end: nn.Module, tuned: dict[str, nn.Module], rank: int, name: str) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    layers = [
        f"{path}.{inner}".rstrip(".")
        for path, module in tuned.items()
        for inner, layer in module.named_modules()
        if isinstance(layer, TUNED) and getattr(layer, "groups", 1) == 1
    ]
    if not layers:
        what = f"train is adapters:{rank}, but the last block of '{name}' has no layer for adapters"
        raise ConfigError(what, thing="train", value=f"adapters:{rank}", remedy="choose last, or head")
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=layers), end)
    for path in layers:
        lora: Any = end.get_submodule(path)
        down, up = lora.lora_A["default"].weight, lora.lora_B["default"].weight
        with torch.no_grad():
            down.copy_(_orthonormal(rank, down[0].numel()).reshape(down.shape))
        down.requires_grad_(False)
        up.requires_grad_(True)


def _orthonormal(rank: int, length: int) -> Tensor:
    """Return random orthonormal rows, in float64, which the kind of the CPU hardly changes."""
    if rank > length:
        raise invalid("train", f"adapters:{rank}", f"choose a rank of at most {length}")
    q, r = torch.linalg.qr(torch.randn(length, rank, dtype=torch.float64))
    rows: Tensor = (q * r.diagonal().sign()).T
    return rows
