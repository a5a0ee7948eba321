"""FedDA, FedGP and FedDA_Joint, with fixed β or auto-weighting."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from statistics import median
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower import aggregation
from fda_flower.aggregation import (
    AdaptiveResult,
    AdaptiveRule,
    BatchUpdates,
    CountSketch,
    Encoding,
    Evidence,
    JointRule,
    Layers,
    SourceWeights,
    mean_update,
    read_gradients,
    source_weights,
)
from fda_flower.aggregation.adaptive import FROM_STEPS
from fda_flower.aggregation.rules import passes
from fda_flower.aggregation.theory import errors_of_round, labels_worth
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.names.options import Count, as_text, as_written
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.benefit import units_of
from fda_flower.strategies.on_target import forwarded, shuffled
from fda_flower.strategies.replies import BadReplyError, ClientUpdate, out_of_line
from fda_flower.wire import protocol
from fda_flower.wire.asked.adaptive import WithBatchUpdates, WithGradients
from fda_flower.wire.protocol import TrainRequest, to_record

ROUNDS = 3
RATIO = 1 / 20


def is_stuck(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last round is the first that ends `ROUNDS` slow ones in a row.

    FedGP's step is a mean of the target's update and its projections, and no projection is longer than the
    update. A round is slow if the norm of the target's update is below `RATIO` of the median of the sources'
    norms. `records` holds all rounds up to the current one, including those before a resume.
    """
    slow = [_is_slow(record) for record in records]
    rows = [all(slow[end - ROUNDS : end]) for end in range(ROUNDS, len(slow) + 1)]
    return bool(rows) and rows[-1] and not any(rows[:-1])


STUCK = (
    f"the target's update is shorter than a twentieth of the sources' for {ROUNDS} rounds. FedGP's step is "
    "never longer than the target's: warm-up rounds, more local epochs at the target, or FedDA"
)


def _is_slow(record: Mapping[str, Any]) -> bool:
    own = (record.get("target") or {}).get("norm")
    norms = [entry.get("norm") for entry in record.get("sources", {}).values()]
    return None not in (own, *norms) and bool(norms) and own < RATIO * median(norms)


Beta = float | Sequence[float] | Mapping[str, float]
"""β for all sources, or one for each: in the order of their domains' names, or by domain."""


