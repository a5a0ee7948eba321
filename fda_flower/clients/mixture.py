"""Mixture's target: train models on its labels, and mix them with the sources' model."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower.aggregation import Calibration, Layers, Mixture
from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients.client import TargetClient
from fda_flower.clients.mixture_members import (
    Learner,
    Positions,
    TrainedMixture,
    classes_alone,
    train_mixture,
)
from fda_flower.clients.personal import blended
from fda_flower.clients.trainee import Settings
from fda_flower.clients.training import OPTIMIZERS, train
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.metrics import Judge, metric_names
from fda_flower.models.devices import widest_float
from fda_flower.models.parts import head_names, head_of, to_train
from fda_flower.prediction.batches import CPU, batches, device_of
from fda_flower.prediction.predictors import Mixed, Single
from fda_flower.wire import protocol
from fda_flower.wire.asked.mixture import EvaluateMixture, MixtureReport
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest

MIXTURE = "mixture"
"""Name in `PrivateState` of the members."""

BLEND_MU = 5.0
"""``μ`` of the member ``blend``, as in FedDAF's paper."""


def evaluate_mixture(
    client: TargetClient, request: EvaluateRequest, question: EvaluateMixture
) -> EvaluateReply:
    """Train the missing members, weigh them, and evaluate the mixture, or its student, on the test set.

    The target keeps its models in its own state; its reply holds only numbers.
    """
    config, mixing = request.config, Mixing(client, request.config)
    trained = mixing.train(client.received(request), question)
    models = {
        member: [client.adapted(model, config) for model in models] for member, models in trained.used.items()
    }
    mixed = Mixed(trained.mixture, models, trained.prior[trained.views_used])
    student = mixing.student(trained, mixed) if question.student else None
    predictor = mixed if student is None else student
    labels, groups = client.domain.train.y, client.domain.train.groups
    calibration = None
    if not client.domain.mask and client.domain.train.outcomes is None:  # or else not all labels are known
        calibration = Calibration.of(trained.held_out_predictions(labels, groups), labels, groups)
    if question.report == "none":
        client.announce(predictor, config, calibration)
        return EvaluateReply(len(client.domain.test), answer=MixtureReport())
    passes = client.passes(config)
    reply = client.score(predictor, config, passes, calibration)
    metric = question.metric or metric_names(client.domain.train.task)[0]
    report = mixing.report(trained, mixed.views(passes), metric)
    if student is not None:
        taught = min(len(client.domain.unlabelled or ()), MOST_UNLABELLED)
        teacher = client.judge_of(client.domain.test)(mixed.outputs(passes))[metric]
        report = replace(report, taught=taught, teacher=teacher)
    return replace(reply, answer=report)


