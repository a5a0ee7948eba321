"""The network of a loaded model, built with PyTorch."""

import copy
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

import torch
from torch import nn

from fda_flower.aggregation import Layers
from fda_flower.datasets import Samples
from fda_flower.errors import RunError
from fda_flower.models import Train, build_architecture, build_model, reads_text
from fda_flower.models.devices import find_device
from fda_flower.models.own import is_reference
from fda_flower.models.parts import replace_head
from fda_flower.models.probe import is_foreign
from fda_flower.models.split import SplitNetwork, rest_of, split
from fda_flower.prediction.features import digest_of, features_as_in
from fda_flower.prediction.files import About
from fda_flower.prediction.network_passes import load_layers
from fda_flower.prediction.networks import ModelNetwork, is_linear
from fda_flower.prediction.passes import Drawing, Passes, passes_of
from fda_flower.prediction.predictors import Predictor


class TorchNetwork(ModelNetwork):
    """A network on a device, cut as in training.

    Attributes
    ----------
    about : About
        The model's description.
    body : Layers
        Arrays of the frozen backbone; empty if there is none, or a package holds them.
    """

    def __init__(self, about: About, device: str, body: Layers) -> None:
        self.about, self.body, self._device = about, body, find_device(device)

    def check(self, networks: Iterable[Layers]) -> None:
        """Raise an exception unless the network can be built and has arrays of these names and shapes."""
        wanted, networks = _shapes(_without_memory(self.about)), list(networks)
        if any(layers.keys() != wanted.keys() for layers in networks):
            wanted = _shapes(_without_memory(self.about, cut=False))  # some networks cannot be cut
        for layers in networks:
            shapes = {name: array.shape for name, array in layers.items()}
            if wrong := {name for name in {*wanted, *shapes} if wanted.get(name) != shapes.get(name)}:
                name = min(wrong)
                raise ValueError(
                    f"the network '{self.about.network}' has '{name}' of shape {wanted.get(name)}, the file "
                    f"{shapes.get(name)}"
                )

    def passes(self, samples: Samples, drawing: Drawing) -> Passes:
        """Return the passes of samples; a linear layer on what the backbone makes of them is NumPy's."""
        if (backbone := self._parts.backbone) is not None:
            samples = features_as_in(self.about.versions, backbone.to(self._device), samples, self._device)
        if is_linear(self.about) and (rest := rest_of(self._parts)) is not None:
            return passes_of(rest, samples, drawing)
        return passes_of(copy.deepcopy(self._parts.trainable).to(self._device), samples, drawing)

    def module(self, predictor: Predictor) -> nn.Module:
        """Return a module from inputs to a predictor's outputs, in evaluation mode."""
        backbone, rest = self._parts.backbone, self.after_backbone(predictor)
        module = rest if backbone is None else nn.Sequential(backbone, rest)
        return module.to(self._device).eval().requires_grad_(False)

    def after_backbone(self, predictor: Predictor) -> nn.Module:
        """Return the module from features; without a backbone, from inputs."""
        return predictor.module(self._build).to(self._device).eval().requires_grad_(False)

    @property
    def has_backbone(self) -> bool:
        """Whether a frozen backbone computes features of the inputs."""
        return self._parts.backbone is not None

    @cached_property
    def _parts(self) -> SplitNetwork:
        """The frozen backbone, if any, and a network whose arrays are to be replaced."""
        from_package = bool(self.about.body) and reads_text(self.about.network)
        parts = build(self.about, from_package)
        if parts.backbone is None:
            return parts
        if not from_package:
            load_layers(parts.backbone, self.body)
        elif digest_of(parts.backbone) != self.about.body:
            message = (
                f"the installed encoder '{self.about.network}' is not the one that the model was trained with"
            )
            remedy = "install the versions that model.json lists"
            raise RunError(message, thing="body", value=self.about.network, remedy=remedy)
        return parts

    def _build(self, layers: Layers) -> nn.Module:
        network = copy.deepcopy(self._parts.trainable)
        load_layers(network, layers)
        return network.eval()


def _without_memory(about: About, cut: bool = True) -> SplitNetwork:
    """Return a network whose arrays are only shapes: a forged size takes no memory.

    The code of others may turn features into other numbers than their head says.
    """
    own_features = about.train == "linear" and is_foreign(about.network)
    if not is_reference(about.network) and not own_features:
        with suppress(Exception), torch.device("meta"):
            return build(about, cut=cut)
    return build(about)  # some networks of other packages cannot be built that way


def _shapes(parts: SplitNetwork) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in parts.trainable.state_dict().items()}


def build(about: About, with_weights: bool = False, cut: bool = True) -> SplitNetwork:
    """Return a network of a model's architecture, cut as in training, whose arrays are to be replaced.

    With `with_weights` the frozen part already has its weights. For `cut` see
    `fda_flower.models.split.split`.
    """
    given = about.shape, about.classes
    if with_weights:
        network = build_model(about.network, *given, 0, about.network_options)
    else:
        network = build_architecture(about.network, *given, about.network_options)
    with torch.random.fork_rng([]):
        parts = split(network, Train.read(about.train), about.shape, about.network, cut)
        if about.prototypes is not None:
            x = torch.zeros(1, *about.shape)
            with torch.no_grad():
                x = x if parts.backbone is None else parts.backbone(x)
            replace_head(parts.trainable, x, about.prototypes)
    return parts