class AdaptiveStrategy(DomainAdaptationStrategy):
    """Weigh each source against the target by β, then apply a rule.

    Parameters
    ----------
    beta : float, sequence or mapping
        β in [0, 1], the weight of a source against the target (0 is Target Only). With `auto` it is the
        fallback for rounds where β cannot be estimated.
    auto : bool
        Estimate β of each source every round from the target's batch updates (equation 3).
    batch_update_encoding : {"norms", "sketch", "full"}
        How the target encodes its batch updates for the estimate.
    estimate_at : {"training", "start"}
        With `auto`: estimate β from the updates and the target's batch updates, or from gradients that all
        clients compute at the global model before training, at the cost of a pass over their samples.
    sketch_size : int
        Number of buckets of a sketch; the round's number is its seed. A model of fewer parameters is asked
        for ``full`` batch updates instead, which are then shorter and exact.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.
    aggregate_on : {"server", "target"}
        Who aggregates the updates. With ``"target"`` the server forwards the sources' models to the target,
        which trains, aggregates, and returns the new model. The server then sees neither β nor the target's
        update or batch updates (Section C.1). The target's app needs the mod
        `fda_flower.clients.aggregate_on_target`; `fda_flower.clients.serve` includes it.
    """

    beta: Beta = 0.5
    auto: bool = False
    batch_update_encoding: Encoding = "norms"
    sketch_size: Count = 1024
    source_weights: SourceWeights = "examples"
    estimate_at: Literal["training", "start"] = "training"
    aggregate_on: Literal["server", "target"] = "server"

    falls_back = "β is fixed for"
    weighs_by: ClassVar[Literal["beta", "weight"]] = "beta"
    """The field of a source's record for β, or for its joint weight."""

    @abstractmethod
    def rule(self) -> AdaptiveRule:
        """Return the rule, with its formula for β."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.beta = check_beta(self.beta)
        self._rule = self.rule()
        self._betas: dict[str, float] = {}
        self._at_start = self.auto and self.estimate_at == "start"
        if self._at_start and self._rule.beta_rule in FROM_STEPS:
            remedy = "choose definition, or estimate_at=training"
            raise invalid("beta_formula", "reference-code", remedy, "which needs the steps of the training")
        self._evidence = protocol.GRADIENTS if self._at_start else protocol.BATCH_UPDATES
        self._answer = WithGradients if self._at_start else WithBatchUpdates
        self._encoding = "sketch" if self._at_start else self.batch_update_encoding
        roles = {"source", "target"} if self._at_start else {"target"}
        stays = {"target"} if self.asks_again else set()
        self.nodes.asks = dict.fromkeys(sorted(roles - stays), self._encoding) if self.auto else {}

    @property
    def without_patients(self) -> str | None:  # type: ignore[override]
        """Why noise cannot protect each patient: gradients at the start have none."""
        return (
            "but with estimate_at=start sites send gradients that have no noise" if self._at_start else None
        )

    @property
    def asks_again(self) -> bool:  # type: ignore[override]
        """Whether the target trains after the sources and aggregates."""
        return self.aggregate_on == "target"

    @property
    def trains(self) -> frozenset[str]:  # type: ignore[override]
        """The roles that train first."""
        return frozenset({"source"} if self.asks_again else {"source", "target"})

    @property
    def trained_plainly(self) -> frozenset[str]:
        """The roles that get plain train messages: both, in whichever order they train."""
        return frozenset({"source", "target"})

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` unless there is a β for each of the first sources."""
        if not self._betas:
            domains = [node.domain for node in nodes if not node.is_target]
            self._betas = dict(zip(domains, betas_of(self.beta, domains).tolist(), strict=True))
            for name in self.beta if isinstance(self.beta, Mapping) else ():
                if name not in domains:
                    raise unknown("source of beta", name, domains)

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if a client has fewer than the two batches that the estimates need."""
        estimates = self.auto and (role == "target" or self._at_start)
        if estimates and samples < 2 * batch_size:
            why = f"{who} has {samples} labelled samples, auto-weighting needs two batches of {batch_size}"
            remedy = "give more samples, a smaller batch size, or a method with a fixed beta"
            remedy += "" if role == "target" else ", or estimate_at=training"
            raise ConfigError(why, thing=who, value=samples, remedy=remedy)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the arrays that the rule needs and, with `auto`, those that β is estimated from."""
        request = TrainRequest(round.arrays, round.config)
        rule = self._rule.rule
        if rule.needs_scale:
            remedy = f"{rule} needs num-steps and learning-rate of every client"
            request = request.adding(requires={protocol.NUM_STEPS: remedy, protocol.LEARNING_RATE: remedy})
        if rule.needs_batch_size:
            remedy = f"{rule} needs the batch-size of every client: report it, or choose another magnitude"
            request = request.adding(requires={protocol.BATCH_SIZE: remedy})
        if self.asks_again:
            request = replace(request, with_model=True)
        if not self._at_start and not (self.auto and node.is_target):
            return request
        encoding = self._encoding
        if encoding == "sketch" and not self._at_start and round.count_parameters() < self.sketch_size:
            encoding = "full"
        fields: Record = {self._evidence: encoding}
        if encoding == "sketch":
            protocol.check_sketch(self.sketch_size, round.count_parameters())
            fields |= {protocol.SKETCH_SIZE: self.sketch_size, protocol.SKETCH_SEED: round.number}
        request = request.adding(config=fields)
        stays = self.asks_again and node.is_target
        return request if stays else replace(request, plain_answer=self._answer)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Weigh the sources, and apply the rule."""
        sources = self._believable(round, sources)
        if self.asks_again:
            sources = shuffled(sources)
        betas = np.array([self._beta_of(domain) for domain in sources])
        if self.asks_again:
            return Aggregated(self._aggregate_on_target(round, sources, betas))
        assert target is not None, "the base class holds the round without the target"
        evidence = self._read_evidence(target, sources, round) if self.auto else None
        result = self._rule(round.model, target, list(sources.values()), betas, evidence)
        geometry = result.geometry
        clients: dict[str, Record] = {
            target.domain: {"norm": float(np.sqrt(geometry.target_squared.sum()))},
            **{domain: self._entry(result, i) for i, domain in enumerate(sources)},
        }
        record: Record = {}
        if result.estimates is not None and not units_of(round.target):  # estimates count samples
            record, worth = self._theory(result, target, sources)
            clients = {domain: {**entry, **worth.get(domain, {})} for domain, entry in clients.items()}
        return Aggregated(result.model, record=record, clients=clients)

    def _entry(self, result: AdaptiveResult, i: int) -> Record:
        """Return the entries of a source's record."""
        geometry = result.geometry
        entry: Record = {
            self.weighs_by: float(result.betas[i]),
            "cosine": float(geometry.cosines[i]),
            "kept": float((geometry.products[i] > 0).mean()),
            "norm": float(np.sqrt(geometry.source_squared[i].sum())),
        }
        if self.auto:
            entry["fallback"] = result.fallbacks[i]
        if self.auto and result.estimates is not None:
            e = result.estimates[i]
            entry |= {"sigma2": e.sigma2, "d2": e.d2, "tau2-d2": e.tau2_d2, "delta": e.delta}
        return entry

    def _theory(
        self, result: AdaptiveResult, target: ClientUpdate, sources: Sources
    ) -> tuple[Record, dict[str, Record]]:
        """Return the Delta errors, and how many labels each source is worth, as entries of the record."""
        assert result.estimates is not None, "there is no theory without"
        own = type(self._rule.rule).__name__.lower()
        betas = {own: result.betas} if self.weighs_by == "beta" else {}
        alphas = source_weights([*sources.values()], self.source_weights)
        size = sum(layer.size for layer in target.parameters.values())
        errors = errors_of_round(result.estimates, alphas, betas, size)
        record: Record = {}
        if errors:
            record["delta-errors"] = {**errors, "helps": errors[own] < errors["gradient"]}
        seen = target.examples * (passes(target) if target.batch_size and not self._at_start else 1)
        worth: dict[str, Record] = {
            domain: {"labels-worth": labels_worth(estimates, seen)}
            for domain, estimates in zip(sources, result.estimates, strict=True)
            if not np.isnan(estimates.d2)
        }
        return record, worth

    def _believable(self, round: Round, sources: Sources) -> Sources:
        """Return the sources without those whose steps or rate are out of line, which are dropped.

        Where the server knows the nodes' schedules, replies are read by these; see `read_update`. With a
        fixed β neither counts, unless the rule needs them.
        """
        if "source" in round.schedules or not (self.auto or self._rule.rule.needs_scale):
            return sources
        dropped = out_of_line(sources)
        round.leave_out(dropped)
        rest = {domain: update for domain, update in sources.items() if domain not in dropped}
        if len(rest) < self.min_sources:
            raise BadReplyError(f"{len(rest)} usable replies of sources, at least {self.min_sources} needed")
        return rest

    def _read_evidence(self, target: ClientUpdate, sources: Sources, round: Round) -> Evidence | str:
        """Return the inputs of the estimate of β, or the reason why they cannot be used."""
        sketch = CountSketch(self.sketch_size, round.number)
        if self._at_start:
            return read_gradients(_gradients(target), [*map(_gradients, sources.values())], sketch)
        if target.factor != 1:
            return "the target's update was clipped, its batch updates do not fit it"
        if isinstance(target.answer, str):
            return target.answer
        assert round.target is not None, "its update is here"
        arrays, config = target.answer.batch_updates, round.requests[round.target].config
        length = sum(layer.size for layer in target.parameters.values())
        try:
            return BatchUpdates.from_arrays(arrays, config[self._evidence], target.steps, length, sketch)
        except ValueError as error:
            return str(error)

    def _beta_of(self, domain: str) -> float:
        """Return the fixed β of a source; 0 for a source that joined later and has none."""
        return self.beta if isinstance(self.beta, float) else self._betas.get(domain, 0.0)

    def _aggregate_on_target(self, round: Round, sources: Sources, betas: NDArray[np.float64]) -> Layers:
        """Let the target train and aggregate; the new model is its reply."""
        node = round.target
        if node is None:
            raise BadReplyError("the target is not connected")
        buffers = next(iter(sources.values())).buffers
        remedy = "it did not aggregate, since its app lacks the mod aggregate_on_target"
        records = forwarded(self._rule, list(buffers), sources, betas.tolist())
        if self._at_start:
            sent = enumerate(map(_gradients, sources.values()))
            records |= {f"{self._evidence}.{i}": to_record(g) for i, g in sent if not isinstance(g, str)}
        request = self.train_request(node, round).adding(
            records=records, requires={protocol.AGGREGATED_ON: remedy}
        )
        target = round.ask_target(request)
        if target.factor != 1:
            return mean_update(round.model, [target], np.ones(1))
        return target.model


