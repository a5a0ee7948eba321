"""Attacks: sources that poison what they send, for experiments; no client of the package does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fda_flower.aggregation import Layers, find_buffers
from fda_flower.clients import DomainClient
from fda_flower.clients.numpy_client import NumPyFace
from fda_flower.config import RunConfig
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError, unknown
from fda_flower.protocol import (
    GUIDANCE,
    SERVER_ROUND,
    EvaluateReply,
    EvaluateRequest,
    TrainReply,
    TrainRequest,
)
from fda_flower.seeds import derive_seed

Layer = NDArray[np.float64]
Deltas = dict[str, Layer]
"""An update in float64, by layer."""

Poison = Callable[[Deltas, np.random.Generator], Deltas]
"""What is sent in place of an update."""

Relabel = Callable[[Samples, int], Tensor]
"""What a sample's class becomes, given the samples and the number of classes."""


def scaled(update: Deltas, rng: np.random.Generator, factor: float = -1.0) -> Deltas:
    """Return ``factor · Δ``."""
    return {name: factor * layer for name, layer in update.items()}


def random_of_same_norm(update: Deltas, rng: np.random.Generator) -> Deltas:
    """Return Gaussian noise with the norm of the whole update."""
    noise = {name: rng.standard_normal(layer.shape) for name, layer in update.items()}
    return scaled(noise, rng, norm_of(update) / norm_of(noise))


def norm_of(update: Deltas) -> float:
    """Return the Euclidean norm of all layers."""
    return float(np.sqrt(sum(float(np.square(layer).sum()) for layer in update.values())))


def flipped_labels(samples: Samples, classes: int) -> Tensor:
    """Return class ``C - 1 - y`` for class ``y`` of ``C``."""
    return classes - 1 - samples.y


def brightness_labels(samples: Samples, classes: int) -> Tensor:
    """Return how bright each sample is among the domain's, in as many groups of equal size as classes.

    That is a task of its own, which a network can learn from the same samples.
    """
    x = samples.x[torch.arange(len(samples), device=samples.y.device)].flatten(1).double().mean(dim=1)
    ranks = x.argsort(stable=True).argsort(stable=True)
    return ranks * classes // len(samples)


UPDATES: dict[str, Poison] = {"flip-sign": scaled, "random": random_of_same_norm}
LABELS: dict[str, Relabel] = {"flip-labels": flipped_labels, "other-task": brightness_labels}
"""The attacks by name: on what a source sends, and on what it trains on. ``scale:FACTOR`` is one more."""
SCALE = "scale:"
NAMES = [*UPDATES, f"{SCALE}FACTOR", *LABELS]


@dataclass(frozen=True)
class Attack:
    """An attack of some of a run's sources.

    Attributes
    ----------
    name : str
        ``flip-sign``: the source sends ``-Δ`` in place of its update ``Δ``. ``scale:10``, ``scale:-10``: it
        sends so many times ``Δ``. ``random``: Gaussian noise of the norm of ``Δ``. ``flip-labels``: it trains
        with class ``C - 1 - y`` for ``y``. ``other-task``: it trains on how bright its samples are.
    sources : tuple of str
        The domains of the sources that attack.
    seed : int
        The run's; what is drawn follows from it, the round and the domain.

    Notes
    -----
    The other arrays of a model, such as BatchNorm's running statistics, and all numbers that a source
    reports, stay honest, and so do its gradients at the global model (``estimate_at=start``). FedDWA's
    guidance is poisoned like the update. An attacker also evaluates honestly.
    """

    name: str
    sources: tuple[str, ...]
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """Return what defines the attack, as JSON."""
        return {"attack": self.name, "attackers": list(self.sources)}

    def client(self, client: DomainClient) -> NumPyFace:
        """Return a client as the attack has it: itself if its domain does not attack."""
        if client.domain.name not in self.sources:
            return client
        if self.name not in LABELS:
            return PoisonedSource(client, poison_of(self.name), self.seed)
        train = client.domain.train
        classes = int(client.get_properties({})["classes"])
        poisoned = replace(train, y=LABELS[self.name](train, classes))
        client.domain = replace(client.domain, train=poisoned)
        return client


