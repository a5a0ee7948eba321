"""Centralised references of domain generalisation, which never see the target: ERM, CORAL, MMD, Mixup."""

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.clients.training import loss_for
from fda_flower.experiments.central_reference import (
    Reference,
    Step,
    mean_loss,
    outputs_of,
    source_loss,
)
from fda_flower.models.parts import features_of
from fda_flower.options import Bounds, NotNegative, Positive

GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""γ of the Gaussian kernels of `kernel_gap`."""


class ERM(Reference):
    """``mean_i L_i``, the mean over sources of the mean loss of their batches.

    Parameters
    ----------
    validation_share : float
        The share of each source that is held out to select the model, between 0 and 1.
    **common
        See `Reference`.
    """

    validation_share: Annotated[float, Bounds("between 0 and 1", lambda share: 0 < share < 1)] = 0.2

    @property
    def share(self) -> float:  # type: ignore[override]
        """The share of each source that selects the round's model."""
        return self.validation_share

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss."""
        yield source_loss(model, step)


class CORAL(ERM):
    """ERM, with `moment_gap` between the features of each two sources (Sun & Saenko, ECCV-W 2016).

    ``mean_i L_i + γ · mean over pairs of the gap``, as DomainBed has it: the gap is also one of means.

    Parameters
    ----------
    gamma : float
        γ, not negative.
    validation_share, **common
        See `ERM`.
    """

    gamma: NotNegative = 1.0

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss and γ times the mean gap of the features."""
        with features_of(model) as features:
            outputs = outputs_of(model, step.sources)
        parts = torch.split(features[0], [len(y) for _, y in step.sources])
        gaps = [self.gap(a, b) for a, b in combinations(parts, 2)]
        yield mean_loss(outputs, step.sources) + self.gamma * torch.stack(gaps).mean()

    def gap(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distance of two sources' features, each of shape ``(n, features)``."""
        return moment_gap(a, b)


class MMD(CORAL):
    """The same with `kernel_gap` (Li et al., CVPR 2018, without its adversary, as DomainBed has it)."""

    def gap(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distance of two sources' features, each of shape ``(n, features)``."""
        return kernel_gap(a, b)


class Mixup(ERM):
    """ERM on mixtures of two sources' samples (Zhang et al., ICLR 2018, between domains as in DomainBed).

    The sources are paired in a random cycle. For each pair ``u ~ Beta(α, α)``, the inputs are
    ``u x_i + (1−u) x_j``, and the loss ``u L(·, y_i) + (1−u) L(·, y_j)``; the mean over pairs is minimised.

    Parameters
    ----------
    alpha : float
        α, above 0.
    validation_share, **common
        See `ERM`.
    """

    alpha: Positive = 0.2

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of the mixed batches; of two batches the larger is cut."""
        order = step.rng.permutation(len(step.sources))
        mixed, labels = [], []
        for i, j in zip(order, np.roll(order, -1), strict=True):
            (x, y), (other_x, other_y) = step.sources[i], step.sources[j]
            n, u = min(len(y), len(other_y)), float(step.rng.beta(self.alpha, self.alpha))
            mixed.append((u * x[:n] + (1 - u) * other_x[:n], y[:n]))
            labels.append((u, y[:n], other_y[:n]))
        parts = zip(outputs_of(model, mixed), labels, strict=True)
        losses = [u * loss_for(y)(out, y) + (1 - u) * loss_for(y)(out, other) for out, (u, y, other) in parts]
        yield torch.stack(losses).mean()


def moment_gap(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of two samples' means, plus that of their covariances.

    Covariances divide by ``n−1``; that of a single sample is 0.

    Examples
    --------
    >>> moment_gap(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [5.0]]))  # 4 + (2 − 8)²
    tensor(40.)
    """
    centred = [x - x.mean(0) for x in (a, b)]
    first, second = (x.T @ x / max(len(x) - 1, 1) for x in centred)
    return (a.mean(0) - b.mean(0)).square().mean() + (first - second).square().mean()


def kernel_gap(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared MMD of two samples by its biased estimate, summed over Gaussian kernels.

    ``mean k(a, a') + mean k(b, b') − 2 mean k(a, b)`` with ``k(x, y) = Σ_γ exp(−γ ‖x−y‖²)``, γ in `GAMMAS`.
    """

    def mean_kernel(x: Tensor, y: Tensor) -> Tensor:
        distances = (x[:, None] - y).square().sum(-1)
        return torch.stack([(-gamma * distances).exp().mean() for gamma in GAMMAS]).sum()

    return mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b)
