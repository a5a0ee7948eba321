"""The cut between the frozen backbone of a network, which runs once per sample, and its trainable rest."""

import copy
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.errors import ConfigError, invalid
from fda_flower.models import ADABN, AND, Train, formulas
from fda_flower.models.kinds import Together, TwoStatistics
from fda_flower.models.linear import LinearNetwork, RowKind
from fda_flower.models.parts import has_body, head_of
from fda_flower.models.rows import Hinges, PlainColumns

PREPARE = "prepare"
"""The module that prepares a network's samples: it runs first, although it is added last."""

TUNED = (nn.Linear, nn.Conv2d)
"""The layers that get adapters, unless they are depthwise."""


@dataclass(frozen=True)
class SplitNetwork:
    """A network in two.

    Attributes
    ----------
    backbone : Module or None
        The frozen layers before the first trained one, in evaluation mode; None if there are none, or the
        network cannot be cut there.
    trainable : Module
        The rest, which takes the outputs of `backbone`. Its frozen parameters have no ``requires_grad``.
    """

    backbone: nn.Module | None
    trainable: nn.Module


def split(
    network: nn.Module, train: Train, shape: tuple[int, ...], name: str = "the network", cut: bool = True
) -> SplitNetwork:
    """Freeze the parts of a network that are not trained, and cut it there; adapters are random.

    The `network` is for samples of a `shape`; do not use it afterwards. One without numbers, on torch's
    ``meta``, where a pass takes seconds, has the features that its head reads, and a cut if `cut` says so. A
    `ConfigError`, which calls it `name`, says that it has no head, no blocks, or no layers for adapters.
    """
    if train.what == "all" and not isinstance(network, Together):
        return SplitNetwork(None, network)
    network.eval().requires_grad_(False)
    if isinstance(network, Together):
        return _kinds(network, train, shape, name)
    head = head_of(network)
    if train.what == "linear":
        return _linear(network, head, shape)
    if train.what == "head":
        if not _path(network, head):
            what = f"train is head, but '{name}' is nothing but a head: leave train out"
            raise ConfigError(what, thing="train", value="head")
        backbone = Features(_without(network, head), shape)
        return SplitNetwork(backbone.eval(), nn.Sequential(OrderedDict(head=head.requires_grad_(True))))
    container, block = _last_block(network, head, name)
    parts = _cut(network, container, block, shape, cut)
    head = head_of(parts.trainable).requires_grad_(True)
    tuned = _from(parts.trainable, f"{container}.{block}", head)
    if train.what == "adapters":
        _adapt(parts.trainable, tuned, train.rank, name)
        head.requires_grad_(True)  # peft freezes it with the rest
    else:
        for module in tuned.values():
            module.requires_grad_(True)
    return parts


def _without(network: nn.Module, head: nn.Module) -> nn.Module:
    """Return a network without its head, which returns features."""
    path = _path(network, head)
    if not path:
        return nn.Identity()
    network.set_submodule(path, nn.Identity())
    return network


def _linear(network: nn.Module, head: nn.Module, shape: tuple[int, ...]) -> SplitNetwork:
    """Replace a head by a linear layer on the rows that features, pixels or a table's columns become."""
    bare = not has_body(network)
    with torch.no_grad():
        classes = _classes(network, head, shape)
        body = _without(network, head)
        backbone = None if bare else Features(body, shape).eval()
        features = _features(backbone or body, head, shape)
    layers = {"rows": _scaling(body, features, shape), "head": nn.Linear(features.shape[1], classes)}
    return SplitNetwork(backbone, nn.Sequential(OrderedDict({"body": body, **layers} if bare else layers)))