@dataclass(frozen=True)
class Mixing:
    """The training of a mixture's members by a `client`, with the settings in `config`."""

    client: TargetClient
    config: Settings

    def student(self, trained: TrainedMixture[Layers], mixed: Mixed) -> Single:
        """Return one network that has learned the mixture's predictions for the target's samples.

        Without unlabelled samples it is a soup; see `soup`.
        """
        client, config = self.client, self.config
        known = {name: models for name, models in trained.models.items() if name in trained.mixture.weights}
        first = first_of_student(known or trained.models, trained.mixture, names_of_linear_head(client.model))
        rest = client.domain.unlabelled
        if not rest:
            return client.single(soup(trained.models) or first, config)
        with client.drawing("student", config) as generator:
            samples = samples_of_student(client.domain.train, rest, generator, client.device)
            outputs = torch.from_numpy(mixed.outputs(client.passes(config, "student", samples)))
            taught = outputs.to(widest_float(client.device)).to(client.device)
            client.load(first)
            learn(client.model, samples, taught, client.training_in(config).learning_rate, generator)
            return client.single(client.layers(), config)

    def train(self, sources: Layers, question: EvaluateMixture) -> TrainedMixture[Layers]:
        """Return the trained and weighed members, and keep them."""
        client, now = self.client, int(self.config[protocol.SERVER_ROUND])
        plan = MixturePlan(question.folds, question.epochs, question.members, question.views)
        first, begun = client.exchange.named(question.first), question.first_round
        samples = client.domain.train
        key = _digest(first, samples, client.training_in(self.config), plan.folds, client.seed, begun)
        own, done = self._own_models(key, begun, now)
        trained = train_mixture(
            Learner(
                self._train_on,
                self._predict,
                partial(self._train_on, head=True),
                lambda sources, own, positions: blended(
                    client, sources, own, self._part(positions), {}, BLEND_MU
                )[0],
            ),
            samples.y,
            sources=sources,
            first=first,
            rounds=range(done + 1, now + 1),
            plan=plan,
            seed=client.seed,
            own=own,
            groups=samples.groups,
        )
        self._keep(trained, {"key": key, "round": now})
        return trained

    def _own_models(self, key: str, begun: int, now: int) -> tuple[list[Layers], int]:
        """Return the target's own models by view, as kept, and the last round that trained them."""
        saved = self.client.private_state.load(MIXTURE)
        if saved is None or saved[1]["key"] != key or not begun <= saved[1]["round"] <= now:
            return [], begun - 1
        arrays, notes = saved
        views: list[Layers] = [
            {name: arrays[f"target/{view}/{name}"] for name in self.client.exchange.shared}
            for view in range(notes["models"].get("target", 0))
        ]
        return views, notes["round"] if views else begun - 1

    def _keep(self, trained: TrainedMixture[Layers], notes: Mapping[str, Any]) -> None:
        """Keep everything that a prediction needs."""
        arrays = {
            f"{member}/{view}/{name}": array
            for member, models in trained.models.items()
            for view, model in enumerate(models)
            for name, array in model.items()
        }
        arrays |= {f"prior/{view}": outputs for view, outputs in enumerate(trained.prior)}
        models = {member: len(models) for member, models in trained.models.items()}
        about = {"models": models, "views": trained.views, "mixture": asdict(trained.mixture)}
        self.client.private_state.save(MIXTURE, arrays, {**notes, **about})

    def _train_on(
        self,
        model: Layers,
        positions: Positions,
        epochs: Sequence[int],
        stream: str,
        *,
        head: bool = False,
    ) -> Layers:
        """Train a model; the target's own of all labels uses the random numbers of its train messages."""
        client = self.client
        client.load(model)
        training, samples = client.training_in(self.config), self._part(positions)
        if not stream.startswith("target"):
            training = replace(training, epochs=1)
        phase = "train" if stream == "target-0" else stream
        for epoch in epochs:
            with client.drawing(phase, {protocol.SERVER_ROUND: epoch}) as generator:
                train(client.model, samples, training, generator, part="head" if head else "all")
        return client.layers()

    def _predict(self, model: Layers, positions: Positions) -> NDArray[Any]:
        passes = self.client.passes(self.config, "held-out", self._part(positions))
        return self.client.single(model, self.config).outputs(passes)

    def _part(self, positions: Positions) -> Samples:
        samples = self.client.domain.train
        if len(positions) == len(samples):
            return samples
        return samples.take(positions)

    def report(
        self, trained: TrainedMixture[Layers], outputs: Mapping[str, Sequence[NDArray[Any]]], metric: str
    ) -> MixtureReport:
        """Return the numbers of each member and the folds, given the members' outputs for the test set."""
        mixture, domain = trained.mixture, self.client.domain
        known = domain.train.y, domain.train.groups
        alone = trained.held_out_without_sources(*known)
        held_out, test = self.client.judge_of(domain.train), self.client.judge_of(domain.test)

        def of_members(judge: Judge, views: Mapping[str, NDArray[Any]]) -> dict[str, float]:
            scaled = {name: each / mixture.temperatures.get(name, 1.0) for name, each in views.items()}
            scores = {name: judge(each).get(metric, math.nan) for name, each in scaled.items()}
            return {name: value for name, value in scores.items() if math.isfinite(value)}

        def of_mixture(predicted: NDArray[Any]) -> float | None:
            return held_out(predicted if mixture.regression else _logarithms(predicted)).get(metric)

        return MixtureReport(
            weights=mixture.weights,
            temperatures=mixture.temperatures,
            held_out=of_members(held_out, {n: z for n, z in trained.held_out.items() if n in outputs}),
            test=of_members(test, {name: views[0] for name, views in outputs.items()}),
            left_out=mixture.left_out,
            folds=tuple(np.bincount(trained.folds).tolist()),
            alone=None if mixture.regression else len(classes_alone(*known)),
            held_out_mixture=of_mixture(trained.held_out_predictions(*known)),
            held_out_target=None if alone is None else of_mixture(alone),
        )


def _logarithms(probabilities: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).tiny)))


