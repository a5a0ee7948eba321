"""How clients answer personal methods: FedAvg FT, Ditto, APFL, FedDAF, FedDWA, kNN-Per."""

import copy
import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fda_flower.aggregation import (
    Layers,
    blend,
    choose_weight,
    functional_distance,
    gradient_similarity,
)
from fda_flower.clients.client import DomainClient, TargetClient
from fda_flower.clients.gradients import Loss
from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.trainee import Settings
from fda_flower.clients.training import OPTIMIZERS, mean_gradient, penalised, plain_objective, training_loss
from fda_flower.datasets import Samples
from fda_flower.errors import RunError
from fda_flower.models.devices import RandomNumbers
from fda_flower.models.parts import to_train
from fda_flower.prediction.predictors import Neighbours, Predictor, Weighted
from fda_flower.wire import protocol
from fda_flower.wire.asked.personal import (
    Blend,
    Blended,
    EvaluateMix,
    EvaluateNeighbours,
    EvaluatePersonal,
    FineTune,
    Guide,
    Guided,
    NeighboursUsed,
    Personalise,
    Personalised,
    TrainedToMix,
    TrainToMix,
)
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

PERSONAL, OWN_APFL, OWN_FEDDAF = "personal", "apfl", "feddaf"
"""Names in `PrivateState`: the model that the target keeps for `evaluate_personal`, APFL's own one with its
weight ``a``, and FedDAF's."""


def fine_tune(client: TargetClient, request: TrainRequest, question: FineTune) -> TrainReply:
    """Train the model received, and keep the result."""
    config = request.config if question.part == "all" else {**request.config, protocol.TUNE: question.part}
    reply = client.train_from(client.received(request), config)
    client.private_state.save_after(PERSONAL, reply.arrays, {}, int(config[protocol.SERVER_ROUND]))
    return reply


def evaluate_personal(
    client: TargetClient, request: EvaluateRequest, question: EvaluatePersonal
) -> EvaluateReply:
    """Evaluate the model that the target keeps; raise a `RunError` if it has lost it."""
    state = client.private_state.load_before(PERSONAL, int(request.config[protocol.SERVER_ROUND]) + 1)
    if state is None:
        raise RunError(f"'{client.domain.name}' has no model of its own", thing=client.domain.name)
    layers = {name: state[0][name] for name in client.received(request)}
    return client.score(client.single(layers, request.config), request.config)


def personalise(client: TargetClient, request: TrainRequest, question: Personalise) -> TrainReply:
    """Train the model received, and Ditto's personal model ``v`` on the same batches (Li et al., ICML 2021).

    ``v`` is trained with the penalty ``λ/2 ‖v − θ‖²``, where ``θ`` is the received model. The target keeps it
    in its own state and never sends it. In the first round ``v`` starts from ``θ``.
    """
    config, model = request.config, client.received(request)
    reply = client.train_from(model, config)
    client.load(model)
    personally = replace(client.training_in(config), proximal=question.penalty)
    plain = plain_objective(client.domain.train, client.training)
    objective = penalised(plain, client.model, personally, "λ")
    server_round = int(config[protocol.SERVER_ROUND])
    answer = _take_up(client, server_round)
    client.train_on("train", {**config, protocol.PROXIMAL: 0.0}, objective)
    client.private_state.save_after(PERSONAL, client.layers(), {}, server_round)
    return replace(reply, answer=answer)


def _take_up(client: TargetClient, server_round: int) -> Personalised:
    """Load ``v`` into the client's model in place of ``θ``; return where it begins."""
    state = client.private_state.load_before(PERSONAL, server_round)
    if state is None:
        return Personalised(fresh_start=True, distance=0.0)
    anchor = [p.detach().clone() for p in client.model.parameters()]
    client.load(state[0])
    pairs = zip(client.model.parameters(), anchor, strict=True)
    differences = (p.detach().cpu().double() - a.cpu().double() for p, a in pairs)
    squares = (difference.square().sum() for difference in differences)
    return Personalised(fresh_start=False, distance=math.sqrt(sum(map(float, squares))))


