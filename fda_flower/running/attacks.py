"""Attacks for experiments: sources that poison their replies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, find_buffers
from fda_flower.clients import DomainClient
from fda_flower.datasets import Samples
from fda_flower.errors import invalid, unknown
from fda_flower.files import derive_seed
from fda_flower.runs.config import RunConfig
from fda_flower.wire.asked.columns import ColumnsDescribed, DescribeColumns
from fda_flower.wire.asked.personal import Guided
from fda_flower.wire.numpy_client import NumPyFace
from fda_flower.wire.protocol import (
    LABELLED,
    LEARNING_RATE,
    SERVER_ROUND,
    EvaluateReply,
    EvaluateRequest,
    TrainReply,
    TrainRequest,
)

Layer = NDArray[np.float64]
Deltas = dict[str, Layer]
"""An update in float64, by layer."""


@dataclass(frozen=True)
class Sight:
    """The knowledge of an attacker when it sends its update.

    `update` is ``Δ``, its honest update; `team` a function that returns the honest updates of all attackers;
    `last` is ``θ_t − θ_{t−1}``, the step between the last two models that it received, 0 in its first round;
    `back` is ``θ_0 − θ_t``, the way back to the first of them; `round` counts the server's rounds from 1.
    """

    update: Deltas
    team: Callable[[], list[Deltas]]
    last: Deltas
    back: Deltas
    round: int
    rng: np.random.Generator


Poison = Callable[[Sight], Deltas]
"""Returns the update to send."""

Relabel = Callable[[Samples, int], NDArray[np.int64]]
"""Returns the samples' new classes, from the samples and the number of classes."""

ASLEEP = 8
"""The rounds in which a sleeper copies the global model's steps."""


def times(factor: float, update: Deltas) -> Deltas:
    """Return a multiple of an update."""
    return {name: factor * layer for name, layer in update.items()}


def norm_of(update: Deltas) -> float:
    """Return the Euclidean norm of all layers."""
    return float(np.sqrt(sum(float(np.square(layer).sum()) for layer in update.values())))


def scaled(sight: Sight, factor: float = -1.0) -> Deltas:
    """Return ``factor · Δ``."""
    return times(factor, sight.update)


def random_of_same_norm(sight: Sight) -> Deltas:
    """Return Gaussian noise with the norm of the whole update."""
    noise = {name: sight.rng.standard_normal(layer.shape) for name, layer in sight.update.items()}
    return times(norm_of(sight.update) / norm_of(noise), noise)


def shifted_mean(sight: Sight, factor: float) -> Deltas:
    """Return the team's mean minus ``factor`` standard deviations, by number (ALIE: Baruch et al., 2019)."""
    stacks = {name: np.stack([update[name] for update in sight.team()]) for name in sight.update}
    return {name: stack.mean(axis=0) - factor * stack.std(axis=0) for name, stack in stacks.items()}


def opposed_mean(sight: Sight, factor: float) -> Deltas:
    """Return ``-factor`` times the team's mean: inner-product manipulation (IPM: Xie et al., 2020)."""
    return times(-factor, shifted_mean(sight, 0.0))


def sleeper(sight: Sight) -> Deltas:
    """Return the global model's last step while asleep, then ``-10 Δ``."""
    return sight.last if sight.round <= ASLEEP else scaled(sight, -10.0)


def drift(sight: Sight) -> Deltas:
    """Return a step of the norm of ``Δ`` back to the first model."""
    return times(norm_of(sight.update) / (norm_of(sight.back) or 1.0), sight.back)


def copy_and_drift(sight: Sight) -> Deltas:
    """Return the global model's last step plus the step of `drift`."""
    pull = drift(sight)
    return {name: step + pull[name] for name, step in sight.last.items()}


def honest(sight: Sight, factor: float) -> Deltas:
    """Return ``Δ``: the attack is on the answer."""
    return sight.update


def columns_that_lie(answer: ColumnsDescribed, factor: float) -> ColumnsDescribed:
    """Return an answer whose columns' means and deviations are multiplied."""
    return replace(answer, columns={name: factor * each for name, each in answer.columns.items()})


def flipped_labels(samples: Samples, classes: int) -> NDArray[np.int64]:
    """Return class ``C - 1 - y`` for class ``y`` of ``C``."""
    return classes - 1 - samples.y


