"""FedOMG: turn the sources' mean update towards the source that it serves worst."""

from typing import Any, Literal

import numpy as np

from fda_flower.aggregation import SourceWeights, matched_step, mean_update, source_weights
from fda_flower.aggregation.joint import inner_products_of
from fda_flower.aggregation.updates import weighted_sum
from fda_flower.names import NotNegative, Positive
from fda_flower.strategies.base import Aggregated, ClientUpdate, DomainAdaptationStrategy, Round, Sources
from fda_flower.strategies.replies import NotFiniteError


class FedOMG(DomainAdaptationStrategy):
    """``θ ← θ + η (Δ̄ + κ ‖Δ̄‖ Γ/‖Γ‖)``, with ``Γ = Σ_i γ_i Δ_i`` (Nguyen et al., ICLR 2025).

    ``Δ̄`` is the mean of the sources' updates, and ``Γ`` the combination of them that agrees least with it.
    Among all steps within ``κ ‖Δ̄‖`` of the mean, this one maximises the smallest inner product with an
    update (`fda_flower.aggregation.matched_step`). With ``κ = 0`` and ``η = 1`` it is Source Only.

    This is a method of domain generalisation: the sources train, and the target only evaluates. With
    `clients` a target that has labels may train as one more client; the paper has no such client.

    A round's record has each client's ``weight``, its ``γ_i``.

    Parameters
    ----------
    kappa : float
        ``κ``, the largest relative distance of the step from the mean. The paper uses 0.5 (unverified).
    server_rate : float
        ``η``. The paper uses 0.05 on PACS, with five local epochs in a round and 100 rounds (unverified, as
        its text was not read; the authors' code also divides the step by ``1 + κ²``). Default: 1, as in
        FedAvg.
    clients : {"sources", "all"}
        Whose updates are matched; ``"all"`` includes the target's.
    source_weights : {"uniform", "examples"}
        ``α``, the weights of the mean.
    """

    of_patients = "steps"

    kappa: NotNegative = 0.5
    server_rate: Positive = 1.0
    clients: Literal["sources", "all"] = "sources"
    source_weights: SourceWeights = "uniform"

    @property
    def trains(self) -> frozenset[str]:  # type: ignore[override]
        """The roles that train."""
        return frozenset({"source", "target"} if self.clients == "all" else {"source"})

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the matched step to the model; average buffers."""
        updates = [update for update in (target, *sources.values()) if update is not None]
        shares, products = source_weights(updates, self.source_weights), inner_products_of(updates)
        if not np.isfinite(products).all():
            raise NotFiniteError("the inner products of the updates overflow")
        coefficients, weights = matched_step(products, shares, self.kappa)
        new = mean_update(round.model, updates, shares)
        for name in updates[0].parameters:
            terms = zip((self.server_rate * coefficients).tolist(), updates, strict=True)
            new[name] = weighted_sum(round.model[name], [(c, u.parameters[name]) for c, u in terms])
        entries: list[Any] = [] if target is None else [round.record["target"]]
        entries += [round.record["sources"][domain] for domain in sources]
        for entry, weight in zip(entries, weights.tolist(), strict=True):
            entry["weight"] = weight
        return Aggregated(new)
