"""One client's training in one round, split into parameters (an update) and buffers (values)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from fda_flower.aggregation.layers import Layers, Vector, inner_products

_BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")


def find_buffers(model: Layers) -> frozenset[str]:
    """Return the names of the arrays that are not directions in parameter space.

    These are BatchNorm's running statistics, recognised by their PyTorch names, and every array that is
    not of a floating-point type.

    Examples
    --------
    >>> model = {"fc.weight": np.ones(2), "bn.running_var": np.ones(2), "steps": np.array(3)}
    >>> sorted(find_buffers(model))
    ['bn.running_var', 'steps']
    """
    return frozenset(
        name
        for name, array in model.items()
        if name.rsplit(".", 1)[-1] in _BUFFER_NAMES or not np.issubdtype(array.dtype, np.floating)
    )


@dataclass(frozen=True)
class Update:
    """One client's local training in one round.

    Attributes
    ----------
    parameters : Layers
        ``Δ = θ_client − θ``, by layer, in the type of the model.
    buffers : Layers
        The client's buffers after training (values, not differences).
    examples : int
        ``n``, the number of examples trained on.
    steps : int
        ``K``, the number of optimizer steps; 0 if not reported.
    learning_rate : float
        ``η``; 0 if not reported.
    batch_size : int
        Samples in a full batch; 0 if not reported.
    """

    parameters: Layers
    buffers: Layers
    examples: int
    steps: int = 0
    learning_rate: float = 0.0
    batch_size: int = 0

    @property
    def scale(self) -> float:
        """``K η``: the update divided by it is the client's gradient estimate, up to its sign."""
        return self.steps * self.learning_rate

    @property
    def norm(self) -> float:
        """``‖Δ‖`` of all parameters."""
        return math.sqrt(sum(inner_products(layer, [])[0] for layer in self.parameters.values()))

    def scaled(self, factor: float) -> Self:
        """Return this update with its parameters multiplied by `factor`."""
        parameters = {
            name: np.multiply(layer, factor, dtype=layer.dtype) for name, layer in self.parameters.items()
        }
        return replace(self, parameters=parameters)

    @classmethod
    def between(
        cls,
        before: Layers,
        after: Layers,
        examples: int,
        steps: int = 0,
        learning_rate: float = 0.0,
        buffers: Collection[str] | None = None,
        overwrite: bool = False,
        batch_size: int = 0,
    ) -> Self:
        """Return the update from the global model `before` to the client's model `after`.

        Parameters
        ----------
        before, after : Layers
            Models with the same names, shapes and types.
        examples, steps, learning_rate, batch_size
            See the attributes.
        buffers : Collection[str], optional
            Names of the buffers. Default: `find_buffers`.
        overwrite : bool
            Write the differences into the arrays of `after`, which saves the memory of a model; those that
            cannot be written into stay as they are.
        """
        names = find_buffers(before) if buffers is None else buffers
        reused = {name for name, array in after.items() if overwrite and array.flags.writeable}
        return cls(
            {
                name: np.subtract(after[name], before[name], out=after[name] if name in reused else None)
                for name in before
                if name not in names
            },
            {name: after[name] for name in before if name in names},
            examples,
            steps,
            learning_rate,
            batch_size,
        )


SourceWeights = Literal["examples", "uniform"]
"""Weights among clients: by their numbers of examples, or all the same."""


def source_weights(sources: Sequence[Update], weights: SourceWeights = "examples") -> Vector:
    """Return ``α_i``, the weights of the sources, which sum to 1.

    ``"examples"``: ``n_i / Σn`` (the authors' implementation, Flower's default). ``"uniform"``: ``1/N``
    (Definitions 4.1 and 4.3 of FedGP, ICLR 2024).
    """
    if weights == "uniform":
        return np.full(len(sources), 1 / len(sources))
    examples = np.array([source.examples for source in sources], dtype=np.float64)
    shares: Vector = examples / examples.sum()
    return shares