def brightness_labels(samples: Samples, classes: int) -> NDArray[np.int64]:
    """Return how bright each sample is among the domain's, in as many groups of equal size as classes.

    A network can learn this other task from the same samples.
    """
    x = samples.x[np.arange(len(samples))].reshape(len(samples), -1).mean(axis=1, dtype=np.float64)
    ranks: NDArray[np.int64] = x.argsort(kind="stable").argsort(kind="stable")
    return ranks * classes // len(samples)


UPDATES: dict[str, Poison] = {
    "flip-sign": scaled,
    "random": random_of_same_norm,
    "sleeper": sleeper,
    "drift": drift,
    "copy-drift": copy_and_drift,
    "rate-lie": partial(scaled, factor=-10.0),
    "examples-lie": scaled,
}
FACTORS: dict[str, Callable[..., Deltas]] = {
    **{"scale": scaled, "ipm": opposed_mean, "alie": shifted_mean, "columns": honest}
}
"""The attacks on what a source sends, by name; the second table's take a factor, ``NAME:FACTOR``."""
LIES: dict[str, dict[str, float]] = {"rate-lie": {LEARNING_RATE: 1e4}, "examples-lie": {LABELLED: 10**9}}
"""Numbers that an attacker reports in place of its own, in its replies and with its role."""
LABELS: dict[str, Relabel] = {"flip-labels": flipped_labels, "other-task": brightness_labels}
"""The attacks on a source's training samples."""
NAMES = [*UPDATES, *(f"{name}:FACTOR" for name in FACTORS), *LABELS]


@dataclass(frozen=True)
class Attack:
    """An attack of some of a run's sources.

    `name` is one of `NAMES`, which ``experiments/README.md`` describes, and `sources` are the domains that
    attack. Random draws follow from the run's `seed`, the round and the domain.

    Notes
    -----
    Attackers know each other's samples, and no other client's: for a ``team`` each trains as the
    others of `sources` would, from the model that it received. A client that keeps something between rounds,
    such as its own head, has not kept it there.

    The other arrays of a model, such as BatchNorm's running statistics, stay honest, and so do the numbers
    that a source reports, except in `LIES`, and its gradients at the global model (``estimate_at=start``).
    FedDWA's guidance is poisoned like the update; ``columns:FACTOR`` poisons only what a source of Ridge says
    about a table's columns. An attacker also evaluates honestly.
    """

    name: str
    sources: tuple[str, ...]
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """Return the definition of the attack, as JSON values."""
        return {"attack": self.name, "attackers": list(self.sources)}

    def client(self, client: DomainClient, other: Callable[[str], DomainClient]) -> NumPyFace:
        """Return the attacking client of an honest one; `other` makes the honest client of a domain."""
        if client.domain.name not in self.sources:
            return client
        if self.name not in LABELS:
            return PoisonedSource(client, self, other)
        train = client.domain.train
        classes = int(client.get_properties({})["classes"])
        poisoned = replace(train, y=LABELS[self.name](train, classes))
        client.domain = replace(client.domain, train=poisoned)
        return client


def read_attack(settings: Mapping[str, Any], config: RunConfig) -> Attack | None:
    """Return the attack of an experiment's cell; None without a name or an attacker.

    The settings are ``attack``, a name, and ``attackers``, the number of sources that attack, the first in
    the order of domains. Raise a `ConfigError` if the name is unknown, there are fewer sources, or the run
    has no clients, no classes, or no models of sources, as the attack needs them.
    """
    name, count = settings.get("attack"), settings.get("attackers")
    if name is not None and not isinstance(name, str):
        raise invalid("attack", name, f"give one of {', '.join(NAMES)}")
    if name is not None and name not in LABELS:
        poison_of(name)
    if name is not None and count is None:
        raise invalid("attackers", None, "give the number of sources that attack", f"with attack '{name}'")
    if count is None:
        return None
    if isinstance(count, str) and count.isdecimal():
        count = int(count)
    if type(count) is not int or count < 0:
        raise invalid("attackers", count, "give the number of sources that attack")
    sources: Sequence[str] = config.data.source_names
    if count > len(sources):
        raise invalid("attackers", count, f"give {len(sources)} at most, the number of sources")
    if name is None or not count:
        return None
    if name in LABELS and config.task != "classes":
        raise invalid("attack", name, "choose another one", f"but '{config.dataset}' has no classes")
    if config.entry.centralised:
        why = f"but method '{config.method}' has no clients"
        raise invalid("attack", name, "leave it out, or choose another method", why)
    if config.entry.train is not None and name not in LABELS:
        why = f"but the sources of method '{config.method}' send no models to poison"
        raise invalid("attack", name, f"choose one of labels: {', '.join(LABELS)}", why)
    return Attack(name, tuple(sources[:count]), config.seed)


