"""FedDWA: a personal model for every client, a mean of all by how near they are to its guidance."""

from collections.abc import Mapping
from typing import Literal, Unpack

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fda_flower.aggregation import (
    Layers,
    Update,
    distance_weights,
    guidance_distances,
    mean_update,
    personal_model,
)
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.node import Node
from fda_flower.strategies.personal import EvaluatesTrained, KeepsModels, read_model_like


class FedDWA(EvaluatesTrained, KeepsModels):
    """``u_i = Σ_j p_ij w_j``, ``p_ij ∝ 1/‖g_i − w_j‖²`` (Liu et al., IJCAI 2023).

    Every client trains its personal model ``u_i`` to ``w_i``, and that by as much again to the guidance
    ``g_i``, which it sends too. The run's model is the target's ``u_T``. Buffers stay each client's own: the
    server gives back those that the client sent, so that a checkpoint is complete.

    A round's record has ``weight``, what each client counts in the target's new model (``p_Tj``).

    Parameters
    ----------
    top : int
        ``K``: how many clients a personal model is made of, the client itself among them.
    evaluate : {"aggregated", "trained"}
        The headline: ``u_T`` as the server makes it, or ``w_T``, which the target has trained.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If `top` is below 1, or `evaluate` is another word.
    """

    def __init__(
        self,
        *,
        top: int = 5,
        evaluate: Literal["aggregated", "trained"] = "aggregated",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(**common)
        if top < 1:
            raise ConfigError(f"top is {top}, it must be at least 1")
        if evaluate not in ("aggregated", "trained"):
            raise ConfigError(f"evaluate is '{evaluate}': choose aggregated or trained")
        self._top = top
        self.evaluates_trained = evaluate == "trained"
        self._guidances: dict[str, Layers] = {}

    def settings(self) -> Record:
        """What defines the strategy."""
        headline = "trained" if self.evaluates_trained else "aggregated"
        return {**super().settings(), "top": self._top, "evaluate": headline}

    def name_of(self, node: Node) -> str:
        """Each source has a model of its own; the target's is the global one."""
        return "" if node.is_target else node.domain

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """Ask every client for its guidance, once the method has begun."""
        asked = super().extra_config(server_round, node)
        if not self.record["warmup"]:
            asked["guidance"] = True
        return asked

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Take the guidance."""
        super().read_extra(reply, node, update, record)
        if not self.record["warmup"]:
            before = self.before(node)
            remedy = "FedDWA's clients train one pass more where the train message's config has 'guidance'"
            parameters = {name: before[name] for name in update.parameters}
            self._guidances[node.domain] = read_model_like(reply, "guidance", parameters, remedy)

    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """Make each client's next personal model; return the target's."""
        assert target is not None, "the base class holds the model without the target"
        nodes = [node for node in self.roster.sources if node.domain in sources]
        updates = [*sources.values(), target]
        before = [*(self.before(node) for node in nodes), model]
        trained = [mean_update(b, [u], np.ones(1)) for b, u in zip(before, updates, strict=True)]
        local = [{name: after[name] for name in target.parameters} for after in trained]
        names = [*sources, self.roster.target.domain if self.roster.target else ""]
        guidances = [self._guidances.pop(name) for name in names]
        weights = distance_weights(*guidance_distances(guidances, local), self._top)
        personal = [{**own, **personal_model(local, p)} for own, p in zip(trained, weights, strict=True)]
        record["target"]["weight"] = float(weights[-1, -1])
        for domain, weight in zip(sources, weights[-1].tolist(), strict=False):
            record["sources"][domain]["weight"] = weight
        self.keep(dict(zip(sources, personal, strict=False)))
        return personal[-1]