def _gradients(update: ClientUpdate) -> Layers | str:
    """Return the gradients at the global model from a client's reply, or why they cannot be read."""
    return update.answer if isinstance(update.answer, str) else update.answer.gradients


def check_beta(beta: Beta) -> float | tuple[float, ...] | dict[str, float]:
    """Return β as plain numbers; raise a `ConfigError` unless all are in [0, 1]."""
    given = list(beta.values()) if isinstance(beta, Mapping) else np.atleast_1d(np.asarray(beta)).tolist()
    try:
        values = [float(as_written(value)) for value in given]
    except (TypeError, ValueError):
        raise invalid("beta", beta, "give a number in [0, 1], or one for each source") from None
    for value in values:
        if not 0 <= value <= 1:
            raise invalid("beta", value, "it must be in [0, 1] (0 trusts the target alone, 1 the source)")
    if isinstance(beta, Mapping):
        return {as_text(domain): value for domain, value in zip(beta, values, strict=True)}
    return values[0] if np.ndim(beta) == 0 else tuple(values)


def betas_of(beta: Beta, domains: Sequence[str]) -> NDArray[np.float64]:
    """Return β of each source, shape ``(len(domains),)``."""
    if isinstance(beta, Mapping):
        if missing := [domain for domain in domains if domain not in beta]:
            why = f"beta has no value for the source '{missing[0]}'"
            raise ConfigError(why, thing="beta", value=dict(beta), remedy="give one for each")
        return np.array([beta[domain] for domain in domains])
    if isinstance(beta, float):
        return np.full(len(domains), beta)
    if len(beta) != len(domains):
        why = f"beta has {len(beta)} values for {len(domains)} sources ({', '.join(domains)})"
        raise ConfigError(why, thing="beta", value=beta, remedy="give one value, or one for each source")
    return np.array(beta)


