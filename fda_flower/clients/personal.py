"""Targets of personal methods: Ditto, APFL, FedDAF, kNN-Per."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fda_flower.aggregation import (
    Layers,
    best_weight,
    blend,
    choose_weight,
    functional_distance,
    gradient_similarity,
)
from fda_flower.clients.client import Settings, TargetClient
from fda_flower.clients.gradients import Loss
from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.training import OPTIMIZERS, mean_gradient, penalised, plain_objective, training_loss
from fda_flower.datasets import Samples
from fda_flower.models.parts import to_train
from fda_flower.prediction.predictors import Mix, Neighbours, Predictor, Single, Weighted
from fda_flower.wire import methods as wire
from fda_flower.wire import protocol
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

OWN_DITTO, OWN_APFL, OWN_FEDDAF = "ditto", "apfl", "feddaf"
"""Names in `OwnState` of the target's own model, with APFL's weight ``a``."""


class DittoTarget(TargetClient):
    """A target with a personal model ``v`` (Li et al., "Ditto", ICML 2021), if the message has ``personal``.

    It trains ``v`` on the round's batches with the penalty ``λ/2 ‖v − θ‖²``, where ``λ`` is the value of
    ``personal`` in the message and ``θ`` the received model. It keeps ``v`` in its own state and never sends
    it. In the first round ``v`` starts from ``θ``.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train both models, and keep the personal one.

        Replies as `train_from` does for the global model, with the evaluation of ``v`` on request,
        ``distance``, ``‖v − θ‖`` before the training, and ``fresh-start``, 1 if there was no ``v``.
        """
        config, model = request.config, self.received(request)
        if wire.PERSONAL not in config:
            return super().local_train(request)
        reply = self.train_from(model, {k: v for k, v in config.items() if k != protocol.EVALUATE_TRAINED})
        self.load(model)
        personally = replace(self.training_in(config), proximal=float(config[wire.PERSONAL]))
        plain = plain_objective(self.domain.train.y, self.training)
        objective = penalised(plain, self.model, personally, "λ")
        server_round = int(config[protocol.SERVER_ROUND])
        metrics, records = {**reply.metrics, **self._take_up(server_round)}, dict(reply.records)
        self.train_on("train", {**config, protocol.PROXIMAL: 0.0}, objective)
        personal = self.layers()
        if config.get(protocol.EVALUATE_TRAINED):
            evaluation = self.score(self.single(personal, config), config)
            metrics |= evaluation.in_train_reply
            records |= evaluation.records
        self.own_state.save_after(OWN_DITTO, personal, {}, server_round)
        return replace(reply, metrics=metrics, records=records)

    def _take_up(self, server_round: int) -> dict[str, float]:
        """Load ``v`` into the model in place of ``θ``; return metrics of the reply."""
        kept = self.own_state.load_before(OWN_DITTO, server_round)
        if kept is None:
            return {protocol.FRESH_START: 1, "distance": 0.0}
        anchor = [p.detach().clone() for p in self.model.parameters()]
        self.load(kept[0])
        pairs = zip(self.model.parameters(), anchor, strict=True)
        squares = ((p.detach().double() - a.double()).square().sum() for p, a in pairs)
        return {protocol.FRESH_START: 0, "distance": math.sqrt(sum(map(float, squares)))}


class APFLTarget(TargetClient):
    """A target with its own model ``v`` in a mixture ``a v + (1 − a) w``, if the message has ``mixing``.

    It trains ``w``, the received model, as in FedAvg, bit for bit, and ``v`` on the same batches
    (`OwnModel`). It keeps ``v`` and ``a`` in its own state and never sends ``v``. In the first round ``v``
    starts as the received model.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train both models, and keep ``v``.

        Replies as `train_from` does for the global model, with ``alpha``, the weight ``a`` after the round,
        and ``fresh-start``, 1 if ``v`` started as the received model.
        """
        config, model = request.config, self.received(request)
        if wire.MIXING not in config:
            return super().local_train(request)
        server_round = int(config[protocol.SERVER_ROUND])
        kept = self.own_state.load_before(OWN_APFL, server_round)
        layers, alpha = (model, config[wire.MIXING]) if kept is None else (kept[0], kept[1]["alpha"])
        self.load(layers)
        training = self.training_in(config)
        loss = training_loss(self.domain.train.y, training)
        own = OwnModel(copy.deepcopy(self.model), training, float(alpha), config, loss)
        reply = self.train_from(model, config, own.objective, own.on_step)
        self.model.load_state_dict(own.model.state_dict())
        self.own_state.save_after(OWN_APFL, self.layers(), {"alpha": own.alpha}, server_round)
        own_metrics = {wire.ALPHA: own.alpha, protocol.FRESH_START: int(kept is None)}
        return replace(reply, metrics={**reply.metrics, **own_metrics})

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate the mixture of ``v`` and the received model on the test set.

        The reply has metrics of the mixture and, with ``-global``, of the received model; without ``v`` the
        two are equal.
        """
        config = request.config
        if wire.MIXING not in config:
            return super().local_evaluate(request)
        passes, alone = self.passes(config), self.single(self.received(request), config)
        reply = self.score(self._mixed(alone, request), config, passes)
        return reply.with_second(self.figures(alone.outputs(passes), self.domain.test))

    def _mixed(self, alone: Single, request: EvaluateRequest) -> Predictor:
        config = request.config
        kept = self.own_state.load_before(OWN_APFL, int(config[protocol.SERVER_ROUND]) + 1)
        if kept is None:
            return alone
        own, alpha = kept[0], kept[1]["alpha"]
        if config[wire.MIX] == "outputs":
            return Weighted(self.adapted(own, config), alone.layers, alpha)
        model = self.received(request)
        buffers = model.keys() - dict(self.model.named_parameters(remove_duplicate=False)).keys()
        return self.single(blend(own, model, alpha, buffers), config)


