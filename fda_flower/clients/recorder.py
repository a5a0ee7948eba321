"""The recorder of per-step updates: what the target sends for auto-weighting, as it trains.

It keeps one copy of the parameters, refreshed in place after each step, and never copies the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fda_flower import protocol
from fda_flower.aggregation import CountSketch
from fda_flower.errors import unknown

Arrays = dict[str, NDArray[Any]]

PART = 2**16
"""Elements that are recorded at a time: they stay in the cache from the first operation to the last."""


@dataclass(frozen=True)
class Part:
    """A piece of the model as one vector, with the pieces of the parameters that it is made of.

    Attributes
    ----------
    flat : Tensor
        The parameters before the step; for a moment ``-δ_j``; then the parameters after it.
    before, after : list[Tensor]
        Views of `flat` and of the parameters, of the same shapes.
    """

    flat: Tensor
    before: list[Tensor]
    after: list[Tensor]


class Recorder(ABC):
    """Records ``δ_j``, the change of the parameters in each optimizer step.

    Parameters
    ----------
    parameters : Sequence[Tensor]
        The model's parameters, in the order of its state dictionary; ``m`` numbers in all.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parts = _cut([parameter.detach() for parameter in parameters])
        self._lengths = [part.flat.numel() for part in self._parts]
        self._norms: list[list[Tensor]] = []

    def step(self) -> None:
        """Record the step that the optimizer has just made."""
        norms = []
        self._begin()
        for index, part in enumerate(self._parts):
            torch._foreach_sub_(part.before, part.after)
            norms.append(torch.linalg.vector_norm(part.flat, dtype=torch.float64))
            self._keep(index, part.flat)
            torch._foreach_copy_(part.before, part.after)
        self._norms.append(norms)

    def arrays(self) -> Arrays:
        """Return the record of ``B`` steps in an encoding of `fda_flower.aggregation.batches`."""
        rows = [torch.stack(norms) for norms in self._norms]
        norms = torch.stack(rows) if rows else torch.zeros(0, 1)
        return {"norms": norms.square().sum(dim=1).cpu().numpy().astype(np.float64)}

    def _begin(self) -> None:  # noqa: B027 - only some encodings have something to prepare
        """Prepare for a step."""

    @abstractmethod
    def _keep(self, index: int, negative: Tensor) -> None:
        """Keep what the encoding needs of a part of ``-δ_j``."""


def _cut(parameters: Sequence[Tensor]) -> list[Part]:
    """Return copies of the parameters, in parts of about `PART` elements."""
    pieces = [
        piece
        for parameter in parameters
        for piece in (torch.split(parameter.view(-1), PART) if parameter.is_contiguous() else [parameter])
    ]
    parts, group = [], list[Tensor]()
    for i, piece in enumerate(pieces):
        group.append(piece)
        sizes = [each.numel() for each in group]
        if i + 1 == len(pieces) or sum(sizes) + pieces[i + 1].numel() > PART:
            flat = torch.cat([each.reshape(-1) for each in group])
            views = torch.split(flat, sizes)
            before = [view.view_as(each) for view, each in zip(views, group, strict=True)]
            parts.append(Part(flat, before, group))
            group = []
    return parts


class NormsRecorder(Recorder):
    """``‖δ_j‖²`` of each step: ``B`` numbers."""

    def _keep(self, index: int, negative: Tensor) -> None:
        pass


class SketchRecorder(Recorder):
    """A CountSketch of each step: ``B x k`` numbers."""

    def __init__(self, parameters: Sequence[Tensor], sketch: CountSketch) -> None:
        super().__init__(parameters)
        self._size = sketch.size
        places = torch.from_numpy(sketch.places(sum(self._lengths)))
        self._places = torch.split(places.to(self._parts[0].flat.device), self._lengths)
        self._sums: list[Tensor] = []

    def _begin(self) -> None:
        device = self._places[0].device
        self._sums.append(torch.zeros(2 * self._size, dtype=torch.float64, device=device))

    def _keep(self, index: int, negative: Tensor) -> None:
        self._sums[-1].index_add_(0, self._places[index], negative.double())

    def arrays(self) -> Arrays:
        """Norms and sketches."""
        sums = torch.stack(self._sums) if self._sums else torch.zeros(0, 2 * self._size)
        sketches = sums[:, self._size :] - sums[:, : self._size]
        return {**super().arrays(), "sketch": sketches.cpu().numpy().astype(np.float64)}


class FullRecorder(Recorder):
    """Each step as it is: ``B x m`` numbers."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters)
        self._starts = [0, *accumulate(self._lengths)]
        self._rows: list[NDArray[np.float32]] = []

    def _begin(self) -> None:
        self._rows.append(np.empty(self._starts[-1], np.float32))

    def _keep(self, index: int, negative: Tensor) -> None:
        row = self._rows[-1][self._starts[index] : self._starts[index + 1]]
        row[:] = negative.neg().cpu().float().numpy()

    def arrays(self) -> Arrays:
        """Norms and updates."""
        rows = np.stack(self._rows) if self._rows else np.zeros((0, self._starts[-1]), np.float32)
        return {**super().arrays(), "full": rows}


def make_recorder(parameters: Sequence[Tensor], config: Mapping[str, Any]) -> Recorder | None:
    """Return the recorder that a train message asks for; None if it asks for none.

    Parameters
    ----------
    parameters : Sequence[Tensor]
        The model's parameters.
    config : Mapping
        Of the message: ``batch-updates`` (``"norms"``, ``"sketch"`` or ``"full"``; absent for none) and,
        with ``"sketch"``, ``sketch-size`` and ``sketch-seed``.
    """
    encoding = config.get(protocol.BATCH_UPDATES)
    if encoding is None:
        return None
    if encoding not in RECORDERS:
        raise unknown("encoding of batch updates", encoding, RECORDERS)
    return RECORDERS[encoding](parameters, config)


def _sketch_recorder(parameters: Sequence[Tensor], config: Mapping[str, Any]) -> Recorder:
    sketch = CountSketch(int(config[protocol.SKETCH_SIZE]), int(config[protocol.SKETCH_SEED]))
    return SketchRecorder(parameters, sketch)


RECORDERS: dict[str, Callable[[Sequence[Tensor], Mapping[str, Any]], Recorder]] = {
    "norms": lambda parameters, _: NormsRecorder(parameters),
    "sketch": _sketch_recorder,
    "full": lambda parameters, _: FullRecorder(parameters),
}
"""The recorders by encoding."""
