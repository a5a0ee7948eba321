"""FedDAF: blend the sources' model with the target's own, on the target, by their functional distance."""

import math
from typing import Annotated, ClassVar

from fda_flower.aggregation import SourceWeights, source_weights
from fda_flower.errors import invalid
from fda_flower.names import Bounds
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Round, Sources, TrainRequest
from fda_flower.strategies.personal import OwnModel
from fda_flower.wire import protocol
from fda_flower.wire.protocol import EvaluateRequest, to_layers

ADAPTED, MU = "adapted", "mu"
"""Names on the wire: the record with the model that the target started from, and a setting."""

SOURCES = "sources"


class FedDAF(OwnModel):
    """``w_n = α w^S_{n−1} + (1−α) w^T_{n−1}`` on the target (Sen et al., Algorithm 1 and equation 2).

    The sources train the global source model ``w^S``; the target's model never enters it. The target blends
    ``w^S`` with its own model ``w^T`` of the previous round, which it keeps. The blend ``w_n`` is the adapted
    model and the run's model, and it is evaluated. From ``w_n`` the target trains the next ``w^T``. It runs
    `fda_flower.clients.FedDAFTarget`.

    A round's record has the target's ``sim``, ``theta`` and ``alpha``, and ``accuracy-global`` of ``w^S``.

    Parameters
    ----------
    mu : float
        ``μ`` of the Gompertz function (Algorithm 3); the paper uses 5.
    source_weights : {"examples", "uniform"}
        Weights of the sources' mean; equation 3 is uniform.

    Raises
    ------
    ConfigError
        If `max_update_norm` is given: the server cannot limit a model that the target blends and keeps.
    """

    averages_sources = True
    starts_from: ClassVar[str] = "the sources'"

    mu: Annotated[float, Bounds("a finite number; the paper's is 5", math.isfinite)] = 5.0
    source_weights: SourceWeights = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_update_norm is not None:
            remedy = "leave it out, or choose another method"
            why = "but FedDAF's target blends and keeps its own model, which the server cannot limit"
            raise invalid("max_update_norm", self.max_update_norm, remedy, why)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send the source model to all nodes; require the target to blend and to report how."""
        request = TrainRequest(self.state.get(SOURCES, round.arrays), round.config)
        if not node.is_target:
            return request
        remedy = "serve the target with fda_flower.clients.FedDAFTarget"
        return request.adding(
            config={MU: self.mu},
            expects={ADAPTED: "model"},
            requires={ADAPTED: remedy},
            measures={name: name for name in ("sim", "theta", "alpha", protocol.FRESH_START)},
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the sources into the next source model; the run's model is the adapted one."""
        assert target is not None, "the base class holds the round without the target"
        entry = round.record["target"]
        for key in ("sim", "theta", "alpha"):
            entry.setdefault(key, None)
        updates = list(sources.values())
        weights = source_weights(updates, self.source_weights)
        before = to_layers(self.state[SOURCES]) if SOURCES in self.state else round.model
        model = self.mean_of_sources(before, updates, weights)
        return Aggregated(target.extra[ADAPTED], {SOURCES: model})

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the adapted model and, in addition, of the source model."""
        second = {protocol.GLOBAL: self.state.get(SOURCES, round.arrays)}
        return EvaluateRequest(round.arrays, round.config, second)
