"""Inner products of a round's updates, per layer, on which rules, estimates and records are based."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fda_flower.aggregation.layers import Vector, inner_products
from fda_flower.aggregation.update import Update


@dataclass(frozen=True)
class Geometry:
    """Inner products of the target's update with each source's, for `N` sources and `L` layers.

    Attributes
    ----------
    target_squared : Vector
        ``‖Δ_T‖²`` of each layer, shape ``(L,)``.
    source_squared : Vector
        ``‖Δ_i‖²`` of each layer, shape ``(N, L)``.
    products : Vector
        ``⟨Δ_T, Δ_i⟩`` of each layer, shape ``(N, L)``.
    """

    target_squared: Vector
    source_squared: Vector
    products: Vector

    @classmethod
    def of(cls, target: Update, sources: Sequence[Update]) -> "Geometry":
        """Compute the geometry of a round in one pass over its updates."""
        own, products, squared = zip(
            *(
                inner_products(layer, [source.parameters[name] for source in sources])
                for name, layer in target.parameters.items()
            ),
            strict=True,
        )
        return cls(np.array(own), np.stack(squared, axis=1), np.stack(products, axis=1))

    @property
    def cosines(self) -> Vector:
        """Cosine between the target's and each source's whole update, shape ``(N,)``; 0 where either is 0."""
        return cosine(self.products.sum(axis=1), self.target_squared.sum(), self.source_squared.sum(axis=1))


def cosine(products: Vector, a_squared: Vector | float, b_squared: Vector) -> Vector:
    """Return ``⟨a,b⟩ / (‖a‖ ‖b‖)`` in [-1, 1], elementwise; 0 where ``a`` or ``b`` is 0."""
    norms = np.sqrt(a_squared) * np.sqrt(b_squared)
    cosines: Vector = np.clip(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0), -1, 1)
    return cosines
