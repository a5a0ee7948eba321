"""Domain generalisation: IRM, V-REx, GroupDRO, FedOMG."""

from collections.abc import Collection
from dataclasses import field, replace
from typing import ClassVar, Literal

import numpy as np

from fda_flower.aggregation import groupdro_weights, matched_step, mean_update, vrex_weights
from fda_flower.aggregation.joint import inner_products_of
from fda_flower.aggregation.updates import Layers, SourceWeights, source_weights, weighted_sum
from fda_flower.names.options import Natural, NotNegative, Positive
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.fedavg import SourceOnly
from fda_flower.strategies.method import entries
from fda_flower.strategies.replies import ClientUpdate, NotFiniteError
from fda_flower.wire.asked.generalisation import LossMeasured, MeasureLoss, Penalise, Penalised
from fda_flower.wire.protocol import NUM_STEPS, TRAIN_LOSS, TrainRequest
from fda_flower.wire.questions import Question

ANNEALING, DONE = "annealing", "steps"
"""Name of the strategy's state: the number of local steps done."""


class PenalisedSources(SourceOnly):
    """Source Only with a penalty whose λ is at most 1 in the first local steps (annealing).

    The server counts local steps: each round of the method adds the mean of the sources' ``num-steps``. A
    round has one λ, recorded as ``lam``. Warm-up rounds and held rounds do not count.

    Parameters
    ----------
    lam : float
        ``λ`` after the annealing.
    anneal_steps : int
        In rounds that begin before this number of local steps, λ is 1, or `lam` if that is smaller; DomainBed
        uses 500. Each round starts with a new optimizer, also when λ rises.
    """

    lam: NotNegative = 1.0
    anneal_steps: Natural = 500

    @property
    def strength(self) -> float:
        """``λ`` of the current round."""
        return self.lam if self._steps_done() >= self.anneal_steps else min(self.lam, 1.0)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Require the number of local steps, for the annealing."""
        request = super().train_request(node, round)
        if self.anneal_steps == 0:
            return request
        remedy = "the annealing counts steps: report num-steps and learning-rate, or set anneal_steps to 0"
        return request.adding(requires={NUM_STEPS: remedy})

    def annealed(self, round: Round, model: Layers, sources: Collection[ClientUpdate]) -> Aggregated:
        """Return a round's result, with its local steps counted, and λ."""
        strength, warnings = self.strength, list[str]()
        if strength < self.lam and round.number == self.num_rounds:
            few = f"the sources have done fewer than {self.anneal_steps} local steps"
            remedy = "Train longer, or lower anneal_steps"
            warnings = [f"in the whole run λ was {strength:g}, not {self.lam:g}: {few}. {remedy}"]
        done = self._steps_done() + float(np.mean([source.steps for source in sources]))
        state = {ANNEALING: {DONE: np.array(done)}} if self.anneal_steps else {}
        return Aggregated(model, state, {"lam": strength}, warnings=warnings)

    def _steps_done(self) -> float:
        return float(self.state[ANNEALING][DONE].numpy()) if ANNEALING in self.state else 0.0