FEDDA_FORMULAS = {"definition": "beta_fedda", "reference-code": "beta_fedda_reference"}
"""Functions that compute β, by value of `beta_formula`."""


class FedDA(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i Δ_i]`` (Jiang et al., ICLR 2024, Definition 4.1).

    Parameters
    ----------
    auto
        With it this is FedDA_Auto; the target sends one number per batch.
    updates : {"raw", "aligned"}
        Combine the sources' raw updates (the authors' code), or rescale them to the target's steps and
        learning rate.
    beta_formula : {"definition", "reference-code"}
        With `auto`, compute β by equation 3 or as the authors' code does; see
        `fda_flower.aggregation.beta_fedda_reference`.
    """

    variants: ClassVar = {
        "reference-code": {"updates": "raw", "source_weights": "examples", "beta_formula": "reference-code"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    batch_update_encoding: Encoding = field(default="norms", init=False)
    updates: Literal["raw", "aligned"] = "raw"
    beta_formula: Literal["definition", "reference-code"] = "definition"

    def rule(self) -> AdaptiveRule:
        """Return FedDA's rule."""
        return AdaptiveRule(
            aggregation.FedDA(self.updates), FEDDA_FORMULAS[self.beta_formula], self.source_weights
        )


FEDGP_FORMULAS = {
    "definition": "beta_fedgp",
    "filter-aware": "beta_fedgp_filter_aware",
    "reference-code": "beta_fedgp_reference",
}
"""Functions that compute β, by value of `beta_formula`."""


