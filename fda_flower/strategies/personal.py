"""Methods whose target has its own model: Ditto, APFL, FedDAF, FedDWA, kNN-Per."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    Geometry,
    Layers,
    distance_weights,
    guidance_distances,
    mean_update,
    nearness_weights,
    personal_model,
    source_weights,
)
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.options import Bounds, Count, NotNegative, Positive, Share, as_written
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.method import Epochs, entries
from fda_flower.strategies.replies import ClientUpdate
from fda_flower.wire import protocol
from fda_flower.wire.asked.personal import (
    Blend,
    Blended,
    EvaluateMix,
    EvaluateNeighbours,
    EvaluatePersonal,
    FineTune,
    Guide,
    NeighboursUsed,
    Personalise,
    Personalised,
    TrainedToMix,
    TrainToMix,
)
from fda_flower.wire.protocol import GROUPS, EvaluateRequest, TrainRequest, to_layers
from fda_flower.wire.questions import Answer, Question

SOURCES = "sources"
"""FedDAF's state: the model of the sources."""


class OwnModel(DomainAdaptationStrategy):
    """A strategy whose target keeps its own model between rounds and never sends it.

    The answer to a subclass's question is an `OwnModelTrained`: a target that has lost its model has the
    entry ``fallback`` in the round's record.
    """

    starts_from: ClassVar[str] = "the global one"
    """The model from which a target without its own starts."""

    def answered(self, domain: str, answer: Any) -> Record:
        """Record whether the target has lost its own model."""
        if answer.fresh_start and any(record["target"] for record in self.history):
            return {"fallback": f"it lost its own model, and started from {self.starts_from}"}
        return {}