def _classes(network: nn.Module, head: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the number of a network's outputs."""
    return head.out_features if _no_numbers(head) else network(torch.zeros(1, *shape)).shape[1]


def _features(body: nn.Module, head: nn.Module, shape: tuple[int, ...], times: int = 1) -> Tensor:
    """Return the features of `_agreed` samples, ``(n, features)``: what a head reads, `times` as many."""
    if _no_numbers(head):
        return torch.zeros(1, times * head.in_features)
    features: Tensor = body(_agreed(shape)).flatten(1)
    return features


def _no_numbers(head: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(head, nn.Linear) and head.weight.is_meta


def _scaling(body: nn.Module, features: Tensor, shape: tuple[int, ...]) -> nn.Module:
    """Return what scales a body's `features`, of `_agreed` samples, to rows: most to unit length.

    A table's columns differ in their units, so that a row of them has no length; and hinges are rows already.
    """
    if any(isinstance(module, Hinges) for module in body.modules()):
        return nn.Identity()
    if next(body.parameters(), None) is not None:
        return Rows(0.5 if not features.is_meta and bool((features >= 0).all()) else 1.0)
    return PlainColumns() if len(shape) == 1 else Rows(1.0)


def _kinds(network: Together, train: Train, shape: tuple[int, ...], name: str) -> SplitNetwork:
    """Replace the heads of several networks by one linear layer on the rows of all."""
    if train.what != "linear":
        why = f"but '{name}' is several networks, which have a linear layer on the features of all"
        raise invalid("train", train.what, "choose --train linear, a single network, or --method ridge", why)
    with torch.no_grad():
        heads = [head_of(part) for part in network.networks]
        classes = _classes(network, heads[0], shape)
        twice = [number in network.adapted for number in range(len(network.networks))]
        bodies = [
            Features(_with_two(part, shape, name) if own else _without(part, head_of(part)), shape)
            for part, own in zip(network.networks, twice, strict=True)
        ]
        kinds = [
            (_scaling(body, half, shape), half.shape[1])
            for body, head, own in zip(bodies, heads, twice, strict=True)
            for half in _features(body, head, shape, 1 + own).chunk(1 + own, dim=1)
        ]
    scalings, widths = [list(each) for each in zip(*kinds, strict=True)]
    layers = {"rows": KindsOfRows(scalings, widths), "head": nn.Linear(sum(widths), classes)}
    return SplitNetwork(SideBySide(bodies).eval(), nn.Sequential(OrderedDict(layers)))


def _with_two(network: nn.Module, shape: tuple[int, ...], name: str) -> TwoStatistics:
    """Return a network without its head that also has a site's own statistics from its last block on."""
    head = head_of(network)
    container, block = _last_block(network, head, name, f"leave '{AND}{ADABN}' out")
    parts = _cut(_without(network, head), container, block, shape, cut=True)
    if parts.backbone is None:
        what = f"'{name}' cannot be cut before its last block, so it has no statistics of its own there"
        raise ConfigError(what, thing="model", value=name, remedy=f"leave '{AND}{ADABN}' out")
    return TwoStatistics(parts.backbone, parts.trainable.eval(), name)


def rest_of(parts: SplitNetwork) -> LinearNetwork | None:
    """Return the rest of a network that was split for a linear layer, with NumPy, where nobody trains it.

    None if it computes more than rows, as a network of the user's own without numbers of its own may.
    """
    layers = dict(parts.trainable.named_children())
    body, rows, head = layers.get("body", nn.Identity()), layers["rows"], layers["head"]
    assert isinstance(head, nn.Linear)
    if not all(isinstance(module, nn.Identity | nn.Flatten | nn.Sequential) for module in body.modules()):
        return None
    scaled = [(rows, head.in_features)]
    if several := isinstance(rows, KindsOfRows):
        scaled = [*zip(rows.kinds, rows.own, strict=True)]
    return LinearNetwork(tuple(_kind(*each) for each in scaled), head.out_features, several)


def _kind(scaling: nn.Module, width: int) -> RowKind:
    if isinstance(scaling, Rows):
        return RowKind(width, "length", float(scaling.power))
    return RowKind(width, "columns" if isinstance(scaling, PlainColumns) else "none")


class SideBySide(nn.Module):
    """Networks without their heads, whose features are in one row after each other."""

    def __init__(self, bodies: Sequence["Features"]) -> None:
        super().__init__()
        self.bodies: Any = nn.ModuleList(bodies)

    def forward(self, x: Tensor) -> Tensor:
        """Return features, float32, shape ``(n, features of all)``."""
        return self.after_trunks(self.through_trunks(x))

    def through_trunks(self, x: Tensor) -> list[Tensor]:
        """Return what each body makes of samples without a site's statistics, for `after_trunks`."""
        return [body.through_trunk(x) for body in self.bodies]

    def after_trunks(self, inner: Sequence[Tensor]) -> Tensor:
        """Return the features of samples that have passed `through_trunks`."""
        pairs = zip(self.bodies, inner, strict=True)
        return torch.cat([body.after_trunk(each) for body, each in pairs], dim=1)


class Rows(nn.Module):
    """Scales features to unit length: ``sign(φ) |φ|^power`` divided by its norm; zeros stay zeros.

    The power is 0.5, the square root, for features that are never negative, as after ReLU, and else 1. This
    is tried on samples that are the same at every site, and the power travels with the model.
    """

    power: Tensor

    def __init__(self, power: float) -> None:
        super().__init__()
        self.register_buffer("power", torch.tensor(power))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows, shape ``(n, features)``, of features of shape ``(n, ...)``."""
        rows: Tensor = formulas.unit_rows(x.flatten(1), self.power, torch)
        return rows

    def check(self) -> None:
        """Raise a `ConfigError` if the power that a message has brought is none of the two.

        Another one could make rows overflow, depending on their features.
        """
        if (power := float(self.power)) not in (0.5, 1.0):
            raise ConfigError(
                f"rows.power is {power:g}", thing="rows.power", value=power, remedy="send 0.5 or 1"
            )


class KindsOfRows(nn.Module):
    """Scales the features of each of several networks to rows.

    `widths`, the number of features of each, travel with the model: the server reads there which features
    belong together; `own` are this network's.
    """

    widths: Tensor

    def __init__(self, kinds: Sequence[nn.Module], widths: Sequence[int]) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(kinds)
        self.register_buffer("widths", torch.tensor(list(widths)))
        self.own = list(widths)

    def forward(self, x: Tensor) -> Tensor:
        """Return rows, shape ``(n, features of all)``."""
        parts = torch.split(x, self.own, dim=1)
        return torch.cat([kind(part) for kind, part in zip(self.kinds, parts, strict=True)], dim=1)

    def check(self) -> None:
        """Raise a `ConfigError` if a message has brought other widths than this network's."""
        if (widths := self.widths.tolist()) != self.own:
            remedy = f"send {self.own}"
            raise ConfigError(f"rows.widths is {widths}", thing="rows.widths", value=widths, remedy=remedy)


class Features(nn.Module):
    """A network without its head, whose features have a root mean square of about 1.

    A power of two brings the features of scikit-learn's two photos to that size, so it is the same at every
    site; for samples other than images it is 1. The first `columns` numbers of a sample are features already.
    """

    factor: Tensor

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.columns = int(getattr(network, "columns", 0))
        with torch.no_grad():
            known = len(shape) != 3 or torch.get_default_device().type == "meta"
            size = 1.0 if known else float(network(_agreed(shape)).double().square().mean().sqrt())
        power = -round(torch.tensor(size, device="cpu").log2().item())
        self.register_buffer("factor", torch.tensor(2.0**power))

    def forward(self, x: Tensor) -> Tensor:
        """Return features, float32, shape ``(n, features)``."""
        return self.after_trunk(self.through_trunk(x))

    def through_trunk(self, x: Tensor) -> Tensor:
        """Return the output of a trunk, if the network has one before a site's statistics, or of all."""
        network = self.network.trunk if isinstance(self.network, TwoStatistics) else self.network
        outputs: Tensor = network(x)
        return outputs

    def after_trunk(self, inner: Tensor) -> Tensor:
        """Return the features of samples that have passed `through_trunk`."""
        outputs = self.network.after_trunk(inner) if isinstance(self.network, TwoStatistics) else inner
        return outputs.flatten(1) * self.factor


def _agreed(shape: tuple[int, ...]) -> Tensor:
    """Return samples that are the same at every site: scikit-learn's photos, or random rows."""
    if len(shape) != 3:
        return torch.randn(64, *shape, generator=torch.Generator().manual_seed(0))
    from PIL import Image
    from torch.nn.functional import interpolate

    channels, height, width = shape
    package = find_spec("sklearn")  # importing it takes seconds
    assert package is not None
    files = sorted(Path(str(package.origin)).parent.glob("datasets/images/*.jpg"))
    photos = np.stack([np.asarray(Image.open(file)) for file in files])
    images = torch.from_numpy(photos).permute(0, 3, 1, 2).float() / 255
    images = interpolate(images, (height, width), mode="bilinear", antialias=True)
    return images if channels == 3 else images.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)


def _path(network: nn.Module, wanted: nn.Module) -> str:
    return next(str(path) for path, module in network.named_modules() if module is wanted)


def _last_block(
    network: nn.Module, head: nn.Module, name: str, remedy: str = "train its head, or all of it"
) -> tuple[str, str]:
    """Return the path of the last sequence of blocks before the head, and the name of its last block."""
    around_head = [path for path, module in network.named_modules() if head in list(module.modules())]
    containers, place = list[str](), _path(network, head)
    for path, module in network.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in [*containers, place])
        blocks = isinstance(module, nn.Sequential | nn.ModuleList) and len(module) > 1
        if blocks and not inside and path not in around_head and [*module.parameters()]:
            containers.append(path)
    if not containers:
        what = f"'{name}' has no sequence of blocks, and so no last one"
        raise ConfigError(what, thing="train", value=name, remedy=remedy)
    *_, block = (name for name, _ in network.get_submodule(containers[-1]).named_children())
    return containers[-1], str(block)


