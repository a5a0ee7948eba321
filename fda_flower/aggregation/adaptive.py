"""Aggregation of one round by FedDA or FedGP, on the server or, on its behalf, on the target."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from fda_flower.aggregation.batches import BatchUpdates
from fda_flower.aggregation.estimation import (
    BetaRule,
    Estimates,
    beta_fedda,
    beta_fedda_reference,
    beta_fedgp,
    beta_fedgp_filter_aware,
    beta_fedgp_reference,
    estimate,
)
from fda_flower.aggregation.gradients import StartGradients, within_range
from fda_flower.aggregation.joint import joint_weights, update_differences
from fda_flower.aggregation.rules import FedDA, FedGP, combine
from fda_flower.aggregation.updates import Geometry, Layers, SourceWeights, Update, Vector, source_weights

RULES: dict[str, type[FedDA] | type[FedGP]] = {rule.__name__: rule for rule in (FedDA, FedGP)}
"""Rules that weigh each source against the target."""

BETA_RULES: dict[str, BetaRule] = {
    rule.__name__: rule
    for rule in (beta_fedda, beta_fedda_reference, beta_fedgp, beta_fedgp_reference, beta_fedgp_filter_aware)
}
"""Functions that compute β from one source's estimates."""

FROM_STEPS = frozenset({"beta_fedda_reference", "beta_fedgp_reference"})
"""Those that need the steps of the training, not only gradients."""

UNDEFINED = "the estimate is not defined"

Evidence = BatchUpdates | StartGradients
"""Inputs of the weights: the target's steps, or all clients' gradients at the global model."""

Round = tuple[Update, Sequence[Update], Geometry]
"""Updates of the target and the sources, and their geometry."""


@dataclass(frozen=True)
class AdaptiveResult:
    """The result of aggregating one round.

    `betas` holds the β of each source, shape ``(N,)``, or its joint weight with a `JointRule`. `fallbacks`
    gives the reason for each fixed value, or None. `estimates` is None if β was not estimated.
    """

    model: Layers
    geometry: Geometry
    betas: Vector
    estimates: list[Estimates] | None
    fallbacks: list[str | None]


@dataclass(frozen=True)
class AdaptiveRule:
    """An aggregation rule, with a name in `BETA_RULES` for β, and `source_weights` for α."""

    rule: FedDA | FedGP
    beta_rule: str
    weights: SourceWeights = "examples"

    def __call__(
        self,
        model: Layers,
        target: Update,
        sources: Sequence[Update],
        betas: Vector,
        evidence: Evidence | str | None = None,
    ) -> AdaptiveResult:
        """Combine the updates of one round.

        Without `evidence`, or if it is a text with the reason for its absence, a source has the fixed β in
        `betas`, shape ``(N,)``. Raise a `ValueError` if the rule needs steps and learning rates that a
        client did not report.
        """
        geometry = Geometry.of(target, sources)
        estimates: list[Estimates] | None = None
        estimated = np.full(len(sources), np.nan)
        fallbacks: list[str | None] = [evidence if isinstance(evidence, str) else None] * len(sources)
        if isinstance(evidence, Evidence):
            try:
                estimates = _estimates(evidence, (target, sources, geometry))
                estimated = self._weigh(evidence, estimates, (target, sources, geometry))
                reasons = zip(estimated, _faults(evidence, sources), strict=True)
                fallbacks = [reason if math.isnan(weight) else None for weight, reason in reasons]
            except ValueError as error:
                estimates, fallbacks = None, [str(error)] * len(sources)
        alphas, used = self._fill(source_weights(sources, self.weights), betas, estimated)
        coefficients = self.rule.coefficients(target, sources, geometry, alphas, used)
        return AdaptiveResult(
            combine(model, target, sources, coefficients), geometry, used, estimates, fallbacks
        )

    def _weigh(self, evidence: Evidence, estimates: list[Estimates], updates: Round) -> Vector:
        """Return the estimated β of each source, NaN where it is undefined."""
        if isinstance(evidence, StartGradients):
            estimates = [within_range(e) for e in estimates]
        return np.array([BETA_RULES[self.beta_rule](e) for e in estimates])

    def _fill(self, alphas: Vector, betas: Vector, estimated: Vector) -> tuple[Vector, Vector]:
        """Return α and β of each source: the estimated β, or the fixed one where that is NaN."""
        return alphas, np.where(np.isnan(estimated), betas, estimated)

    def to_text(self) -> str:
        """Return the rule as JSON, for `from_text` in another process."""
        rule = {"name": type(self.rule).__name__, **asdict(self.rule)}
        fields = {"kind": type(self).__name__, "rule": rule}
        return json.dumps({**fields, "beta-rule": self.beta_rule, "weighting": self.weights})

    @staticmethod
    def from_text(text: str) -> "AdaptiveRule":
        """Return the rule that `to_text` wrote; raise a `ValueError` or `KeyError` for any other text."""
        fields = json.loads(text)
        options = dict(fields["rule"])
        rule = RULES[options.pop("name")](**options)
        return KINDS[fields["kind"]](rule, str(fields["beta-rule"]), fields["weighting"])


class JointRule(AdaptiveRule):
    """FedDA with weights estimated for all sources jointly; see `joint_weights`.

    ``θ ← θ + (1−Σw) Δ_T + Σ_i w_i Δ_i``. A source with unknown gradient has the weight ``α_i β_i``, with its
    fixed β, and the others share the rest.
    """

    def _weigh(self, evidence: Evidence, estimates: list[Estimates], updates: Round) -> Vector:
        sigma2 = estimates[0].sigma2
        if isinstance(evidence, StartGradients):
            D = evidence.differences()
        else:
            D = update_differences(*updates, sigma2)
        weights = np.full(len(estimates), np.nan)
        known = np.flatnonzero(np.isfinite(D.diagonal()))
        if known.size:
            weights[known] = joint_weights(D[np.ix_(known, known)], sigma2)
        return weights

    def _fill(self, alphas: Vector, betas: Vector, estimated: Vector) -> tuple[Vector, Vector]:
        """Return α, all 1, and as β the weight of each source."""
        fixed = np.where(np.isnan(estimated), alphas * betas, 0.0)
        return np.ones_like(alphas), fixed + (1.0 - fixed.sum()) * np.nan_to_num(estimated)


KINDS: dict[str, type[AdaptiveRule]] = {kind.__name__: kind for kind in (AdaptiveRule, JointRule)}
"""Ways to weigh sources: separately, or jointly."""


def _estimates(evidence: Evidence, updates: Round) -> list[Estimates]:
    if isinstance(evidence, StartGradients):
        return evidence.estimates()
    estimates = estimate(*updates, evidence)
    evidence.check_sum(updates[0].parameters)
    return estimates


def _faults(evidence: Evidence, sources: Sequence[Update]) -> list[str]:
    """Return for each source why its weight is unknown, in case it is."""
    if isinstance(evidence, StartGradients):
        return [fault or UNDEFINED for fault in evidence.faults]
    return [UNDEFINED if source.scale > 0 else "no num-steps or learning-rate" for source in sources]