class Ditto(OwnModel, FedAvg):
    """``min_v F_T(v) + λ/2 ‖v − θ‖²`` with ``θ`` by FedAvg (Li et al., "Ditto", ICML 2021, Algorithm 1).

    All clients train the global model ``θ``, as in FedAvg. The target also trains its personal model ``v``,
    which never leaves it. The
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

    questions = (FineTune, Personalise, EvaluatePersonal)

    lam: NotNegative = 1.0
    global_branch: Literal["fedavg", "none"] = "fedavg"

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the target's personal model; without a global branch, the penalty from all clients."""
        request = super().train_request(node, round)
        question: Question = Personalise(penalty=self.lam)
        if self.global_branch == "none":
            request, question = request.adding(config={protocol.PROXIMAL: self.lam}), FineTune()
        return replace(request, question=question) if node.is_target else request

    def answered(self, domain: str, answer: Answer) -> Record:
        """Record the distance of the personal model from the global one, if both are trained."""
        if not isinstance(answer, Personalised):
            return {}
        return {"distance": answer.distance, **super().answered(domain, answer)}

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the personal model."""
        return EvaluateRequest(round.arrays, round.config, question=EvaluatePersonal())

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; with a global branch, the target also trains its personal model."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        total["target"] += rounds * epochs["target"] * (self.global_branch == "fedavg")
        return total


class APFL(OwnModel, FedAvg):
    """``a v + (1 − a) θ`` on the target, with ``θ`` by FedAvg.

    Deng et al., "Adaptive Personalized Federated Learning", 2020. All clients train the global model ``θ``,
    as in FedAvg. The target also trains its own model ``v``, which never leaves it. The headline is the
    accuracy of the mixture of ``v`` and the new ``θ``; ``accuracy-global`` is the accuracy of ``θ``. A
    round's record has the target's ``alpha``, the weight ``a`` after the round. If the target has lost ``v``,
    it restarts from ``θ``, and the record has the target's ``fallback``.

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

    questions = (TrainToMix, EvaluateMix)

    mixing: Share = 0.5
    mix: Literal["outputs", "parameters"] = "outputs"
    adaptive: bool = False
    alpha_decay: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha_decay and not self.adaptive:
            remedy = "leave it out, or set adaptive=true"
            raise invalid("alpha_decay", self.alpha_decay, remedy, "but the mixing weight is fixed")

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request training of the target's own model too."""
        request = super().train_request(node, round)
        question = TrainToMix(
            mixing=self.mixing, mix=self.mix, adaptive=self.adaptive, alpha_decay=self.alpha_decay
        )
        return replace(request, question=question) if node.is_target else request

    def answered(self, domain: str, answer: TrainedToMix) -> Record:
        """Record the weight of the target's own model."""
        return {"alpha": answer.alpha, **super().answered(domain, answer)}

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the mixture."""
        return EvaluateRequest(round.arrays, round.config, question=EvaluateMix(mix=self.mix))

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; the target trains its own model as long as the global one."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": 2 * total["target"]}


class FedDAF(OwnModel):
    """``w_n = α w^S_{n−1} + (1−α) w^T_{n−1}`` on the target (Sen et al., Algorithm 1 and equation 2).

    The sources train the global source model ``w^S``; the target's model never enters it. The target blends
    ``w^S`` with its own model ``w^T`` of the previous round, which it keeps. The blend ``w_n`` is the adapted
    model and the run's model, and it is evaluated. From ``w_n`` the target trains the next ``w^T``.

    A round's record has the target's ``sim``, ``theta`` and ``alpha``, and ``accuracy-global`` of ``w^S``.

    The defaults are the paper's. The authors' code differs in all options but `mu`; the sources' weights then
    depend on the target's model, which leaves the target in either case.

    Parameters
    ----------
    mu : float
        ``μ`` of the Gompertz function (Algorithm 3); the paper uses 5.
    source_weights : {"examples", "uniform", "nearness"}
        Weights of the sources' mean: equation 3 is uniform, the authors' code has
        `fda_flower.aggregation.nearness_weights`.
    statistics : {"blended", "own"}
        BatchNorm's running statistics of ``w_n``: blended like the parameters, or the target's own.
    gradients : {"alike", "apart"}
        Take the gradients of both models in training mode on the same draw of noise and dropout, or the
        target's own model's in evaluation mode, with a draw of its own.
    penalty : float
        ``λ``: the target's loss also has ``λ/2 ‖w − w^S‖²``; the authors' code has 0.001.
    evaluate : {"blended", "trained"}
        The run's model, which is evaluated: ``w_n``, or ``w^T`` trained from it.

    Raises
    ------
    ConfigError
        If `max_update_norm` is given: the server cannot limit a model that the target blends and keeps.
    """

    questions = (Blend,)
    averages_sources = True
    starts_from: ClassVar[str] = "the sources'"
    variants: ClassVar = {
        "reference-code": {
            "source_weights": "nearness",
            "statistics": "own",
            "gradients": "apart",
            "penalty": 0.001,
            "evaluate": "trained",
        },
        "paper": {},
    }

    mu: Annotated[float, Bounds("a finite number; the paper's is 5", math.isfinite)] = 5.0
    source_weights: Literal["examples", "uniform", "nearness"] = "uniform"
    statistics: Literal["blended", "own"] = "blended"
    gradients: Literal["alike", "apart"] = "alike"
    penalty: NotNegative = 0.0
    evaluate: Literal["blended", "trained"] = "blended"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_update_norm is not None:
            remedy = "leave it out, or choose another method"
            why = "but FedDAF's target blends and keeps its own model, which the server cannot limit"
            raise invalid("max_update_norm", self.max_update_norm, remedy, why)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send the source model to all nodes; require the target to blend and to report how."""
        request = TrainRequest(self.state.get(SOURCES, round.arrays), round.config)
        question = Blend(
            mu=self.mu, gradients=self.gradients, statistics=self.statistics, penalty=self.penalty
        )
        return replace(request, question=question) if node.is_target else request

    def answered(self, domain: str, answer: Blended) -> Record:
        """Record what the blend follows from."""
        blend = {"sim": answer.sim, "theta": answer.theta, "alpha": answer.alpha}
        return {**blend, **super().answered(domain, answer)}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the sources into the next source model; the run's model is the target's, see `evaluate`."""
        assert target is not None, "the base class holds the round without the target"
        updates = list(sources.values())
        if self.source_weights == "nearness":
            weights = nearness_weights(Geometry.of(target, updates))
        else:
            weights = source_weights(updates, self.source_weights)
        before = to_layers(self.state[SOURCES]) if SOURCES in self.state else round.model
        model = self.mean_of_sources(before, updates, weights)
        trained = self.evaluate == "trained"
        own = mean_update(before, [target], np.ones(1)) if trained else target.answer.adapted
        return Aggregated(own, {SOURCES: model})

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Request an evaluation of the source model."""
        return {"global": self.global_request(round, self.state.get(SOURCES, round.arrays))}


