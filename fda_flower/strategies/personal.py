"""Methods whose target has its own model: Ditto, APFL, kNN-Per."""

import math
from collections.abc import Iterable
from logging import WARNING
from typing import ClassVar, Literal

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common import log

from fda_flower.errors import ConfigError, invalid
from fda_flower.names import Count, NotNegative, Positive, Share
from fda_flower.strategies.base import DomainAdaptationStrategy, Node, Record, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.hooks import Epochs, Noised
from fda_flower.wire import protocol
from fda_flower.wire.protocol import FRESH_START, EvaluateRequest

PERSONAL, MIXING, MIX, ADAPTIVE, ALPHA_DECAY = "personal", "mixing", "mix", "adaptive", "alpha-decay"
ALPHA = "alpha"
NEIGHBOURS, LAMBDA, KERNEL_SCALE = "neighbours", "lambda", "kernel-scale"
ACCURACY_ORACLE, LAMBDA_ORACLE = "accuracy-oracle-lambda", "oracle-lambda"
"""Names on the wire: settings, and metrics of the replies (``alpha`` and ``lambda`` are both)."""


class OwnModel(DomainAdaptationStrategy):
    """A strategy whose target keeps its own model between rounds and never sends it.

    A subclass measures the metric ``fresh-start`` of the target's reply: 1 if it had no such model, else 0.
    If it had one before, the target's ``fallback`` in the round's record reports the loss.
    """

    of_patients: ClassVar[Noised] = None  # its metrics follow from the data
    starts_from: ClassVar[str] = "the global one"
    """The model from which a target without its own starts."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies; record, also in a held round, if the target has lost its own model."""
        result = super().aggregate_train(server_round, replies)
        entry = self.record["target"] or {}
        if entry.pop(FRESH_START, 0) and any(record["target"] for record in self.history):
            entry["fallback"] = f"it lost its own model, and started from {self.starts_from}"
        return result


class Ditto(OwnModel, FedAvg):
    """``min_v F_T(v) + λ/2 ‖v − θ‖²`` with ``θ`` by FedAvg (Li et al., "Ditto", ICML 2021, Algorithm 1).

    All clients train the global model ``θ``, as in FedAvg. The target, which runs
    `fda_flower.clients.DittoTarget`, also trains its personal model ``v``, which never leaves it. The
    headline is the accuracy of ``v``; ``accuracy-global`` is the accuracy of ``θ``. A round's record has the
    target's ``distance``, ``‖v − θ‖`` before the round's training. If the target has lost ``v``, it restarts
    from ``θ``, and the record has the target's ``fallback``.

    Parameters
    ----------
    lam : float
        ``λ``: 0 trains ``v`` alone; a large value keeps it near ``θ``. The product of λ and the learning rate
        must stay below 2, or the training of ``v`` diverges.
    global_branch : {"fedavg", "none"}
        ``"fedavg"`` is the paper's method. With ``"none"`` all clients train from ``θ`` with the penalty, the
        server averages these models, and the target's is the personal one: FedProx with ``μ = λ``.
    """

    evaluates_trained = True

    lam: NotNegative = 1.0
    global_branch: Literal["fedavg", "none"] = "fedavg"

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the target's personal model; without a global branch, the penalty from all clients."""
        request = super().train_request(node, round)
        if self.global_branch == "none":
            return request.adding(config={protocol.PROXIMAL: self.lam})
        if not node.is_target:
            return request
        return request.adding(
            config={PERSONAL: self.lam},
            requires={"distance": "serve the target with fda_flower.clients.DittoTarget"},
            measures={"distance": "distance", FRESH_START: FRESH_START},
        )

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; with a global branch, the target also trains its personal model."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        total["target"] += rounds * epochs["target"] * (self.global_branch == "fedavg")
        return total


