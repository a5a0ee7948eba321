"""A whole round of FedDA or FedGP: geometry, β, rule. The server runs it, or the target on its behalf."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from fda_flower.aggregation.batches import BatchUpdates
from fda_flower.aggregation.estimation import (
    BetaRule,
    Estimates,
    beta_fedda,
    beta_fedgp,
    beta_fedgp_thresholded,
    estimate,
)
from fda_flower.aggregation.geometry import Geometry
from fda_flower.aggregation.layers import Layers, Vector
from fda_flower.aggregation.rules import FedDA, FedGP, combine
from fda_flower.aggregation.update import SourceWeights, Update, source_weights

RULES: dict[str, type[FedDA] | type[FedGP]] = {rule.__name__: rule for rule in (FedDA, FedGP)}
"""The rules that weigh each source against the target."""

BETA_RULES: dict[str, BetaRule] = {
    rule.__name__: rule for rule in (beta_fedda, beta_fedgp, beta_fedgp_thresholded)
}
"""β from one source's estimates."""


@dataclass(frozen=True)
class AdaptiveResult:
    """What became of a round.

    Attributes
    ----------
    model : Layers
        The new global model.
    geometry : Geometry
        Of the round's updates.
    betas : Vector
        The β of each source that was used, shape ``(N,)``.
    estimates : list[Estimates], optional
        Of each source, where β was to be estimated and could be.
    fallbacks : list
        For each source why its β is the fixed one, or None.
    """

    model: Layers
    geometry: Geometry
    betas: Vector
    estimates: list[Estimates] | None
    fallbacks: list[str | None]


@dataclass(frozen=True)
class AdaptiveRule:
    """How the updates of a round become a model.

    Attributes
    ----------
    rule : FedDA or FedGP
        What to make of the updates.
    beta_rule : str
        A name of `BETA_RULES`.
    weighting : {"examples", "uniform"}
        α, the weights among the sources.
    """

    rule: FedDA | FedGP
    beta_rule: str
    weighting: SourceWeights = "examples"

    def __call__(
        self,
        model: Layers,
        target: Update,
        sources: Sequence[Update],
        betas: Vector,
        batches: BatchUpdates | str | None = None,
    ) -> AdaptiveResult:
        """Combine the updates of one round.

        Parameters
        ----------
        model : Layers
            The global model.
        target, sources : Update
            The clients' updates.
        betas : Vector
            The fixed β of each source, shape ``(N,)``.
        batches : BatchUpdates or str, optional
            The target's steps, to estimate β from; or why there are none. Default: β is not estimated.

        Raises
        ------
        ValueError
            If the rule needs steps and learning rates that a client did not report.
        """
        geometry = Geometry.of(target, sources)
        estimates: list[Estimates] | None = None
        fallbacks: list[str | None] = [batches if isinstance(batches, str) else None] * len(sources)
        used = betas.copy()
        if isinstance(batches, BatchUpdates):
            try:
                estimated = estimate(target, sources, geometry, batches)
                batches.check_sum(target.parameters)
                estimates = estimated
            except ValueError as error:
                fallbacks = [str(error)] * len(sources)
        for i, estimates_i in enumerate(estimates or []):
            beta = BETA_RULES[self.beta_rule](estimates_i)
            if math.isnan(beta):
                told = sources[i].scale > 0
                fallbacks[i] = "the estimate is not defined" if told else "no num-steps or learning-rate"
            else:
                used[i] = beta
        alphas = source_weights(sources, self.weighting)
        coefficients = self.rule.coefficients(target, sources, geometry, alphas, used)
        new: dict[str, NDArray[Any]] = combine(model, target, sources, coefficients)
        return AdaptiveResult(new, geometry, used, estimates, fallbacks)

    def to_text(self) -> str:
        """As JSON, for `from_text` in another process."""
        rule = {"name": type(self.rule).__name__, **asdict(self.rule)}
        return json.dumps({"rule": rule, "beta-rule": self.beta_rule, "weighting": self.weighting})

    @classmethod
    def from_text(cls, text: str) -> "AdaptiveRule":
        """The one that `to_text` wrote.

        Raises
        ------
        ValueError, KeyError
            If the text is another, or names what this version does not know.
        """
        fields = json.loads(text)
        options = dict(fields["rule"])
        rule = RULES[options.pop("name")](**options)
        return cls(rule, str(fields["beta-rule"]), fields["weighting"])
