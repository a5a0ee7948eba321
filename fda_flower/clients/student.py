"""Distil a mixture into one network on the target's samples."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower.aggregation import Layers, Mixture
from fda_flower.clients.training import OPTIMIZERS
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.models.parts import head_names, head_of, to_train

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
