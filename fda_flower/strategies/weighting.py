"""The base of FedDA and FedGP: β of each source, fixed or estimated every round."""

import math
from collections.abc import Mapping, Sequence
from logging import WARNING
from typing import ClassVar, Protocol, Unpack

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray

from fda_flower.aggregation import (
    FORMS,
    BatchUpdates,
    BetaRule,
    Coefficients,
    CountSketch,
    Estimates,
    Form,
    Geometry,
    Layers,
    Update,
    Weighting,
    combine,
    estimate,
    source_weights,
)
from fda_flower.errors import ConfigError
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.node import Node
from fda_flower.strategies.replies import BadReplyError, read_arrays
from fda_flower.strategies.run_folder import Record

Beta = float | Sequence[float] | Mapping[str, float]
"""β for all sources, or one for each: in the order of their domains' names, or by domain."""


class Rule(Protocol):
    """A rule of `fda_flower.aggregation` that weighs each source against the target."""

    def coefficients(
        self,
        target: Update,
        sources: Sequence[Update],
        geometry: Geometry,
        alphas: NDArray[np.float64],
        betas: NDArray[np.float64],
    ) -> Coefficients:
        """The rule's coefficients for one round."""
        ...


class WeightedStrategy(DomainAdaptationStrategy):
    """Weigh each source against the target by β, then apply a rule.

    Parameters
    ----------
    rule : Rule
        What to make of the updates.
    beta_rule : callable
        β from one source's estimates.
    beta : float, sequence or mapping
        β in [0, 1], the weight of a source against the target (0 is Target Only). With `auto` it is the
        fallback where an estimate is not possible.
    auto : bool
        Estimate β of each source every round from the target's batch updates (equation 3).
    form : {"norms", "sketch", "full"}
        What the target sends for it.
    sketch_size : int
        Buckets of a sketch, with form ``"sketch"``.
    source_weights : {"examples", "uniform"}
        α, the weights among the sources.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If β is outside [0, 1] or another setting cannot work.
    """

    forms: ClassVar[tuple[Form, ...]] = FORMS
    """The forms of batch updates that are enough for the method."""

    def __init__(
        self,
        rule: Rule,
        beta_rule: BetaRule,
        *,
        beta: Beta,
        auto: bool,
        form: Form,
        sketch_size: int,
        source_weights: Weighting,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(**common)
        if form not in self.forms:
            raise ConfigError(
                f"form is '{form}', which is not enough for {type(self).__name__}: choose one of "
                f"{', '.join(self.forms)}"
            )
        if sketch_size < 1:
            raise ConfigError(f"sketch_size is {sketch_size}, it must be at least 1")
        if source_weights not in ("examples", "uniform"):
            raise ConfigError(f"source_weights is '{source_weights}': choose examples or uniform")
        self.beta = check_beta(beta)
        self.auto = auto
        self._rule, self._beta_rule = rule, beta_rule
        self._form, self._sketch_size = form, sketch_size
        self._source_weights = source_weights
        self._batches: BatchUpdates | str = "not asked for"

    def settings(self) -> Record:
        """What defines the strategy."""
        asked = {"form": self._form, "sketch-size": self._sketch_size} if self.auto else {}
        return {
            **super().settings(),
            "rule": str(self._rule),
            "beta": self.beta if isinstance(self.beta, float | dict) else list(self.beta),
            "auto": self.auto,
            "source-weights": self._source_weights,
            **asked,
        }

    def check_roster(self) -> None:
        """Raise a `ConfigError` unless there is a β for each source."""
        betas_of(self.beta, [node.domain for node in self.roster.sources])

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """With `auto`, ask the target for its batch updates."""
        if not (self.auto and node.is_target):
            return ConfigRecord()
        self._batches = "the target sent none"
        asked = ConfigRecord({"batch-updates": self._form})
        if self._form == "sketch":
            asked["sketch-size"], asked["sketch-seed"] = self._sketch_size, server_round
        return asked

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Read the target's batch updates; if they cannot be used, say why."""
        if not (self.auto and node.is_target):
            return
        try:
            self._batches = BatchUpdates.from_arrays(
                read_arrays(reply, "batch-updates"),
                self._form,
                update.steps,
                sum(layer.size for layer in update.parameters.values()),
                CountSketch(self._sketch_size, self._record["round"]),
            )
        except (BadReplyError, ValueError) as error:
            self._batches = str(error)

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """Weigh the sources, apply the rule."""
        assert target is not None, "the base class holds the model without the target"
        updates = list(sources.values())
        geometry = Geometry.of(target, updates)
        betas = betas_of(self.beta, list(sources))
        if self.auto:
            betas = self._estimate(target, sources, geometry, betas, record)
        alphas = source_weights(updates, self._source_weights)
        try:
            coefficients = self._rule.coefficients(target, updates, geometry, alphas, betas)
        except ValueError as error:
            raise ConfigError(f"{type(self).__name__} cannot be computed: {error}") from error
        record["target"]["norm"] = float(np.sqrt(geometry.target_squared.sum()))
        for i, domain in enumerate(sources):
            record["sources"][domain] |= {
                "beta": float(betas[i]),
                "cosine": float(geometry.cosines[i]),
                "kept": float((geometry.products[i] > 0).mean()),
                "norm": float(np.sqrt(geometry.source_squared[i].sum())),
            }
        return combine(model, target, updates, coefficients)

    def _estimate(
        self,
        target: Update,
        sources: Mapping[str, Update],
        geometry: Geometry,
        fallback: NDArray[np.float64],
        record: Record,
    ) -> NDArray[np.float64]:
        """Estimated β; the fixed one, with the reason in the record, where there is no estimate."""
        estimates: list[Estimates] | None = None
        reason = "the estimate is not defined"
        if isinstance(self._batches, str):
            reason = self._batches
        else:
            try:
                estimates = estimate(target, list(sources.values()), geometry, self._batches)
            except ValueError as error:
                reason = str(error)
        betas = fallback.copy()
        for i, domain in enumerate(sources):
            entry = record["sources"][domain]
            entry["fallback"] = reason
            if estimates is not None:
                e = estimates[i]
                entry |= {"sigma2": e.sigma2, "d2": e.d2, "tau2-d2": e.tau2_d2, "delta": e.delta}
                beta = self._beta_rule(e)
                if not math.isnan(beta):
                    betas[i], entry["fallback"] = beta, None
            if entry["fallback"]:
                log(WARNING, "β of %s is the fixed %g: %s", domain, betas[i], entry["fallback"])
        return betas


def check_beta(beta: Beta) -> float | tuple[float, ...] | dict[str, float]:
    """The same β as plain numbers; a `ConfigError` unless all are in [0, 1]."""
    given = list(beta.values()) if isinstance(beta, Mapping) else np.atleast_1d(np.asarray(beta)).tolist()
    try:
        values = [float(value) for value in given]
    except (TypeError, ValueError):
        raise ConfigError(f"beta is {beta!r}: give a number in [0, 1], or one for each source") from None
    for value in values:
        if not 0 <= value <= 1:
            raise ConfigError(
                f"beta is {value}, it must be in [0, 1]: 0 trusts the target alone, 1 the source alone"
            )
    if isinstance(beta, Mapping):
        return {domain: float(value) for domain, value in beta.items()}
    return values[0] if np.ndim(beta) == 0 else tuple(values)


def betas_of(
    beta: float | Sequence[float] | Mapping[str, float], domains: Sequence[str]
) -> NDArray[np.float64]:
    """β of each source, shape ``(len(domains),)``."""
    if isinstance(beta, Mapping):
        if missing := [domain for domain in domains if domain not in beta]:
            raise ConfigError(f"beta has no value for the source '{missing[0]}': give one for each")
        return np.array([beta[domain] for domain in domains])
    if isinstance(beta, float):
        return np.full(len(domains), beta)
    if len(beta) != len(domains):
        raise ConfigError(
            f"beta has {len(beta)} values for {len(domains)} sources ({', '.join(domains)}): give one "
            "value, or one for each source"
        )
    return np.array(beta)