class FedDWA(DomainAdaptationStrategy):
    """``u_i = Σ_j p_ij w_j``, ``p_ij ∝ 1/‖g_i − w_j‖²`` (Liu et al., IJCAI 2023).

    Every client trains its personal model ``u_i`` to ``w_i``, then trains as long again from there to the
    guidance ``g_i``, and sends both. The run's model is the target's ``u_T``. Each client keeps its own
    buffers: the server returns the buffers that the client sent, so a checkpoint is complete. If an update is
    clipped, its guidance moves towards ``u_i`` by the same factor.

    A round's record has ``weight``, the weight of each client in the target's new model (``p_Tj``).

    Parameters
    ----------
    top : int
        ``K``: the number of clients in a personal model, including the client itself.
    evaluate : {"aggregated", "trained"}
        The headline: ``u_T`` as aggregated by the server, or ``w_T`` as trained by the target.
    """

    questions = (Guide, EvaluatePersonal)
    refused_buffers: ClassVar = {
        "target": "the run's model is the target's own, with its own running statistics"
    }

    top: Count = 5
    evaluate: Literal["aggregated", "trained"] = "aggregated"

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options: the target evaluates ``w_T`` if that is the headline."""
        return self.questions if self.evaluate == "trained" else (Guide,)

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send each node its own model, and request its guidance."""
        question = Guide(keep=node.is_target and self.evaluates_own)
        return replace(super().train_request(node, round), arrays=self._sent(node, round), question=question)

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of ``u_T`` or ``w_T``."""
        question = EvaluatePersonal() if self.evaluates_own else None
        return EvaluateRequest(round.arrays, round.config, question=question)

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: the guidance takes as many as each local training."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {role: total[role] + rounds * each for role, each in epochs.items()}

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Compute each client's next personal model; the run's model is the target's."""
        assert target is not None, "the base class holds the round without the target"
        nodes = [node for node in round.sources if node.domain in sources]
        before = [*(to_layers(self._sent(node, round)) for node in nodes), round.model]
        updates = [*sources.values(), target]
        trained = [mean_update(b, [u], np.ones(1)) for b, u in zip(before, updates, strict=True)]
        local = [{name: after[name] for name in target.parameters} for after in trained]
        guidances = [_guidance(b, u) for b, u in zip(before, updates, strict=True)]
        weights = distance_weights(*guidance_distances(guidances, local), self.top)
        personal = [{**own, **personal_model(local, p)} for own, p in zip(trained, weights, strict=True)]
        weight = entries("weight", updates, weights[-1].tolist())
        return Aggregated(personal[-1], dict(zip(sources, personal, strict=False)), clients=weight)

    def _sent(self, node: Node, round: Round) -> ArrayRecord:
        """Return the model that a node trains from: a source's own, or the global one for the target."""
        return round.arrays if node.is_target else self.state.get(node.domain, round.arrays)


def _guidance(before: Layers, update: ClientUpdate) -> dict[str, NDArray[Any]]:
    """Return ``g_i``, scaled like the update: ``u_i + factor (g_i − u_i)``."""
    guidance = dict(update.answer.guidance)
    if update.factor == 1:
        return guidance
    return {
        name: (before[name] + update.factor * (array - before[name])).astype(array.dtype)
        for name, array in guidance.items()
    }


CROSS_VALIDATED = "cv"


class KNNPer(FedAvg):
    """``p = λ p_kNN + (1 − λ) p_θ`` on the target, with ``θ`` by FedAvg (Marfoq et al., ICML 2022).

    Training is FedAvg's. The target evaluates a mixture of ``θ`` and the labels of its own nearest training
    samples, by the features of ``θ``
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
        these labels.
    scale : float
        Scale of the kernel, above 0.
    """

    questions = (EvaluateNeighbours,)

    k: Count = 10
    mixing: str | float = "cv"
    scale: Positive = 1.0
    mix: Literal["probabilities"] = field(default="probabilities", init=False)

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
        if samples < 2 and self.mixing == CROSS_VALIDATED:
            why = f"{who} has {samples} labelled sample, but cross-validation needs 2"
            remedy = "give more samples, a number in [0, 1] (method option mixing), or another method"
            raise ConfigError(why, thing=who, value=samples, remedy=remedy)

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if the target reports too few samples."""
        for node in nodes:
            labels = node.info.get("examples")
            if node.is_target and isinstance(labels, int):
                self.check_samples(node.role, f"'{node.domain}'", labels, 1)
            if node.is_target and node.info.get(GROUPS) == 1 and self.mixing == CROSS_VALIDATED:
                why = f"'{node.domain}' has labels of 1 patient, but cross-validation needs 2"
                remedy = "give more patients, a number in [0, 1] (method option mixing), or another method"
                raise ConfigError(why, thing="groups", value=1, remedy=remedy)

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of the mixture."""
        fixed = None if isinstance(self.mixing, str) else self.mixing
        question = EvaluateNeighbours(k=self.k, scale=self.scale, weight=fixed)
        return EvaluateRequest(round.arrays, round.config, question=question)

    def evaluated(self, answer: NeighboursUsed) -> Record:
        """Record the weight of the neighbours."""
        return {} if answer.weight is None else {"lambda": answer.weight}


def _read_mixing(given: str | float) -> str | float:
    if given == CROSS_VALIDATED:
        return CROSS_VALIDATED
    try:
        number = float(as_written(given))
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1:
        raise invalid("mixing", given, "give cv, or a number in [0, 1]")
    return number
