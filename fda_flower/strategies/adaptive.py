"""The base of FedDA and FedGP: β of each source, fixed or estimated every round."""

from collections.abc import Mapping, Sequence
from logging import WARNING
from typing import ClassVar, Literal, Unpack

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ENCODINGS,
    AdaptiveResult,
    AdaptiveRule,
    BatchUpdates,
    CountSketch,
    Encoding,
    Layers,
    Update,
    mean_update,
)
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.forwarding import Forwarded, forward
from fda_flower.strategies.node import Node
from fda_flower.strategies.replies import BadReplyError, read_arrays

Beta = float | Sequence[float] | Mapping[str, float]
"""β for all sources, or one for each: in the order of their domains' names, or by domain."""

AggregateOn = Literal["server", "target"]


class AdaptiveStrategy(DomainAdaptationStrategy):
    """Weigh each source against the target by β, then apply a rule.

    Parameters
    ----------
    weighing : AdaptiveRule
        What to make of the updates, and of the estimates.
    beta : float, sequence or mapping
        β in [0, 1], the weight of a source against the target (0 is Target Only). With `auto` it is the
        fallback where an estimate is not possible.
    auto : bool
        Estimate β of each source every round from the target's batch updates (equation 3).
    batch_update_encoding : {"norms", "sketch", "full"}
        What the target sends for it.
    sketch_size : int
        Buckets of a sketch, with encoding ``"sketch"``.
    aggregate_on : {"server", "target"}
        Who combines the updates. With ``"target"`` the server forwards the sources' updates to the target,
        which trains, combines, and returns the new model: the server sees neither β nor the target's update
        or batch updates (Section C.1). The target's app needs the mod
        `fda_flower.clients.aggregate_on_target`, which `fda_flower.clients.serve` has.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If β is outside [0, 1] or another setting cannot work.
    """

    encodings: ClassVar[tuple[Encoding, ...]] = ENCODINGS
    """The encodings of batch updates that are enough for the method."""

    def __init__(
        self,
        weighing: AdaptiveRule,
        *,
        beta: Beta,
        auto: bool,
        batch_update_encoding: Encoding,
        sketch_size: int,
        aggregate_on: AggregateOn,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(**common)
        if batch_update_encoding not in self.encodings:
            raise ConfigError(
                f"batch_update_encoding is '{batch_update_encoding}', which is not enough for "
                f"{type(self).__name__}: choose one of {', '.join(self.encodings)}"
            )
        if sketch_size < 1:
            raise ConfigError(f"sketch_size is {sketch_size}, it must be at least 1")
        if weighing.weighting not in ("examples", "uniform"):
            raise ConfigError(f"source_weights is '{weighing.weighting}': choose examples or uniform")
        if aggregate_on not in ("server", "target"):
            raise ConfigError(f"aggregate_on is '{aggregate_on}': choose server or target")
        self.beta = check_beta(beta)
        self.auto = auto
        self._weighing = weighing
        self._encoding, self._sketch_size = batch_update_encoding, sketch_size
        self._batches: BatchUpdates | str = "not asked for"
        self._betas: dict[str, float] = {}
        self._replies: dict[str, ArrayRecord] = {}
        self._on_target = aggregate_on == "target"
        if self._on_target:
            self.trains = frozenset({"source"})

    def settings(self) -> Record:
        """What defines the strategy."""
        asked = (
            {"batch-update-encoding": self._encoding, "sketch-size": self._sketch_size} if self.auto else {}
        )
        return {
            **super().settings(),
            "rule": str(self._weighing.rule),
            "beta": self.beta if isinstance(self.beta, float | dict) else list(self.beta),
            "auto": self.auto,
            "source-weights": self._weighing.weighting,
            **asked,
            **({"aggregate-on": "target"} if self._on_target else {}),
        }

    def check_roster(self) -> None:
        """Raise a `ConfigError` unless there is a β for each of the first sources."""
        if not self._betas:
            domains = [node.domain for node in self.roster.sources]
            self._betas = dict(zip(domains, betas_of(self.beta, domains).tolist(), strict=True))

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """With `auto`, ask the target for its batch updates."""
        if not (self.auto and node.is_target):
            return ConfigRecord()
        self._batches = "the target sent none"
        asked = ConfigRecord({"batch-updates": self._encoding})
        if self._encoding == "sketch":
            asked["sketch-size"], asked["sketch-seed"] = self._sketch_size, server_round
        return asked

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Read the target's batch updates; if they cannot be used, say why."""
        if self._weighing.rule.needs_scale and update.scale <= 0:
            raise BadReplyError(
                f"its metrics lack num-steps or learning-rate, which {self._weighing.rule} needs"
            )
        if self._on_target:
            info = reply.config_records.get("info", ConfigRecord())
            if node.is_target and info.get("aggregated-on") != "target":
                raise BadReplyError("it did not aggregate: its app lacks the mod aggregate_on_target")
            self._replies[node.domain] = ArrayRecord(dict(reply.array_records["arrays"]))
        elif self.auto and node.is_target:
            self._batches = self._read_batches(reply, update, record)

    def _read_batches(self, reply: RecordDict, update: Update, record: Record) -> BatchUpdates | str:
        if "clipped" in record:
            return "the target's update was clipped, its batch updates do not fit it"
        try:
            return BatchUpdates.from_arrays(
                read_arrays(reply, "batch-updates"),
                self._encoding,
                update.steps,
                sum(layer.size for layer in update.parameters.values()),
                CountSketch(self._sketch_size, self.record["round"]),
            )
        except (BadReplyError, ValueError) as error:
            return str(error)

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """Weigh the sources, apply the rule."""
        betas = np.array([self._beta_of(domain) for domain in sources])
        if self._on_target:
            return self._combine_on_target(sources, betas, record)
        assert target is not None, "the base class holds the model without the target"
        batches = self._batches if self.auto else None
        weighed = self._weighing(model, target, list(sources.values()), betas, batches)
        geometry = weighed.geometry
        record["target"]["norm"] = float(np.sqrt(geometry.target_squared.sum()))
        for i, domain in enumerate(sources):
            record["sources"][domain] |= {
                "beta": float(weighed.betas[i]),
                "cosine": float(geometry.cosines[i]),
                "kept": float((geometry.products[i] > 0).mean()),
                "norm": float(np.sqrt(geometry.source_squared[i].sum())),
            }
            if self.auto:
                self._record_estimate(record["sources"][domain], weighed, i)
        return weighed.model

    def _beta_of(self, domain: str) -> float:
        """The fixed β of a source; of one that came later, and has none, 0."""
        return self.beta if isinstance(self.beta, float) else self._betas.get(domain, 0.0)

    def _record_estimate(self, entry: Record, weighed: AdaptiveResult, i: int) -> None:
        if weighed.estimates is not None:
            e = weighed.estimates[i]
            entry |= {"sigma2": e.sigma2, "d2": e.d2, "tau2-d2": e.tau2_d2, "delta": e.delta}
        entry["fallback"] = weighed.fallbacks[i]
        if entry["fallback"]:
            log(WARNING, "β of %s is the fixed %g: %s", entry["domain"], weighed.betas[i], entry["fallback"])

    def _combine_on_target(
        self, sources: Mapping[str, Update], betas: NDArray[np.float64], record: Record
    ) -> Layers:
        """Have the target train and combine; the new model is its reply."""
        if self.roster.target is None:
            raise BadReplyError("the target is not connected")
        asked = self.ask_to_train(self.roster.target)
        buffers = next(iter(sources.values())).buffers
        forward(
            asked.message.content,
            self._weighing,
            list(buffers),
            [
                Forwarded(self._replies.pop(domain), source, beta, record["sources"][domain])
                for (domain, source), beta in zip(sources.items(), betas.tolist(), strict=True)
            ],
        )
        target, _ = self.send_and_collect([asked])
        if target is None:
            raise BadReplyError("no usable reply of the target")
        if "clipped" in record["target"]:
            return mean_update(self.model, [target], np.ones(1))
        new = self._replies.pop(asked.node.domain)
        return {name: new[name].numpy() for name in self.model}


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