def train_to_mix(client: TargetClient, request: TrainRequest, question: TrainToMix) -> TrainReply:
    """Train the model received, ``w``, and APFL's own model ``v``, for the mixture ``a v + (1 − a) w``.

    ``w`` is trained as in FedAvg, bit for bit, and ``v`` on the same batches (`JointTraining`). The target
    keeps ``v`` and ``a`` in its own state and never sends ``v``. In the first round ``v`` starts as ``w``.
    """
    config, model = request.config, client.received(request)
    server_round = int(config[protocol.SERVER_ROUND])
    state = client.private_state.load_before(OWN_APFL, server_round)
    layers, alpha = (model, question.mixing) if state is None else (state[0], state[1]["alpha"])
    client.load(layers)
    training = client.training_in(config)
    loss = training_loss(client.domain.train, training)
    joint = JointTraining(copy.deepcopy(client.model), training, float(alpha), question, loss)
    reply = client.train_from(model, config, joint.objective, joint.on_step)
    client.model.load_state_dict(joint.model.state_dict())
    client.private_state.save_after(OWN_APFL, client.layers(), {"alpha": joint.alpha}, server_round)
    return replace(reply, answer=TrainedToMix(alpha=joint.alpha, fresh_start=state is None))


def evaluate_mix(client: TargetClient, request: EvaluateRequest, question: EvaluateMix) -> EvaluateReply:
    """Evaluate APFL's mixture on the test set; without ``v`` it is the received model."""
    config, model = request.config, client.received(request)
    state = client.private_state.load_before(OWN_APFL, int(config[protocol.SERVER_ROUND]) + 1)
    if state is None:
        return client.score(client.single(model, config), config)
    own, alpha = state[0], state[1]["alpha"]
    if question.mix == "outputs":
        mixture: Predictor = Weighted(client.adapted(own, config), client.adapted(model, config), alpha)
    else:
        buffers = model.keys() - dict(client.model.named_parameters(remove_duplicate=False)).keys()
        mixture = client.single(blend(own, model, alpha, buffers), config)
    return client.score(mixture, config)