class FedGP(AdaptiveStrategy):
    """``θ ← θ + Σ_i α_i [(1−β_i) Δ_T + β_i P₊(Δ_T | Δ_i)]`` (Jiang et al., ICLR 2024, Definition 4.3).

    Parameters
    ----------
    auto
        With it this is FedGP_Auto.
    granularity, filter, magnitude
        See `fda_flower.aggregation.FedGP`.
    beta_formula : {"definition", "filter-aware", "reference-code"}
        With `auto`, compute β by equation 3; by Appendix A.4, which accounts for the filter; or as the
        authors' code does. See `fda_flower.aggregation.beta_fedgp_filter_aware` and `beta_fedgp_reference`.
    batch_update_encoding : {"sketch", "full"}
        With `auto` the target sends a sketch of each batch update, or the full batch updates.
    """

    variants: ClassVar = {
        "reference-code": {
            "granularity": "layer",
            "magnitude": "reference-code",
            "beta_formula": "reference-code",
        },
        "paper": {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"},
    }

    batch_update_encoding: Literal["sketch", "full"] = "sketch"
    granularity: Literal["layer", "model"] = "layer"
    filter: bool = True
    magnitude: Literal["projection", "cosine", "reference-code"] = "projection"
    beta_formula: Literal["definition", "filter-aware", "reference-code"] = "definition"

    def rule(self) -> AdaptiveRule:
        """Return FedGP's rule."""
        rule = aggregation.FedGP(self.granularity, self.filter, self.magnitude)
        return AdaptiveRule(rule, FEDGP_FORMULAS[self.beta_formula], self.source_weights)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Weigh the sources, apply the rule, and warn once if projections cannot move the model."""
        aggregated = super().aggregate(round, target, sources)
        if self.magnitude != "projection" or target is None:
            return aggregated
        clients = dict(aggregated.clients)
        now = {"target": clients.pop(target.domain), "sources": clients}
        return replace(aggregated, warnings=[STUCK] if is_stuck([*self.history, now]) else [])


class FedDAJoint(AdaptiveStrategy):
    """``θ ← θ + (1−Σw) Δ_T + Σ_i w_i Δ_i``, where ``w`` minimises ``σ²(1−Σw)² + wᵀDw`` in every round.

    It uses the same estimates as FedDA_Auto, and with one source it is the same method. With several, a
    source from the target's own domain may weigh up to 1 instead of α, and sources that err in opposite
    directions correct each other; see `fda_flower.aggregation.joint`. (In the first version of the paper the
    distance is of the sources' mean, Definition 4.1, in which such errors cancel, too.)

    A round's record has the ``weight`` of each source.

    Parameters
    ----------
    beta, source_weights
        If ``w_i`` cannot be estimated, it is ``α_i β_i``, as in FedDA.
    updates
        As in `FedDA`.
    """

    weighs_by = "weight"
    falls_back = "the weight is fixed for"
    variants: ClassVar = {
        "reference-code": {"updates": "raw", "source_weights": "examples"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }

    auto: bool = field(default=True, init=False)
    batch_update_encoding: Encoding = field(default="norms", init=False)
    updates: Literal["raw", "aligned"] = "raw"

    def rule(self) -> JointRule:
        """Return the rule that weighs all sources jointly."""
        return JointRule(aggregation.FedDA(self.updates), "beta_fedda", self.source_weights)
