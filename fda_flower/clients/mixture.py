"""Mixture's target: train models on its labels, and mix them with the sources' model."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower.aggregation import Layers, Mixture
from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients.client import Settings, TargetClient
from fda_flower.clients.mixture_members import Learner, Positions, TrainedMixture, train_mixture
from fda_flower.clients.personal import blended
from fda_flower.clients.training import OPTIMIZERS, figures, train
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.models.parts import head_names, head_of, to_train
from fda_flower.prediction.predictors import Mixed, Single
from fda_flower.wire import protocol
from fda_flower.wire.methods import FIRST, FIRST_ROUND, GROUPS, MIXTURE, REPORT, STUDENT, TAUGHT, TEACHER
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest

BLEND_MU = 5.0
"""``μ`` of the member ``blend``, as in FedDAF's paper."""


class MixtureTarget(TargetClient):
    """A target that evaluates a mixture if the evaluate message has ``mixture``.

    The message holds the sources' model, the initial model of the target's own (``first``), and the plan. The
    target keeps its models in its own state; its reply holds only numbers.
    """

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return every target's properties, and the number of groups of labelled samples."""
        properties, groups = super().get_properties(config), self.domain.train.groups
        return properties if groups is None else {**properties, GROUPS: len(torch.unique(groups))}

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Train the missing members, weigh them, and evaluate the mixture on the test set.

        The reply has metrics of the mixture; for each member ``weight.M``, ``temperature.M`` and its
        accuracies ``held-out.M`` and ``test.M``; ``fold.K``, the size of each fold; ``alone``, the number of
        classes with a single label. If ``report`` is ``none`` it has only the number of test samples.
        With ``student`` one network is evaluated instead (see `_student`), and the reply also has
        ``taught``, the number of unlabelled samples it learned from, and the mixture's accuracy, ``teacher``.
        """
        config = request.config
        if MIXTURE not in config:
            return super().local_evaluate(request)
        trained = self._train(request)
        models = {
            member: [self.adapted(model, config) for model in models]
            for member, models in trained.used.items()
        }
        mixed = Mixed(trained.mixture, models, trained.prior[trained.views_used])
        student = self._student(trained, mixed, config) if config.get(STUDENT) else None
        predictor = mixed if student is None else student
        if config.get(REPORT) == "none":
            self.announce(predictor, config)
            return EvaluateReply(len(self.domain.test))
        passes = self.passes(config)
        reply = self.score(predictor, config, passes)
        numbers = self._numbers(trained, mixed.views(passes))
        if student is not None:
            rest, test = self.domain.unlabelled, self.domain.test.y
            numbers[TAUGHT] = min(len(rest or ()), MOST_UNLABELLED)
            numbers[TEACHER] = _accuracy(mixed.outputs(passes).cpu().numpy(), test)
        return replace(reply, metrics={**reply.metrics, **numbers})

    def _student(self, trained: TrainedMixture[Layers], mixed: Mixed, config: Settings) -> Single:
        """Return one network that has learned the mixture's predictions for the target's samples.

        Without unlabelled samples it is a soup; see `soup`.
        """
        known = {name: models for name, models in trained.models.items() if name in trained.mixture.weights}
        first = first_of_student(known or trained.models, trained.mixture, linear_head(self.model))
        rest = self.domain.unlabelled
        if not rest:
            return self.single(soup(trained.models) or first, config)
        with self.drawing("student", config) as generator:
            samples = samples_of_student(self.domain.train, rest, generator)
            taught = mixed.outputs(self.passes(config, "student", samples))
            self.load(first)
            learn(self.model, samples, taught, self.training_in(config).learning_rate, generator)
            return self.single(self.layers(), config)

    def _train(self, request: EvaluateRequest) -> TrainedMixture[Layers]:
        config = request.config
        plan = MixturePlan.from_text(config[MIXTURE])
        first = self.named(request.records[FIRST])  # type: ignore[arg-type]
        begun, now = (int(config[name]) for name in (FIRST_ROUND, protocol.SERVER_ROUND))
        samples = self.domain.train
        key = _digest(first, samples, self.training_in(config), plan.folds, self.seed, begun)
        own, done = self._own_models(key, begun, now)
        trained = train_mixture(
            Learner(
                partial(self._train_on, config),
                partial(self._predict, config),
                partial(self._train_on, config, head=True),
                lambda sources, own, positions: blended(
                    self, sources, own, self._part(positions), {}, BLEND_MU
                )[0],
            ),
            samples.y.cpu().numpy(),
            sources=self.received(request),
            first=first,
            rounds=range(done + 1, now + 1),
            plan=plan,
            seed=self.seed,
            own=own,
            groups=None if samples.groups is None else samples.groups.cpu().numpy(),
        )
        self._keep(trained, {"key": key, "round": now})
        return trained

    def _own_models(self, key: str, begun: int, now: int) -> tuple[list[Layers], int]:
        """Return the target's own models by view, as kept, and the last round that trained them."""
        found = self.own_state.load(MIXTURE)
        if found is None or found[1]["key"] != key or not begun <= found[1]["round"] <= now:
            return [], begun - 1
        arrays, notes = found
        views: list[Layers] = [
            {name: arrays[f"target/{view}/{name}"] for name in self.exchange.shared}
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
        self.own_state.save(MIXTURE, arrays, {**notes, **about})

    def _train_on(
        self,
        config: Settings,
        model: Layers,
        positions: Positions,
        epochs: Sequence[int],
        stream: str,
        *,
        head: bool = False,
    ) -> Layers:
        """Train a model; the target's own of all labels uses the random numbers of its train messages."""
        self.load(model)
        training, samples = self.training_in(config), self._part(positions)
        if not stream.startswith("target"):
            training = replace(training, epochs=1)
        phase = "train" if stream == "target-0" else stream
        for epoch in epochs:
            with self.drawing(phase, {protocol.SERVER_ROUND: epoch}) as generator:
                train(self.model, samples, training, generator, part="head" if head else "all")
        return self.layers()

    def _predict(self, config: Settings, model: Layers, positions: Positions) -> NDArray[Any]:
        passes = self.passes(config, "held-out", self._part(positions))
        return self.single(model, config).outputs(passes).cpu().numpy()

    def _part(self, positions: Positions) -> Samples:
        samples = self.domain.train
        if len(positions) == len(samples):
            return samples
        return samples.take(torch.from_numpy(positions).to(samples.y.device))

    def _numbers(
        self, trained: TrainedMixture[Layers], outputs: Mapping[str, Sequence[NDArray[Any]]]
    ) -> dict[str, float]:
        """Return the record's entries for each member and the folds."""
        mixture, test, labels = trained.mixture, self.domain.test.y, self.domain.train.y
        numbers: dict[str, float] = {f"weight.{name}": weight for name, weight in mixture.weights.items()}
        numbers |= {f"temperature.{name}": value for name, value in mixture.temperatures.items()}
        numbers |= {
            f"held-out.{n}": _accuracy(z, labels) for n, z in trained.held_out.items() if n in outputs
        }
        numbers |= {f"test.{name}": _accuracy(views[0], test) for name, views in outputs.items()}
        numbers |= {f"left-out.{name}": 1 for name in mixture.left_out}
        numbers |= {f"fold.{k}": int(n) for k, n in enumerate(np.bincount(trained.folds), 1)}
        if not mixture.regression:
            numbers["alone"] = int((torch.bincount(labels) == 1).sum())
        return numbers


def _accuracy(outputs: NDArray[Any], y: Tensor) -> float:
    measured = figures(torch.from_numpy(outputs).to(y.device), y)
    return measured["r2" if y.is_floating_point() else "accuracy"]


def _digest(first: Layers, samples: Samples, *others: object) -> str:
    """Return a digest of everything that determines the target's own models."""
    digest = hashlib.sha256(repr((samples.noise, others)).encode())
    groups = [] if samples.groups is None else [samples.groups.cpu().numpy()]
    for array in [*first.values(), *groups]:
        digest.update(array.tobytes())
    for batch in replace(samples, noise=0.0).batches(256, torch.Generator()):
        for tensor in batch:
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


# The student: one network that learns the mixture

MOST_UNLABELLED = 3_000
"""Largest number of unlabelled samples that a student learns from."""

LEAST_STEPS, LEAST_PASSES = 500, 10
"""Smallest number of steps of a student, and passes over its samples."""

BATCH = 32


def samples_of_student(labelled: Samples, unlabelled: Samples, generator: torch.Generator) -> Samples:
    """Return a student's samples: all labelled ones, and at most 3,000 unlabelled ones.

    Noise that is added on access is drawn once, so that mixture and student see the same samples.
    """
    if len(unlabelled) > MOST_UNLABELLED:
        chosen = torch.randperm(len(unlabelled), generator=generator)[:MOST_UNLABELLED].sort().values
        unlabelled = unlabelled.take(chosen.to(unlabelled.y.device))
    samples = labelled.without_labels().joined(unlabelled)
    if samples.noise:
        drawn = [x for x, _ in samples.batches(256, generator)]
        samples = replace(samples, x=torch.cat(drawn), noise=0.0)
    return samples


def learn(
    model: nn.Module, samples: Samples, taught: Tensor, learning_rate: float, generator: torch.Generator
) -> int:
    """Train a model in place on a mixture's predictions, and return the number of steps.

    Adam's rate in step ``k`` of ``n`` is `learning_rate` times ``(1 + cos(πk/n))/2``. `taught` are the
    logarithms of the mixture's probabilities for each sample, or its numbers, shape ``(n, C)``; the samples'
    labels are ignored. The `generator` determines their order in each pass.
    """
    positions = replace(samples, y=torch.arange(len(samples), device=samples.y.device))
    batches = math.ceil(len(samples) / BATCH)
    passes = max(LEAST_PASSES, math.ceil(LEAST_STEPS / batches))
    regression = samples.y.is_floating_point()
    aims = taught if regression else taught.exp()
    loss_of = mse_loss if regression else cross_entropy
    optimizer = OPTIMIZERS["adam"](to_train(model, "all"), lr=learning_rate)
    steps, step = passes * batches, 0
    for _ in range(passes):
        for x, rows in positions.batches(BATCH, generator, shuffle=True):
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


def linear_head(model: nn.Module) -> tuple[str, ...]:
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