class JointTraining:
    """Training of the model ``v`` together with ``w`` in `training.train`; ``alpha`` is the current ``a``.

    After each step of ``w``, if ``mix`` is ``"outputs"``: ``v ← v − η ∇_v F(a z_v + (1 − a) z_w)``, where
    ``z_w`` are the outputs of ``w`` after its step, as constants. If it is ``"parameters"``, before the step:
    ``v ← v − η a ∇F(a v + (1 − a) w)``. With ``adaptive`` the first batch moves ``a`` by
    ``−η (∂F/∂a + alpha-decay · a)``, within [0, 1].

    ``v`` has its own BatchNorm statistics and random numbers: ``w`` equals FedAvg's model bit for bit, and
    with ``a = 1`` ``v`` equals a model trained alone. For ``z_w``, ``w`` is in training mode, with the
    dropout of ``v``, and its statistics are unchanged. The statistics of mixed parameters belong to ``v``.
    """

    def __init__(
        self, model: nn.Module, training: LocalTraining, alpha: float, question: TrainToMix, loss: Loss
    ) -> None:
        self.model = model
        self.alpha = alpha
        self._rate = training.learning_rate
        self._loss = loss
        self._optimizer = OPTIMIZERS[training.optimizer](to_train(model), lr=self._rate)
        self._of_outputs = question.mix == "outputs"
        self._adapts = question.adaptive
        self._decay = question.alpha_decay
        self._random: RandomNumbers | None = None

    def objective(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the plain loss of ``w``; called before each of its steps."""
        self._random = self._random or RandomNumbers(x.device)
        self._batch = model, x, y
        if not self._of_outputs:
            self._step(model, x, y)
        return self._loss(model(x), y)

    def on_step(self) -> None:
        """Train ``v``; called after each step of ``w``."""
        if self._of_outputs:
            self._step(*self._batch)

    def _step(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        assert self._random is not None, "the objective comes first"
        alpha = torch.tensor(self.alpha, device=x.device, requires_grad=self._adapts)
        with self._random.drawn():
            outputs = (self._mixed_outputs if self._of_outputs else self._of_mixed)(model, x, alpha)
            self._optimizer.zero_grad()
            torch.autograd.backward(self._loss(outputs, y))
            self._optimizer.step()
        if alpha.grad is not None:
            slope = float(alpha.grad) + self._decay * self.alpha
            self.alpha = min(max(self.alpha - self._rate * slope, 0.0), 1.0)
            self._adapts = False

    def _mixed_outputs(self, model: nn.Module, x: Tensor, alpha: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad(), RandomNumbers(x.device).drawn():
            shared: Tensor = functional_call(model, buffers, (x,))
        own: Tensor = self.model(x)
        return alpha * own + (1 - alpha) * shared

    def _of_mixed(self, model: nn.Module, x: Tensor, alpha: Tensor) -> Tensor:
        shared = dict(model.named_parameters())
        mixed = {
            name: alpha * p + (1 - alpha) * shared[name].detach()
            for name, p in self.model.named_parameters()
            if p.requires_grad
        }
        outputs: Tensor = functional_call(self.model, mixed, (x,))
        return outputs


def blend_models(client: TargetClient, request: TrainRequest, question: Blend) -> TrainReply:
    """Adapt the received model, train from the adapted one, and keep the result (Sen et al., Algorithm 3).

    Without a model of the target's own, as in the first round, the adapted model is the received one.
    """
    config, received = request.config, client.received(request)
    server_round = int(config[protocol.SERVER_ROUND])
    state = client.private_state.load_before(OWN_FEDDAF, server_round)
    adapted: Layers = received
    numbers: dict[str, float] = {}
    if state is not None:
        own, train, apart = state[0], client.domain.train, question.gradients == "apart"
        adapted, numbers = blended(client, received, own, train, config, question.mu, apart)
        if question.statistics == "own":
            parameters = client.exchange.parameters(client.model)
            adapted = {name: layer if name in parameters else own[name] for name, layer in adapted.items()}
    client.load(received)
    drawn = replace(client.training_in(config), proximal=question.penalty)
    objective = penalised(plain_objective(client.domain.train, drawn), client.model, drawn, "λ")
    reply = client.train_from(adapted, config, objective)
    client.private_state.save_after(OWN_FEDDAF, reply.arrays, {}, server_round)
    return replace(reply, answer=Blended(adapted=adapted, fresh_start=state is None, **numbers))


def blended(
    client: TargetClient,
    sources: Layers,
    own: Layers,
    samples: Samples,
    config: Settings,
    mu: float,
    apart: bool = False,
) -> tuple[Layers, dict[str, float]]:
    """Return FedDAF's blend of two models, and ``sim``, ``theta`` and ``alpha``.

    Both models' mean gradients use the same batches of samples, noise and dropout. If they are taken `apart`,
    the target's own model is in evaluation mode, with a draw of its own.
    """
    gradients = []
    for model, evaluation in ((sources, False), (own, apart)):
        client.load(model)
        with client.drawing("gradient-own" if evaluation else "gradient", config) as generator:
            gradients.append(mean_gradient(client.model, samples, client.training, generator, evaluation))
    similarity = gradient_similarity(*gradients)
    theta, alpha = functional_distance(similarity, mu)
    blended = blend(sources, own, alpha, sources.keys() - gradients[0].keys())
    return blended, {"sim": similarity, "theta": theta, "alpha": alpha}


def guide(client: DomainClient, request: TrainRequest, question: Guide) -> TrainReply:
    """Train as a plain request asks, then as long again for FedDWA's guidance (Liu et al., IJCAI 2023)."""
    reply = client.train_from(client.received(request), request.config)
    client.train_on("guidance", request.config)
    parameters = client.exchange.parameters(client.model).items()
    guidance = {name: p.detach().cpu().numpy().copy() for name, p in parameters}
    if question.keep:
        client.private_state.save_after(
            PERSONAL, reply.arrays, {}, int(request.config[protocol.SERVER_ROUND])
        )
    return replace(reply, answer=Guided(guidance=guidance))


def evaluate_neighbours(
    client: TargetClient, request: EvaluateRequest, question: EvaluateNeighbours
) -> EvaluateReply:
    """Evaluate the mixture of model and nearest training samples (Marfoq et al., ICML 2022) on the test set.

    The keys are the features of the training samples, the inputs of the head. If no ``λ`` is given, it is
    chosen by leaving out each patient's training samples, or else each sample, from the neighbours, with the
    received model, which may have been trained on them.
    """
    config, train = request.config, client.domain.train
    layers = client.single(client.received(request), config).layers
    outputs, keys = client.passes(config, "keys", train).outputs_and_features(layers)
    labels, k = train.y, question.k
    predictor = Neighbours(layers, keys.astype(np.float64), labels, k, question.scale, 0.0)
    weight = question.weight
    if weight is None:
        groups = train.groups
        near = predictor.near(outputs.shape[1], groups=groups)
        weight = choose_weight(outputs, near, labels, groups)
    reply = client.score(replace(predictor, weight=float(weight)), config)
    return replace(reply, answer=NeighboursUsed(weight=float(weight)))
