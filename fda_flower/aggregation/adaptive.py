"""The aggregation of one round by FedDA or FedGP, run by the server or, on its behalf, by the target."""

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
    beta_fedda_reference,
    beta_fedgp,
    beta_fedgp_reference,
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
    rule.__name__: rule
    for rule in (
        *(beta_fedda, beta_fedda_reference),
        *(beta_fedgp, beta_fedgp_thresholded, beta_fedgp_reference),
    )
}
"""The functions that compute β from one source's estimates."""


@dataclass(frozen=True)
class AdaptiveResult:
    """The result of aggregating one round.

    Attributes
    ----------
    model : Layers
        The new global model.
    geometry : Geometry
        The geometry of the round's updates.
    betas : Vector
        The β used for each source, shape ``(N,)``.
    estimates : list[Estimates], optional
        The estimates for each source; None if β was not or could not be estimated.
    fallbacks : list
        For each source, why β fell back to the fixed one, or None if it did not.
    """

    model: Layers
    geometry: Geometry
    betas: Vector
    estimates: list[Estimates] | None
    fallbacks: list[str | None]


@dataclass(frozen=True)
class AdaptiveRule:
    """An aggregation rule, with the choice of β and α.

    Attributes
    ----------
    rule : FedDA or FedGP
        The rule that aggregates the updates.
    beta_rule : str
        A name in `BETA_RULES`.
    weights : {"examples", "uniform"}
        How to choose α, the weights of the sources; see `source_weights`.
    """

    rule: FedDA | FedGP
    beta_rule: str
    weights: SourceWeights = "examples"

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
            The target's steps, from which β is estimated, or the reason why they are missing. Default: β is
            not estimated.

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
                reported = sources[i].scale > 0
                fallbacks[i] = "the estimate is not defined" if reported else "no num-steps or learning-rate"
            else:
                used[i] = beta
        alphas = source_weights(sources, self.weights)
        coefficients = self.rule.coefficients(target, sources, geometry, alphas, used)
        new: dict[str, NDArray[Any]] = combine(model, target, sources, coefficients)
        return AdaptiveResult(new, geometry, used, estimates, fallbacks)

    def to_text(self) -> str:
        """Return the rule as JSON, for `from_text` in another process."""
        rule = {"name": type(self.rule).__name__, **asdict(self.rule)}
        return json.dumps({"rule": rule, "beta-rule": self.beta_rule, "weighting": self.weights})

    @classmethod
    def from_text(cls, text: str) -> "AdaptiveRule":
        """Return the rule that `to_text` wrote.

        Raises
        ------
        ValueError, KeyError
            If `text` is not from `to_text`, or names something that this version does not know.
        """
        fields = json.loads(text)
        options = dict(fields["rule"])
        rule = RULES[options.pop("name")](**options)
        return cls(rule, str(fields["beta-rule"]), fields["weighting"])