class APFL(OwnModel, FedAvg):
    """``a v + (1 − a) θ`` on the target, with ``θ`` by FedAvg.

    Deng et al., "Adaptive Personalized Federated Learning", 2020. All clients train the global model ``θ``,
    as in FedAvg. The target, which runs `fda_flower.clients.APFLTarget`, also trains its own model ``v``,
    which never leaves it. The headline is the accuracy of the mixture of ``v`` and the new ``θ``;
    ``accuracy-global`` is the accuracy of ``θ``. A round's record has the target's ``alpha``, the weight
    ``a`` after the round. If the target has lost ``v``, it restarts from ``θ``, and the record has the
    target's ``fallback``.

    The sources train only ``θ``: their own models would not change the target's.

    Parameters
    ----------
    mixing : float
        ``a``, the weight of the target's own model, in [0, 1]: 0 is FedAvg, with 1 the target trains ``v``
        alone. With `adaptive`, the initial value.
    mix : {"outputs", "parameters"}
        Mix the outputs of two networks (logits, or a regression's numbers), as in the authors' code, or their
        parameters, as in the paper's Algorithm 1 (unverified: the paper's text was not read).
    adaptive : bool
        Whether the target moves ``a`` against the gradient of the mixture's loss, once a round on the first
        batch, with the model's learning rate; ``a`` stays in [0, 1].
    alpha_decay : float
        With `adaptive`: adds ``alpha_decay · a`` to this gradient, which pulls towards the global model. The
        authors' code uses 0.02.
    """

    evaluates_own = True

    mixing: Share = 0.5
    mix: Literal["outputs", "parameters"] = "outputs"
    adaptive: bool = False
    alpha_decay: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha_decay and not self.adaptive:
            remedy = "leave it out, or set adaptive=true"
            raise invalid("alpha_decay", self.alpha_decay, remedy, "but the mixing weight is fixed")
        self._mixture: Record = {MIXING: self.mixing, MIX: self.mix}

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request training of the target's own model too."""
        request = super().train_request(node, round)
        if not node.is_target:
            return request
        adapting = {ADAPTIVE: self.adaptive, ALPHA_DECAY: self.alpha_decay}
        return request.adding(
            config={**self._mixture, **adapting},
            requires={ALPHA: "serve the target with fda_flower.clients.APFLTarget"},
            measures={ALPHA: "alpha", FRESH_START: FRESH_START},
        )

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the mixture and of the new global model."""
        return EvaluateRequest(round.arrays, {**round.config, **self._mixture})

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; the target trains its own model as long as the global one."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": 2 * total["target"]}


CROSS_VALIDATED = ("cv", "oracle-test")


class KNNPer(FedAvg):
    """``p = λ p_kNN + (1 − λ) p_θ`` on the target, with ``θ`` by FedAvg (Marfoq et al., ICML 2022).

    Training is FedAvg's. The target, which runs `fda_flower.clients.KNNPerTarget`, evaluates a mixture of
    ``θ`` and the labels of its own nearest training samples, by the features of ``θ``
    (`fda_flower.aggregation.neighbour_probabilities`). It keeps and sends none of this. The headline is the
    accuracy of the mixture; ``accuracy-global`` is the accuracy of ``θ``. A round's record has ``lambda``.

    Parameters
    ----------
    k : int
        Number of nearest samples. The authors' scripts use 7 and 10; the paper's default is unverified.
    mixing : str or float
        ``λ``, a number in [0, 1]: 0 is FedAvg. With ``"cv"`` the target chooses it in each evaluation, from
        0, 0.01, ..., 1, by leave-one-out cross-validation on its training labels
        (`fda_flower.aggregation.choose_weight`). The choice is biased towards the model, which was trained on
        these labels. With ``"oracle-test"`` the headline is as with ``"cv"``, and the record also has
        ``accuracy-oracle-lambda``, the accuracy with the ``λ`` that is best on the test set
        (``oracle-lambda``), as in published results. It is not a valid result, because it uses the test
        labels.
    scale : float
        Scale of the kernel, above 0.
    mix : {"probabilities", "logits"}
        Mix the neighbours' probabilities with the model's probabilities or, as in the authors' code, with its
        logits.
    """

    evaluates_own = True

    k: Count = 10
    mixing: str | float = "cv"
    scale: Positive = 1.0
    mix: Literal["probabilities", "logits"] = "probabilities"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mixing = _read_mixing(self.mixing)

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if the target has fewer than k samples, or only one for cross-validation."""
        if role != "target":
            return
        if samples < self.k:
            why = f"{who} has {samples} labelled samples, but kNN-Per looks at k = {self.k} of them"
            remedy = "give more samples, a smaller k (method option k), or another method"
            raise ConfigError(why, thing=who, value=samples, remedy=remedy)
        if samples < 2 and self.mixing in CROSS_VALIDATED:
            why = f"{who} has {samples} labelled sample, but cross-validation needs 2"
            remedy = "give more samples, a number in [0, 1] (method option mixing), or another method"
            raise ConfigError(why, thing=who, value=samples, remedy=remedy)

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if the target reports too few samples."""
        for node in nodes:
            labels = node.info.get("examples")
            if node.is_target and isinstance(labels, int):
                self.check_samples(node.role, f"'{node.domain}'", labels, 1)

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the mixture and of the new global model."""
        asked: Record = {NEIGHBOURS: self.k, LAMBDA: self.mixing, KERNEL_SCALE: self.scale, MIX: self.mix}
        return EvaluateRequest(round.arrays, {**round.config, **asked})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mixture's metrics, and record them."""
        metrics = super().aggregate_evaluate(server_round, replies)
        record = self.round.record
        if metrics is None or self.round.warmup:
            return metrics
        others = record.pop("metrics", {})
        told = (LAMBDA, ACCURACY_ORACLE, LAMBDA_ORACLE)
        record |= {name: others.pop(name) for name in told if name in others}
        if others:
            record["metrics"] = others
        if LAMBDA not in record:
            why = "so it may have evaluated the global model alone: let it run KNNPerTarget"
            log(WARNING, "Round %d: the target reports no lambda, %s", server_round, why)
        return metrics


def _read_mixing(given: str | float) -> str | float:
    if given in CROSS_VALIDATED:
        return given
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise invalid("mixing", given, "give cv, a number in [0, 1], or oracle-test")
    return number