def read_attack(settings: Mapping[str, Any], config: RunConfig) -> Attack | None:
    """Return the attack of an experiment's cell; None without a name or an attacker.

    Parameters
    ----------
    settings : Mapping
        ``attack``, a name, and ``attackers``, how many sources attack: the first in the order of domains.
    config : RunConfig
        The cell's run.

    Raises
    ------
    ConfigError
        If the name is unknown, there are not so many sources, or the run has no clients or no classes.
    """
    name, count = settings.get("attack"), settings.get("attackers", 0)
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"attack is {name!r}: give one of {', '.join(NAMES)}")
    if type(count) is not int or count < 0:
        raise ConfigError(f"attackers is {count!r}: give the number of sources that attack")
    sources: Sequence[str] = config.data.source_names
    if count > len(sources):
        raise ConfigError(f"attackers is {count}, but there are {len(sources)} sources: give so many at most")
    if name is None or not count:
        return None
    if name not in LABELS:
        poison_of(name)
    elif config.regression:
        raise ConfigError(f"attack is '{name}', but '{config.dataset}' has no classes: choose another one")
    if config.entry.centralised:
        raise ConfigError(
            f"attack is '{name}', but method '{config.method}' has no clients: leave it out, or choose "
            "another method"
        )
    return Attack(name, tuple(sources[:count]), config.seed)


def poison_of(name: str) -> Poison:
    """Return what an attack on updates does; a `ConfigError` if there is none of this name.

    Examples
    --------
    >>> poison_of("scale:10")({"w": np.array([0.5, -1.0])}, np.random.default_rng(0))
    {'w': array([  5., -10.])}
    """
    if name in UPDATES:
        return UPDATES[name]
    if name.startswith(SCALE):
        try:
            factor = float(name.removeprefix(SCALE))
        except ValueError:
            factor = np.nan
        if not np.isfinite(factor):
            raise ConfigError(f"attack is '{name}': give {SCALE}FACTOR with a number, such as {SCALE}-10")
        return partial(scaled, factor=factor)
    raise unknown("attack", name, NAMES)


class PoisonedSource(NumPyFace):
    """A source's client that poisons each update that it sends.

    Parameters
    ----------
    client : DomainClient
        The client that trains and evaluates.
    poison : callable
        What it sends in place of its update.
    seed : int
        Decides what is drawn, with the round and the domain.
    """

    def __init__(self, client: DomainClient, poison: Poison, seed: int = 0) -> None:
        self._client = client
        self._poison = poison
        self._seed = seed
        self.domain, self.role = client.domain, client.role

    def layers(self) -> Layers:
        """Return those of the client."""
        return self._client.layers()

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return those of the client."""
        return self._client.get_properties(config)

    def answer(self, request: TrainRequest) -> TrainReply:
        """Train as a request asks, and poison the models of the reply."""
        reply, before = self._client.answer(request), self._client.received(request)
        seed = derive_seed(self._seed, "attack", request.config.get(SERVER_ROUND, 0), self.domain.name)
        rng = np.random.default_rng(seed)
        arrays, records = self._poisoned(before, reply.arrays, rng), dict(reply.records)
        if GUIDANCE in records:
            records[GUIDANCE] = self._poisoned(before, records[GUIDANCE], rng)
        return replace(reply, arrays=arrays, records=records)

    def answer_evaluation(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the client does."""
        return self._client.answer_evaluation(request)

    def judge(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the client does."""
        return self._client.judge(request)

    def _poisoned(self, before: Layers, after: Layers, rng: np.random.Generator) -> Layers:
        buffers = find_buffers(before)
        exact = {name: layer.astype(np.float64) for name, layer in after.items() if name not in buffers}
        with np.errstate(over="ignore"):
            sent = self._poison({name: layer - before[name] for name, layer in exact.items()}, rng)
            return {
                name: (before[name] + sent[name]).astype(layer.dtype) if name in sent else layer
                for name, layer in after.items()
            }