class OwnModel:
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
        self, model: nn.Module, training: LocalTraining, alpha: float, config: Settings, loss: Loss
    ) -> None:
        self.model = model
        self.alpha = alpha
        self._rate = training.learning_rate
        self._loss = loss
        self._optimizer = OPTIMIZERS[training.optimizer](to_train(model), lr=self._rate)
        self._of_outputs = config[wire.MIX] == "outputs"
        self._adapts = bool(config[wire.ADAPTIVE])
        self._decay = float(config[wire.ALPHA_DECAY])
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


class RandomNumbers:
    """A random stream separate from torch's global ones, which starts in their current state."""

    def __init__(self, device: torch.device) -> None:
        self._gpus = [device] if device.type == "cuda" else []
        self._states = self._now()

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let torch draw from this stream in the block, without advancing its global streams."""
        with torch.random.fork_rng(self._gpus):
            cpu, *others = self._states
            torch.set_rng_state(cpu)
            for gpu, state in zip(self._gpus, others, strict=True):
                torch.cuda.set_rng_state(state, gpu)
            yield
            self._states = self._now()

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]


class FedDAFTarget(TargetClient):
    """A target that adapts the received model (Sen et al., Algorithm 3), if the message has ``mu``.

    It keeps its trained model by round in its own state. Without one, as in the first round, the adapted
    model is the received one.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Adapt the model, train from the adapted one, and keep the trained model.

        Replies as `train_from` does, with the record ``adapted``, and ``fresh-start``: 1 if the target had
        no model of its own, else 0 with ``sim``, ``theta`` (radians) and ``alpha``.
        """
        if wire.MU not in request.config:
            return super().local_train(request)
        config, received = request.config, self.received(request)
        server_round = int(config[protocol.SERVER_ROUND])
        kept = self.own_state.load_before(OWN_FEDDAF, server_round)
        adapted: Layers = received
        told: dict[str, float] = {}
        if kept is not None:
            adapted, told = blended(
                self, received, kept[0], self.domain.train, config, float(config[wire.MU])
            )
        reply = self.train_from(adapted, config)
        self.own_state.save_after(OWN_FEDDAF, reply.arrays, {}, server_round)
        metrics = {**reply.metrics, protocol.FRESH_START: int(kept is None), **told}
        return replace(reply, metrics=metrics, records={**reply.records, wire.ADAPTED: adapted})


def blended(
    client: TargetClient, sources: Layers, own: Layers, samples: Samples, config: Settings, mu: float
) -> tuple[Layers, dict[str, float]]:
    """Return FedDAF's blend of two models, and ``sim``, ``theta`` and ``alpha``.

    Both models' mean gradients use the same batches of samples, noise and dropout.
    """
    gradients = []
    for model in (sources, own):
        client.load(model)
        with client.drawing("gradient", config) as generator:
            gradients.append(mean_gradient(client.model, samples, client.training, generator))
    similarity = gradient_similarity(*gradients)
    theta, alpha = functional_distance(similarity, mu)
    blended = blend(sources, own, alpha, sources.keys() - gradients[0].keys())
    return blended, {"sim": similarity, "theta": theta, "alpha": alpha}


class KNNPerTarget(TargetClient):
    """A target that also uses its nearest training samples, if the evaluate message has ``neighbours``.

    The keys are the features of its training samples, the inputs of the head (Marfoq et al., ICML 2022).
    """

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate the mixture of model and neighbours on the test set.

        If the message's ``lambda`` is a word, ``λ`` is chosen by leave-one-out on the training labels, with
        the received model, which may have been trained on them.

        The reply has metrics of the mixture, ``lambda``, and with ``-global`` metrics of the model alone; for
        ``oracle-test`` also ``accuracy-oracle-lambda`` and ``oracle-lambda``.
        """
        config = request.config
        if wire.NEIGHBOURS not in config:
            return super().local_evaluate(request)
        predictor, passes = self._neighbours(request), self.passes(config)
        reply = self.score(predictor, config, passes)
        metrics: dict[str, float] = {wire.LAMBDA: predictor.weight}
        if config[wire.LAMBDA] == "oracle-test":
            outputs, near = predictor.seen(passes)
            labels = self.domain.test.y.cpu().numpy()
            best = best_weight(outputs.cpu().numpy(), near, labels, predictor.mix)
            metrics |= dict(zip((wire.LAMBDA_ORACLE, wire.ACCURACY_ORACLE), best, strict=True))
        reply = reply.with_second(self.figures(passes.outputs(predictor.layers), self.domain.test))
        return replace(reply, metrics={**reply.metrics, **metrics})

    def _neighbours(self, request: EvaluateRequest) -> Neighbours:
        config, train = request.config, self.domain.train
        layers = self.single(self.received(request), config).layers
        outputs, keys = self.passes(config, "keys", train).outputs_and_features(layers)
        labels, mix, weight = train.y.cpu().numpy(), cast(Mix, config[wire.MIX]), config[wire.LAMBDA]
        k, scale = int(config[wire.NEIGHBOURS]), float(config[wire.KERNEL_SCALE])
        predictor = Neighbours(layers, keys.double().cpu().numpy(), labels, k, scale, 0.0, mix)
        if isinstance(weight, str):
            near = predictor.near(outputs.shape[1])
            weight = choose_weight(outputs.cpu().numpy(), near, labels, mix)
        return replace(predictor, weight=float(weight))
