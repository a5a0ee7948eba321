"""KD3A: the target distils the sources' models on its unlabelled samples; only bodies are averaged."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord

from fda_flower.aggregation import Layers, domain_weights, gate_of, mean_update, smoothed_weights
from fda_flower.names.options import Bounds, Natural, NotNegative
from fda_flower.names.words import listed
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.method import Epochs
from fda_flower.strategies.replies import BadReplyError, ClientUpdate
from fda_flower.wire.arrays import copied
from fda_flower.wire.asked.kd3a import Distil, Distilled
from fda_flower.wire.protocol import TrainRequest, to_layers

WEIGHTS = "weights"
"""The strategy's state: the weights of the round before."""


class KD3A(DomainAdaptationStrategy):
    """``φ ← Σ_k w_k φ_k`` for the body; every client has its own head (Feng et al., ICML 2021).

    A round has two requests. First the sources train from the common body and their own heads. Then the
    target receives all their models (`fda_flower.wire.asked.kd3a.Distil`). They vote on its training
    samples, whose labels it ignores; it trains the common body and its head on the votes that pass the gate
    ``g``, and replies with its model, the share of confident samples, and each source's contribution. These
    determine the weights of the bodies (`fda_flower.aggregation.domain_weights`), including BatchNorm's
    running statistics. The run's model is the common body with the target's head; the server keeps the
    sources' heads. The formulas follow the authors' code.

    A round's record has the target's ``mask-share``, the sources' ``contribution``, and everybody's
    ``weight``. A source without a usable reply neither votes nor is averaged; the others share its weight.

    Parameters
    ----------
    gate_start, gate_end : float
        ``g = g0 + (g1 − g0) · r/R`` in round ``r = 0, 1, ...`` of ``R``, not counting warm-up rounds. The
        authors use 0.8 and 0.95 for DomainNet, 0.9 and 0.95 for Digit-Five and Office-Caltech10. With a gate
        of 1 or more no vote passes.
    gate_rounds : int
        ``R``. Default: 0, the rounds of the run. Set it if you may extend the run later: a resumed run equals
        an uninterrupted one only with the same ``R``.
    mixup : bool
        Whether the target trains on mixed pairs of images, ``u ~ Beta(2, 2)``.
    teacher_bn : {"batch", "eval"}
        Whether BatchNorm of the voting models uses the statistics of the target's batches, as in the authors'
        code, or its running statistics.
    momentum : float
        Share of the previous round's weights in those of a round.
    """

    questions = (Distil,)
    trains = frozenset({"source"})
    asks_again = True
    refused_buffers: ClassVar = {"target": "the new statistics are the weighted mean of all clients'"}

    gate_start: NotNegative = 0.8
    gate_end: NotNegative = 0.95
    gate_rounds: Natural = 0
    mixup: bool = True
    teacher_bn: Literal["batch", "eval"] = "batch"
    momentum: Annotated[float, Bounds("at least 0 and below 1", lambda number: 0 <= number < 1)] = 0.9

    @property
    def needs_num_rounds(self) -> bool:
        """Whether a round depends on the number of rounds, as the gate does by default."""
        return not self.gate_rounds or super().needs_num_rounds

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; the target's cover all its training samples, without labels."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": rounds * epochs["target"]}

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send each source the common body with its own head; the target trains later."""
        return replace(super().train_request(node, round), arrays=self._sent(node.domain, round))

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Let the target distil the sources' models, and average the bodies."""
        alone = np.ones(1)
        models: dict[str, Layers] = {
            domain: mean_update(to_layers(self._sent(domain, round)), [update], alone)
            for domain, update in sources.items()
        }
        question = self._question(models, round)
        target = round.ask_target(TrainRequest(round.arrays, round.config, question=question))
        answer: Distilled = target.answer
        if unknown := [name for name in answer.head if name not in round.model]:
            raise BadReplyError(f"the target says that '{unknown[0]}' is in its head, but the model has none")
        weights, next_weights = self._weights(target.domain, answer, list(sources))
        body = mean_update(round.model, [target, *sources.values()], np.array(list(weights.values())))
        own = mean_update(round.model, [target], alone)
        heads = {
            _key(domain): {name: model[name] for name in answer.head} for domain, model in models.items()
        }
        clients = {
            domain: {"contribution": answer.contribution[domain], "weight": weights[domain]}
            for domain in sources
        }
        clients[target.domain] = {"mask-share": answer.mask_share, "weight": weights[target.domain]}
        return Aggregated(
            {name: own[name] if name in answer.head else array for name, array in body.items()},
            {**heads, WEIGHTS: {domain: np.array(weight) for domain, weight in next_weights.items()}},
            clients=clients,
        )

    def _question(self, models: Mapping[str, Layers], round: Round) -> Distil:
        rounds = self.gate_rounds or self.num_rounds - self.warmup_rounds
        gate = gate_of(round.number - self.warmup_rounds - 1, rounds, self.gate_start, self.gate_end)
        return Distil(gate=gate, mixup=self.mixup, teacher_bn=self.teacher_bn, models=models)

    def _weights(
        self, target: str, answer: Distilled, domains: list[str]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the weights of target and sources by domain, and the weights to keep."""
        if answer.contribution.keys() != set(domains):
            raise BadReplyError(f"the target tells contributions of {listed(sorted(answer.contribution))}")
        contributions = [answer.contribution[domain] for domain in domains]
        new = domain_weights(answer.mask_share, np.array(contributions))
        known = to_layers(self.state.get(WEIGHTS, ArrayRecord()))
        before = {domain: float(weight) for domain, weight in known.items()}
        now = dict(zip((target, *domains), new.tolist(), strict=True))
        return smoothed_weights(before, now, self.momentum)

    def _sent(self, domain: str, round: Round) -> ArrayRecord:
        """Return the model that a source trains from: the common body with its own head, if it has one."""
        if _key(domain) not in self.state:
            return round.arrays
        sent = copied(round.arrays)
        sent.update(copied(self.state[_key(domain)]))
        return sent


def _key(domain: str) -> str:
    """Return the name of a source's head in the strategy's state."""
    return f"head/{domain}"
