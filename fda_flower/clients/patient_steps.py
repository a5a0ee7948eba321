"""DP-SGD on a linear head: steps whose noise protects each patient of a site."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.training import OPTIMIZERS
from fda_flower.datasets import Samples
from fda_flower.errors import invalid
from fda_flower.models.parts import features_of, frozen_names, has_body, head_of
from fda_flower.prediction.batches import batches, device_of
from fda_flower.site.accountant import Steps
from fda_flower.site.noise import PatientPrivacy, Randomness, gaussian

PASS = 256
"""Samples whose features are made at once."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """How the steps of a round draw patients: `rate` is ``q``, the probability of each patient in each step.

    A round has as many steps as pass the `patients` once, by `LocalTraining.epochs`.
    """

    rate: float
    steps: int
    patients: int

    @classmethod
    def of(cls, patients: int, training: LocalTraining) -> "Draw":
        """Return the draw of a training; a site smaller than a batch has all patients in every step.

        Examples
        --------
        >>> Draw.of(10, LocalTraining(0.001, 4)), Draw.of(3, LocalTraining(0.001, 4)).rate
        (Draw(rate=0.4, steps=3, patients=10), 1.0)
        """
        return cls(
            min(training.batch_size / patients, 1.0),
            training.epochs * -(-patients // training.batch_size),
            patients,
        )


def clipped_sum(
    features: Tensor, residuals: Tensor, shares: Tensor, clip: float, bias: bool = True
) -> Tensor:
    """Return ``Σ_i s_i min(1, C/‖g_i‖) g_i`` of the gradients ``g_i = r_i ⊗ (φ_i, 1)`` of a linear layer.

    The norm of an outer product is the product of the norms, ``‖r_i‖ √(‖φ_i‖² + 1)``, so that no gradient of
    a single sample is made (Goodfellow, "Efficient per-example gradient computations", 2015).

    `features` are ``φ``, float64 of shape ``(n, d)``, `residuals` ``r``, the gradient of each sample's loss
    by its outputs, ``(n, K)``, and `shares` ``s``, ``(n,)``. The result has shape ``(K, d + 1)``, the bias
    last; without one ``(K, d)``.
    """
    rows = torch.cat([features, features.new_ones(len(features), 1)], dim=1) if bias else features
    norms = residuals.norm(dim=1) * rows.norm(dim=1)
    factors = shares * clip / norms.clamp_min(clip)
    summed: Tensor = (factors[:, None] * residuals).T @ rows
    return summed


def residuals_of(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the gradient by its outputs of each sample's loss: cross entropy, or the mean squared error."""
    if y.is_floating_point():
        return 2 * (outputs - y) / y.shape[1]
    residuals = outputs.softmax(dim=1)
    residuals[torch.arange(len(y), device=y.device), y] -= 1
    return residuals


def _finite(values: Tensor) -> Tensor:
    """Return numbers with 0 for any that is not finite, which would show through all noise."""
    return torch.where(values.isfinite(), values, 0.0)


def only_linear(model: nn.Module) -> nn.Linear:
    """Return the one linear layer that a network trains; a `ConfigError` if it trains anything else."""
    head = head_of(model)
    # A subclass may normalise its inputs.
    if (
        type(head) is not nn.Linear
        or has_body(model, trained=True)
        or set(head.parameters()) & _frozen(model)
    ):
        why = "but its noise is on the gradients of one linear layer, and the network trains something else"
        raise invalid("dp-unit", "patient", "choose --train head, or the model logistic", why)
    return head


def _frozen(model: nn.Module) -> set[nn.Parameter]:
    parameters, names = dict(model.named_parameters(remove_duplicate=False)), frozen_names(model)
    return {parameters[name] for name in names if name in parameters}


def train_patients(
    model: nn.Module,
    samples: Samples,
    training: LocalTraining,
    generator: torch.Generator,
    privacy: PatientPrivacy,
    on_step: Callable[[], None] | None = None,
) -> Steps:
    """Train a network's linear head in place by DP-SGD (Abadi et al., CCS 2016), and return the steps.

    Each step draws every patient by itself with the probability ``q``, adds up the gradients of those drawn,
    each clipped to ``C``, adds noise of the deviation ``z C`` to each number, and divides by the expected
    number of patients; the optimizer does the rest. A patient with k rows has each clipped, and weighted by
    1/k, so that it changes the sum by at most ``C``, too.

    Steps are computed on the CPU, in float64, whatever the network's device.

    The batch size of `training` is how many patients a step draws on average. The `generator` decides the
    noise of the samples, but neither the noise of the steps nor who is drawn.

    Raises
    ------
    ConfigError
        If the network trains more than one linear layer, classes are weighted by their number, or the noise
        cannot be chosen.
    """
    head = only_linear(model)
    if training.class_weights != "none":
        why = "but with dp-unit patient: they follow from the labels of all patients"
        raise invalid("class-weights", training.class_weights, "leave it out", why)
    features, y = _features(model.eval(), samples, generator)
    owner, shares = _patients(samples)
    draw = Draw.of(int(owner.max()) + 1, training)
    noise, random = privacy.noise_for(draw.rate, draw.steps), privacy.randomness()
    optimizer = OPTIMIZERS[training.optimizer](head.parameters(), lr=training.learning_rate)
    anchor = [p.detach().clone() for p in head.parameters()]
    for _ in range(draw.steps):
        drawn = torch.from_numpy(np.flatnonzero((_uniform(draw.patients, random) < draw.rate)[owner]))
        batch = _finite(features[drawn].double())
        with torch.no_grad():
            residuals = _finite(residuals_of(_outputs(head, batch), y[drawn]))
        total = clipped_sum(batch, residuals, shares[drawn], privacy.clip, head.bias is not None)
        added = torch.from_numpy(noise * privacy.clip * gaussian(total.numel(), random)).view(total.shape)
        mean = (total + added) / (draw.rate * draw.patients)
        for parameter, gradient, point in zip(head.parameters(), _parts(mean, head), anchor, strict=True):
            parameter.grad = gradient.to(parameter) + training.proximal * (parameter.detach() - point)
        optimizer.step()
        if on_step is not None:
            on_step()
    return noise, draw.rate, draw.steps


def _outputs(head: nn.Linear, features: Tensor) -> Tensor:
    outputs = features @ head.weight.cpu().double().T
    return outputs if head.bias is None else outputs + head.bias.cpu().double()


def _parts(gradient: Tensor, head: nn.Linear) -> list[Tensor]:
    """Split a gradient into the gradients of the layer's parameters, in their order."""
    return [gradient] if head.bias is None else [gradient[:, :-1].contiguous(), gradient[:, -1].contiguous()]


def _features(model: nn.Module, samples: Samples, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), features_of(model) as features:
        parts = batches(samples, PASS, generator, device=device_of(model))
        labels = [y for x, y in parts if model(x) is not None]
    return torch.cat(features).cpu(), torch.cat(labels).cpu()


def _patients(samples: Samples) -> tuple[NDArray[np.intp], Tensor]:
    """Return the number of each sample's patient, from 0, and its share of the patient's samples, float64."""
    if samples.groups is None:
        return np.arange(len(samples)), torch.ones(len(samples), dtype=torch.float64)
    _, owner, counts = np.unique(samples.groups, return_inverse=True, return_counts=True)
    return owner, torch.from_numpy(1 / counts[owner])


def _uniform(count: int, random: Randomness) -> Array:
    """Return numbers in [0, 1), of 53 bits: nobody but the site may know who is drawn."""
    bits = np.frombuffer(random(8 * count), np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
