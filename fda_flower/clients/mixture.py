"""Mixture's target: train models on its labels, and mix them with the sources' model."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fda_flower.aggregation import Layers
from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients.client import Settings, TargetClient
from fda_flower.clients.local_mixture import Learner, Positions, TrainedMixture, train_mixture
from fda_flower.clients.personal import blended
from fda_flower.clients.student import (
    MOST_UNLABELLED,
    first_of_student,
    learn,
    linear_head,
    samples_of_student,
    soup,
)
from fda_flower.clients.training import figures, train
from fda_flower.datasets import Samples
from fda_flower.prediction.predictors import Mixed, Single
from fda_flower.wire import protocol
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest

MIXTURE, FIRST_ROUND, REPORT, FIRST = "mixture", "first-round", "report", "first"
GROUPS, STUDENT, TAUGHT, TEACHER = "groups", "student", "taught", "teacher"
"""Names on the wire: settings of an evaluate message (the plan as JSON, the round in which the target's own
model starts, ``full`` or ``none`` of the figures), the record with that model, and a property; a setting that
requests a student, the number of unlabelled samples it learned from, and the accuracy of the mixture."""

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

        Without unlabelled samples it is a soup; see `fda_flower.clients.student.soup`.
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