def _digest(first: Layers, samples: Samples, *others: object) -> str:
    """Return a digest of everything that determines the target's own models."""
    digest = hashlib.sha256(repr((samples.noise, others)).encode())
    groups = [] if samples.groups is None else [samples.groups]
    for array in [*first.values(), *groups]:
        digest.update(array.tobytes())
    for batch in batches(replace(samples, noise=0.0), 256, torch.Generator()):
        for tensor in batch:
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


# The student: one network that learns the mixture

MOST_UNLABELLED = 3_000
"""Largest number of unlabelled samples that a student learns from."""

LEAST_STEPS, LEAST_PASSES = 500, 10
"""Smallest number of steps of a student, and passes over its samples."""

BATCH = 32


def samples_of_student(
    labelled: Samples, unlabelled: Samples, generator: torch.Generator, device: torch.device = CPU
) -> Samples:
    """Return a student's samples: all labelled ones, and at most 3,000 unlabelled ones.

    Noise that is added on access is drawn once, so that mixture and student see the same samples.
    """
    if len(unlabelled) > MOST_UNLABELLED:
        chosen = torch.randperm(len(unlabelled), generator=generator)[:MOST_UNLABELLED].sort().values
        unlabelled = unlabelled.take(chosen.numpy())
    samples = labelled.without_labels().joined(unlabelled)
    if samples.noise:
        drawn = [x.cpu().numpy() for x, _ in batches(samples, 256, generator, device=device)]
        samples = replace(samples, x=np.concatenate(drawn), noise=0.0)
    return samples


def learn(
    model: nn.Module, samples: Samples, taught: Tensor, learning_rate: float, generator: torch.Generator
) -> int:
    """Train a model in place on a mixture's predictions, and return the number of steps.

    Adam's rate in step ``k`` of ``n`` is `learning_rate` times ``(1 + cos(πk/n))/2``. `taught` are the
    logarithms of the mixture's probabilities for each sample, or its numbers, shape ``(n, C)``; the samples'
    labels are ignored. The `generator` determines their order in each pass.
    """
    positions, device = replace(samples, y=np.arange(len(samples))), device_of(model)
    parts = math.ceil(len(samples) / BATCH)
    passes = max(LEAST_PASSES, math.ceil(LEAST_STEPS / parts))
    regression = samples.task == "regression"
    aims = taught if regression else taught.exp()
    loss_of = mse_loss if regression else cross_entropy
    optimizer = OPTIMIZERS["adam"](to_train(model, "all"), lr=learning_rate)
    steps, step = passes * parts, 0
    for _ in range(passes):
        for x, rows in batches(positions, BATCH, generator, shuffle=True, device=device):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(model(x), aims[rows].to(x.dtype)))
            optimizer.step()
            step += 1
    return steps


def first_of_student(
    models: Mapping[str, Sequence[Layers]], mixture: Mixture, head: Collection[str]
) -> Layers:
    """Return a student's initial model: the model of all labels of the member with the largest weight.

    If the `head` is one linear layer, its arrays are divided by the member's temperature, like its outputs in
    the mixture; learning this scale would take many steps.
    """
    member = max(models, key=lambda name: mixture.weights.get(name, 0.0))
    first, temperature = models[member][0], mixture.temperatures.get(member, 1.0)
    softer = {name: (first[name] / temperature).astype(first[name].dtype) for name in head}
    return {**first, **softer}


def names_of_linear_head(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the head's arrays if it is one linear layer, else none."""
    try:
        return head_names(model) if isinstance(head_of(model), nn.Linear) else ()
    except ConfigError:
        return ()


def soup(models: Mapping[str, Sequence[Layers]]) -> Layers | None:
    """Return the mean over views of the models of the member that was fine-tuned longest.

    They share an initial model, so their mean is a model, too. None without such a member.

    Examples
    --------
    >>> views = [{"w": np.zeros(2, np.float32)}, {"w": np.ones(2, np.float32)}]
    >>> soup({"tuned-1": views[:1], "tuned-30": views})
    {'w': array([0.5, 0.5], dtype=float32)}
    """
    tuned = [name for name in models if name.startswith("tuned-")]
    if not tuned:
        return None
    views = models[max(tuned, key=lambda name: int(name.removeprefix("tuned-")))]
    return {
        name: np.mean([view[name] for view in views], axis=0, dtype=np.float64).astype(array.dtype)
        for name, array in views[0].items()
    }