class IRM(PenalisedSources):
    """``min mean_i (L_i + λ D_i)`` over the sources (Arjovsky et al., "Invariant Risk Minimization", 2019).

    ``D_i``, the penalty of IRMv1 with DomainBed's unbiased square, is zero if no scale of the logits would
    serve source ``i`` better. The sources train with it; the server averages them. The target does not train.

    With one local step in a round this is IRMv1. With several, each source minimises its own objective from
    the global model, as in FedAvg: a surrogate.

    A round's record has ``lam`` and each source's ``penalty``, the mean of ``D_i`` over its steps;
    ``train-loss`` is the mean of ``L_i + λ D_i``.

    Parameters
    ----------
    lam : float
        ``λ``; DomainBed uses 100. At 0 this is Source Only.
    anneal_steps
        See `PenalisedSources`.
    """

    questions = (Penalise,)
    lam: NotNegative = 100.0
    source_weights: SourceWeights = "uniform"

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options: with λ = 0 none."""
        return self.questions if self.lam else ()

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the penalty, unless λ is 0."""
        request = super().train_request(node, round)
        if self.strength == 0:
            return request
        return replace(request, question=Penalise(strength=self.strength))

    def answered(self, domain: str, answer: Penalised) -> Record:
        """Record the source's penalty."""
        return {"penalty": answer.penalty}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the sources."""
        model = super().aggregate(round, target, sources).model
        return self.annealed(round, model, sources.values())


class VREx(PenalisedSources):
    """``θ ← θ + Σ_i ω_i Δ_i``, with ``ω_i = (1 + 2λ(L_i − L̄))/N`` over ``N`` sources.

    These are the weights in the gradient of ``mean_i L_i + λ/N Σ_i (L_i − L̄)²`` (Krueger et al.,
    "Out-of-Distribution Generalization via Risk Extrapolation", ICML 2021). Before training, each source
    measures ``L_i``, the mean loss of the received model on its training samples, and sends it with its
    model. The target does not train.

    With one local step in a round, on all samples, this is V-REx. With several, the weights are constant
    within the round: a surrogate. Negative weights then reverse whole updates, and with a large λ the model
    may diverge; `clip` prevents both.

    A round's record has ``lam`` and each source's ``loss-at-start``, ``L_i``, and ``weight``, ``ω_i``.

    Parameters
    ----------
    lam : float
        ``λ``; DomainBed uses 10. At 0 this is Source Only with uniform weights.
    anneal_steps
        See `PenalisedSources`.
    clip : bool
        Set negative weights to 0, and normalise the others.
    """

    questions = (MeasureLoss,)
    averages_sources = False
    fewest_sources = 2

    lam: NotNegative = 10.0
    clip: bool = False
    source_weights: SourceWeights = field(default="uniform", init=False)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the loss at the global model."""
        return replace(super().train_request(node, round), question=MeasureLoss())

    def answered(self, domain: str, answer: LossMeasured) -> Record:
        """Record the source's loss at the global model."""
        return {"loss-at-start": answer.loss_at_start}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the weighted updates to the model."""
        updates = list(sources.values())
        losses = [update.answer.loss_at_start for update in updates]
        weights = vrex_weights(losses, self.strength, self.clip)
        annealed = self.annealed(round, mean_update(round.model, updates, weights), updates)
        return replace(annealed, clients=entries("weight", updates, weights.tolist()))


Q = "q"


class GroupDRO(SourceOnly):
    """``θ ← θ + Σ_i q_i Δ_i``, with ``q_i ← q_i exp(η_q K L_i)``, normalised, over the sources.

    The rule is Sagawa et al.'s ("Distributionally Robust Neural Networks for Group Shifts", ICLR 2020,
    Algorithm 1), one update of ``q`` per round. ``L_i`` is the mean loss of source ``i`` during training,
    and ``K`` the mean number of local steps: ``q`` moves as far as in ``K`` updates with these losses. The
    target does not train. With one local step in a round this is GroupDRO; with several, a surrogate.

    The server keeps ``q``, which starts at 1 for each source and has mean 1 over the sources. A source
    without a usable reply keeps its ``q``, and the weights of the others sum to 1. A round's record has each
    source's ``weight``.

    Parameters
    ----------
    step_size : float
        ``η_q``, per local step; DomainBed uses 0.01. At 0 this is Source Only with uniform weights.
    """

    averages_sources = False
    fewest_sources = 2
    without_patients = "but it weighs sources by the losses of their training, which have no noise"
    requires: ClassVar = {
        TRAIN_LOSS: "GroupDRO's sources must report the mean loss of their training",
        NUM_STEPS: "GroupDRO's sources must report num-steps and learning-rate",
    }

    step_size: NotNegative = 0.01
    source_weights: SourceWeights = field(default="uniform", init=False)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Update ``q`` by the losses, and add the weighted updates to the model."""
        masses = {name: float(array.numpy()) for name, array in self.state.get(Q, {}).items()}
        before = [masses.get(domain, 1.0) for domain in sources]
        updates = list(sources.values())
        step_size = self.step_size * float(np.mean([update.steps for update in updates]))
        losses = [float(str(round.record["sources"][domain]["train-loss"])) for domain in sources]
        weights = groupdro_weights(before, losses, step_size)
        masses |= {
            domain: weight * sum(before) for domain, weight in zip(sources, weights.tolist(), strict=True)
        }
        q = {domain: np.array(masses[domain]) for domain in sorted(masses)}
        model = mean_update(round.model, updates, weights)
        return Aggregated(model, {Q: q}, clients=entries("weight", updates, weights.tolist()))


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

    fewest_sources = 2

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
        return Aggregated(new, clients=entries("weight", updates, weights.tolist()))
