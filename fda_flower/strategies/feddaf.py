"""FedDAF: the sources' model and the target's own, blended on the target by their functional distance."""

import math
from collections.abc import Iterable, Mapping
from typing import Unpack

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fda_flower.aggregation import Layers, SourceWeights, Update, mean_update, source_weights
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.node import Node
from fda_flower.strategies.personal import KeepsModels, read_model_like, to_layers
from fda_flower.strategies.replies import read_number

SOURCES, TARGET = "sources", "target"


class FedDAF(KeepsModels):
    """``w_n = α w^S_{n−1} + (1−α) w^T_{n−1}`` on the target (Sen et al., Algorithm 1 and equation 2).

    The sources train the global source model ``w^S``, which the target's model never enters. The target
    blends it with its own model ``w^T`` of the round before, which it has kept; what comes of it, ``w_n``, is
    the adapted model: the run's model, which is evaluated. From ``w_n`` it trains the next ``w^T``. It has to
    be served by `fda_flower.clients.FedDAFTarget`.

    A round's record has the target's ``sim``, ``theta`` and ``alpha``, and ``accuracy-global`` of ``w^S``.

    Parameters
    ----------
    mu : float
        ``μ`` of the Gompertz function (Algorithm 3); the paper's is 5.
    source_weights : {"examples", "uniform"}
        Of the sources' mean; equation 3 is uniform.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If μ is not finite.

    Examples
    --------
    >>> from fda_flower.strategies import FedDAF
    >>> strategy = FedDAF(mu=5.0)
    """

    def __init__(
        self, mu: float = 5.0, *, source_weights: SourceWeights = "uniform", **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(**common)
        if not math.isfinite(mu):
            raise ConfigError(f"mu is {mu}, it must be a finite number; the paper's is 5")
        self._mu = mu
        self._source_weights = source_weights
        self._resumed = False
        self._adapted: Layers = {}
        self._own = ArrayRecord()

    def settings(self) -> Record:
        """What defines the strategy."""
        return {**super().settings(), "mu": self._mu, "source-weights": self._source_weights}

    def name_of(self, node: Node) -> str:
        """All nodes get the source model."""
        return SOURCES

    def restore(self, kept: Mapping[str, Layers]) -> None:
        """Also give the target its own model back, which was in its memory when the run ended."""
        super().restore(kept)
        self._resumed = TARGET in kept

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """Tell the target to adapt, and by which μ."""
        return ConfigRecord({"mu": self._mu} if node.is_target else {})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As ever; after a resume the target's message holds its own model, ``personal``."""
        messages = super().configure_train(server_round, arrays, config, grid)
        for asked in self._asked:
            if asked.node.is_target and self._resumed:
                asked.message.content["personal"] = self._kept[TARGET]
        return messages

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Take the adapted model, and how it was blended."""
        if not node.is_target:
            return
        remedy = "FedDAF's target has to be served by fda_flower.clients.FedDAFTarget"
        self._adapted = read_model_like(reply, "adapted", self.model, remedy)
        self._own = ArrayRecord(dict(reply.array_records["arrays"]))
        metrics = reply.metric_records["metrics"]
        for key in ("sim", "theta", "alpha"):
            record[key] = read_number(reply, key) if key in metrics else None
        if record["alpha"] is None and self._kept:
            record["fallback"] = "it had no model of its own, and began from the sources'"

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """Average the sources into the next source model; the adapted model is the target's."""
        updates = list(sources.values())
        weights = source_weights(updates, self._source_weights)
        before = self.before(self.roster.sources[0])
        self.keep({SOURCES: mean_update(before, updates, weights), TARGET: to_layers(self._own)})
        self._resumed = False
        return self._adapted

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The target evaluates the adapted model, and beside it the source model."""
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        for asked in self._asked:
            if self._kept:
                asked.message.content["global"] = self._kept[SOURCES]
        return messages
