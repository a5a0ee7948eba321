"""FedGP: the target's update projected on each source's, and what disagrees dropped."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from fda_flower import aggregation
from fda_flower.aggregation import Form, Weighing, Weighting
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.weighting import Beta, Place, WeightedStrategy


class FedGP(WeightedStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i P₊(Δ_T | Δ_i)]`` (Jiang et al., ICLR 2024, Definition 4.3).

    Parameters
    ----------
    beta, auto, aggregate_on, **common
        See `WeightedStrategy`. With `auto` this is FedGP_Auto.
    granularity, filter, magnitude
        See `fda_flower.aggregation.FedGP`.
    thresholded : bool
        Let β account for the filter, as the authors' code does.
    form : {"sketch", "full"}
        What the target sends with `auto`: a sketch of each batch update, or the updates themselves.
    sketch_size : int
        Numbers in a sketch.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.

    Examples
    --------
    >>> from fda_flower.strategies import FedGP
    >>> strategy = FedGP(beta=0.5)
    """

    forms: ClassVar[tuple[Form, ...]] = ("sketch", "full")
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {"granularity": "layer", "magnitude": "cosine", "thresholded": True},
        "definitions": {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"},
    }

    def __init__(
        self,
        beta: Beta = 0.5,
        *,
        auto: bool = False,
        granularity: Literal["layer", "model"] = "layer",
        filter: bool = True,
        magnitude: Literal["projection", "cosine"] = "projection",
        thresholded: bool = False,
        form: Form = "sketch",
        sketch_size: int = 1024,
        source_weights: Weighting = "examples",
        aggregate_on: Place = "server",
        **common: Unpack[CommonOptions],
    ) -> None:
        beta_rule = "beta_fedgp_thresholded" if thresholded else "beta_fedgp"
        super().__init__(
            Weighing(aggregation.FedGP(granularity, filter, magnitude), beta_rule, source_weights),
            beta=beta,
            auto=auto,
            form=form,
            sketch_size=sketch_size,
            aggregate_on=aggregate_on,
            **common,
        )
        self._thresholded = thresholded

    def settings(self) -> dict[str, object]:
        """What defines the strategy."""
        return {**super().settings(), "thresholded": self._thresholded}