def _cut(network: nn.Module, container: str, block: str, shape: tuple[int, ...], cut: bool) -> SplitNetwork:
    """Cut a network before a block; in the rest, identities replace the modules before it.

    This is correct if the network only passes on these modules' outputs, which is tried on random samples; if
    there are no numbers to try it with, `cut` decides.
    """
    samples = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    path = f"{container}.{block}"
    before, after = _around(network, path)
    whole, trainable = copy.deepcopy(network), copy.deepcopy(network)
    for module in before:
        trainable.set_submodule(module, nn.Identity())
    for module in after:
        network.set_submodule(module, nn.Identity())
    network.set_submodule(path, Stop())
    backbone = Upto(network).eval()
    with torch.no_grad():
        try:
            fits = cut if samples.is_meta else torch.equal(trainable(backbone(samples)), whole(samples))
        except (RuntimeError, ValueError, TypeError):
            fits = False
    return SplitNetwork(backbone, trainable) if fits else SplitNetwork(None, whole)


class Reached(Exception):  # noqa: N818 - it is no error
    """Carries the input of a network's `Stop`."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor


class Stop(nn.Module):
    """Ends a pass through a network early."""

    def forward(self, x: Tensor) -> Tensor:
        """Raise `Reached`."""
        raise Reached(x)


class Upto(nn.Module):
    """A network up to its `Stop`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the input of the `Stop`, or the outputs if it is not reached."""
        try:
            outputs: Tensor = self.network(x)
        except Reached as reached:
            return reached.tensor
        return outputs


def _around(network: nn.Module, path: str) -> tuple[list[str], list[str]]:
    """Return the paths of the largest modules before and after one, in the network's order."""
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


