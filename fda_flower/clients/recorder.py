"""The recorder of per-step updates: what the target sends for auto-weighting, as it trains.

It keeps one copy of the parameters, refreshed in place after each step, and never copies the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fda_flower.aggregation import CountSketch
from fda_flower.errors import unknown

Arrays = dict[str, NDArray[Any]]

PART = 2**18
"""Elements that are turned into float64 at a time: few calls, and a temporary that stays in the cache."""


class Recorder(ABC):
    """Records ``δ_j``, the change of the parameters in each optimizer step.

    Parameters
    ----------
    parameters : Sequence[Tensor]
        The model's parameters, in the order of its state dictionary; ``m`` numbers in all.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = [parameter.detach() for parameter in parameters]
        # The parameters before the step; for a moment -δ_j; then the parameters after it.
        self._flat = torch.cat([parameter.reshape(-1) for parameter in self._parameters])
        layers = torch.split(self._flat, [parameter.numel() for parameter in self._parameters])
        self._layers = [
            layer.view_as(parameter) for layer, parameter in zip(layers, self._parameters, strict=True)
        ]
        self._parts = torch.split(self._flat, PART)
        self._norms: list[Tensor] = []

    def step(self) -> None:
        """Record the step that the optimizer has just made."""
        torch._foreach_sub_(self._layers, self._parameters)
        self._norms.append(torch.stack(torch._foreach_norm(self._parts, 2, dtype=torch.float64)))
        self._keep()
        torch._foreach_copy_(self._layers, self._parameters)

    def arrays(self) -> Arrays:
        """What was recorded of ``B`` steps, as `fda_flower.aggregation.batches` has it."""
        norms = torch.stack(self._norms) if self._norms else torch.zeros(0, 1)
        return {"norms": norms.square().sum(dim=1).cpu().numpy().astype(np.float64)}

    @abstractmethod
    def _keep(self) -> None:
        """Keep what the form needs of ``-δ_j``, which `_flat` holds, cut into `_parts`."""


class NormsRecorder(Recorder):
    """``‖δ_j‖²`` of each step: ``B`` numbers."""

    def _keep(self) -> None:
        pass


class SketchRecorder(Recorder):
    """A CountSketch of each step: ``B x k`` numbers."""

    def __init__(self, parameters: Sequence[Tensor], sketch: CountSketch) -> None:
        super().__init__(parameters)
        self._size = sketch.size
        places = torch.from_numpy(sketch.places(self._flat.numel()))
        self._places = torch.split(places.to(self._flat.device), PART)
        self._sums: list[Tensor] = []

    def _keep(self) -> None:
        sums = torch.zeros(2 * self._size, dtype=torch.float64, device=self._flat.device)
        for places, part in zip(self._places, self._parts, strict=True):
            sums.index_add_(0, places, part.double())
        self._sums.append(sums)

    def arrays(self) -> Arrays:
        """Norms and sketches."""
        sums = torch.stack(self._sums) if self._sums else torch.zeros(0, 2 * self._size)
        sketches = sums[:, self._size :] - sums[:, : self._size]
        return {**super().arrays(), "sketch": sketches.cpu().numpy().astype(np.float64)}


class FullRecorder(Recorder):
    """Each step as it is: ``B x m`` numbers."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters)
        self._rows: list[NDArray[np.float32]] = []

    def _keep(self) -> None:
        self._rows.append(self._flat.neg().cpu().float().numpy())

    def arrays(self) -> Arrays:
        """Norms and updates."""
        rows = np.stack(self._rows) if self._rows else np.zeros((0, self._flat.numel()), np.float32)
        return {**super().arrays(), "full": rows}


def make_recorder(parameters: Sequence[Tensor], config: Mapping[str, Any]) -> Recorder | None:
    """The recorder that a train message asks for.

    Parameters
    ----------
    parameters : Sequence[Tensor]
        The model's parameters.
    config : Mapping
        Of the message: ``batch-updates`` (``"norms"``, ``"sketch"`` or ``"full"``; absent for none) and,
        with ``"sketch"``, ``sketch-size`` and ``sketch-seed``.
    """
    form = config.get("batch-updates")
    if form is None:
        return None
    if form not in RECORDERS:
        raise unknown("form of batch updates", form, RECORDERS)
    return RECORDERS[form](parameters, config)


def _sketch_recorder(parameters: Sequence[Tensor], config: Mapping[str, Any]) -> Recorder:
    sketch = CountSketch(int(config["sketch-size"]), int(config["sketch-seed"]))
    return SketchRecorder(parameters, sketch)


RECORDERS: dict[str, Callable[[Sequence[Tensor], Mapping[str, Any]], Recorder]] = {
    "norms": lambda parameters, _: NormsRecorder(parameters),
    "sketch": _sketch_recorder,
    "full": lambda parameters, _: FullRecorder(parameters),
}
"""The recorders by form."""