def poison_of(name: str) -> "partial[Deltas]":
    """Return the function of an attack on updates; raise a `ConfigError` if the name is unknown."""
    if name in UPDATES:
        return partial(UPDATES[name])
    kind, colon, number = name.partition(":")
    if not colon or kind not in FACTORS:
        raise unknown("attack", name, NAMES)
    try:
        factor = float(number)
    except ValueError:
        factor = np.nan
    if not np.isfinite(factor):
        raise invalid("attack", name, f"give {kind}:FACTOR with a number, such as {kind}:1.5")
    return partial(FACTORS[kind], factor=factor)


class PoisonedSource(NumPyFace):
    """A source's client that poisons its updates; `other` makes the honest clients of other domains."""

    def __init__(self, client: DomainClient, attack: Attack, other: Callable[[str], DomainClient]) -> None:
        self._client = client
        self._attack = attack
        self._other = other
        self._poison = poison_of(attack.name)
        self._lies = LIES.get(attack.name, {})
        self.domain, self.role = client.domain, client.role

    def layers(self) -> Layers:
        """Return the client's parameters."""
        return self._client.layers()

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the client's, with the attack's lies."""
        return self._lied(self._client.get_properties(config))

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train as a request asks, and poison the models of the reply."""
        return self.train_reply(request)

    def train_reply(self, request: TrainRequest) -> TrainReply:
        """Train as a request asks, or answer its question, and poison the models of the reply."""
        client = self._client
        if isinstance(request.question, DescribeColumns):
            return self._described(request)
        before = client.received(request)
        number = int(str(request.config.get(SERVER_ROUND, 0)))
        states = (client.private_state.load_before(name, number) for name in ("attack-first", "attack-last"))
        first, last = (before if state is None else state[0] for state in states)
        rng = np.random.default_rng(derive_seed(self._attack.seed, "attack", number, self.domain.name))
        reply = client.train_reply(request)

        @cache
        def team() -> list[TrainReply]:
            names = self._attack.sources
            return [reply if n == self.domain.name else self._other(n).train_reply(request) for n in names]

        def poisoned(read: Callable[[TrainReply], Layers]) -> Layers:
            after = read(reply)
            names = after.keys() - find_buffers(before)

            def step(start: Layers, end: Layers) -> Deltas:
                return {n: layer.astype(np.float64) - start[n] for n, layer in end.items() if n in names}

            sent = self._poison(
                Sight(
                    update=step(before, after),
                    team=lambda: [step(before, read(each)) for each in team()],
                    last=step(last, before),
                    back=step(before, first),
                    round=number,
                    rng=rng,
                )
            )
            return {
                n: (before[n] + sent[n]).astype(layer.dtype) if n in sent else layer
                for n, layer in after.items()
            }

        answer = reply.answer
        with np.errstate(over="ignore"):
            arrays = poisoned(lambda reply: reply.arrays)
            if isinstance(answer, Guided):
                answer = replace(answer, guidance=poisoned(_guidance))
        client.private_state.save_after("attack-first", first, {}, number)
        client.private_state.save_after("attack-last", before, {}, number)
        examples, metrics = int(self._lies.get(LABELLED, reply.examples)), self._lied(reply.metrics)
        return replace(reply, arrays=arrays, answer=answer, examples=examples, metrics=metrics)

    def _described(self, request: TrainRequest) -> TrainReply:
        """Say what the table's columns are, with the attack's lies."""
        reply = self._client.train_reply(request)
        if isinstance(reply.answer, ColumnsDescribed) and self._attack.name.startswith("columns:"):
            return replace(reply, answer=columns_that_lie(reply.answer, **self._poison.keywords))
        return reply

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the client does."""
        return self._client.local_evaluate(request)

    def evaluate_reply(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the client does."""
        return self._client.evaluate_reply(request)

    def _lied(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._lies.get(name, value) for name, value in metrics.items()}


def _guidance(reply: TrainReply) -> Layers:
    assert isinstance(reply.answer, Guided), "all attackers answer one question"
    return reply.answer.guidance