def _from(trainable: nn.Module, path: str, head: nn.Module) -> dict[str, nn.Module]:
    """Return a block and the modules after it, without the head, by path."""
    _, after = _around(trainable, path)
    return {
        name: trainable.get_submodule(name)
        for name in [path, *after]
        if trainable.get_submodule(name) is not head
    }


def _adapt(trainable: nn.Module, tuned: dict[str, nn.Module], rank: int, name: str) -> None:
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
    pattern = "|".join(map(re.escape, layers))  # of a list, peft takes all paths that end like one
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=pattern), trainable)
    for path in layers:
        lora: Any = trainable.get_submodule(path)
        down, up = lora.lora_A["default"].weight, lora.lora_B["default"].weight
        with torch.no_grad():
            down.copy_(_orthonormal(rank, down[0].numel()).reshape(down.shape))
        down.requires_grad_(False)
        up.requires_grad_(True)


def _orthonormal(rank: int, length: int) -> Tensor:
    """Return random orthonormal rows in float64, in which CPUs hardly differ."""
    if rank > length:
        raise invalid("train", f"adapters:{rank}", f"choose a rank of at most {length}")
    q, r = torch.linalg.qr(torch.randn(length, rank, dtype=torch.float64))
    rows: Tensor = (q * r.diagonal().sign()).T
    return rows
