"""Passes of samples through a network of PyTorch, with the arrays of a predictor."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from fda_flower.aggregation import Layers
from fda_flower.datasets import Samples
from fda_flower.errors import RunError
from fda_flower.models.parts import features_of, frozen_names, modules_of, tensors
from fda_flower.models.split import KindsOfRows, Rows
from fda_flower.prediction.batches import CPU, batches, device_of, inputs_at, tensor_of
from fda_flower.prediction.passes import BATCH, Drawing, Passes, seeded

SCALINGS = (Rows, KindsOfRows)
"""The modules that check what a message has brought."""


def load_layers(network: nn.Module, layers: Layers) -> None:
    """Put arrays into a network: all, or all but the frozen ones.

    Arrays that do not fit go to torch's loader, whose error says why. Raises a `ConfigError` if a power of
    `fda_flower.models.split.Rows` is impossible.
    """
    own = tensors(network)
    if len(layers) != len(own):
        frozen = set(frozen_names(network))
        own = {name: tensor for name, tensor in own.items() if name not in frozen}
    if layers.keys() != own.keys() or any(layers[name].shape != own[name].shape for name in own):
        network.load_state_dict({name: tensor_of(array) for name, array in layers.items()})
        return
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensor_of(layers[name]))
    for module in modules_of(network):
        if isinstance(module, SCALINGS):
            module.check()


@torch.no_grad()
def predict(
    model: nn.Module,
    samples: Samples,
    generator: Generator,
    batch_size: int = BATCH,
    device: torch.device = CPU,
) -> Tensor:
    """Return a model's outputs for samples, shape ``(n, classes or outputs)``, on the model's device.

    Raise a `RunError` if the model writes into its input, and so into the samples.
    """
    model.eval()
    first = inputs_at(samples, slice(0, 1), device).clone()
    outputs = torch.cat([model(x) for x, _ in batches(samples, batch_size, generator, device=device)])
    if not torch.allclose(first, inputs_at(samples, slice(0, 1), device), rtol=0, atol=0, equal_nan=True):
        raise RunError(
            f"the network {type(model).__name__} writes into its input, and so into the data: let it work "
            "on a copy (x = x.clone())",
            thing="network",
            value=type(model).__name__,
        )
    return outputs


class NetworkPasses(Passes):
    """Passes through a network, whose arrays are overwritten, on its device; outputs are on the CPU.

    `drawing` gives the random numbers, the same for each pass.
    """

    def __init__(self, network: nn.Module, samples: Samples, drawing: Drawing = seeded) -> None:
        super().__init__(samples)
        self._network, self._drawing = network, drawing

    def _outputs(self, layers: Layers) -> NDArray[Any]:
        load_layers(self._network, layers)
        with self._drawing() as generator:
            outputs = predict(self._network, self._samples, generator, device=device_of(self._network))
        return outputs.cpu().numpy()

    def outputs_and_features(self, layers: Layers) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return outputs, and the inputs of the network's head, shape ``(n, features)``, in one pass."""
        self._done = [(known, outputs) for known, outputs in self._done if known is not layers]
        with features_of(self._network) as features:
            outputs = self.outputs(layers)
        return outputs, torch.cat(features).cpu().numpy()

    def features(self, layers: Layers) -> NDArray[Any]:
        """Return the inputs of the network's head, shape ``(n, features)``."""
        return self.outputs_and_features(layers)[1]
