"""Centralised references: the losses of domain generalisation and of semi-supervised adaptation.

They need samples of all sources in every step, so that they are no federated methods.
`fda_flower.experiments.central` trains them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fda_flower.clients.training import loss_for
from fda_flower.errors import ConfigError
from fda_flower.models.parts import features_of, head_of
from fda_flower.records import Record
from fda_flower.strategies.averaging import ModelAverage
from fda_flower.strategies.common_options import CommonOptions, check_numbers

Batch = tuple[Tensor, Tensor]
"""Samples and labels."""

GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""γ of the Gaussian kernels of `kernel_gap`."""
TINY = 1e-5
"""Added to probabilities before their logarithm, as MME's authors do."""


@dataclass(frozen=True)
class Step:
    """The samples of one step.

    Attributes
    ----------
    sources : sequence of Batch
        A batch of each source, in the order of domains.
    labelled : Batch, optional
        Of the target's labelled samples.
    unlabelled : Tensor, optional
        Samples of the target whose labels nobody knows; twice as many as a batch.
    rng : Generator
        For what else is drawn.
    """

    sources: Sequence[Batch]
    labelled: Batch | None
    unlabelled: Tensor | None
    rng: np.random.Generator


class Reference(ABC):
    """What one reference minimises; the settings of a run see it as a strategy.

    Parameters
    ----------
    **common
        The options that every strategy takes. `warmup_rounds`, `learning_rate_factor` and `outcomes` have
        their meanings; in warm-up rounds, the sources' pooled samples are trained on without more. The limits
        for clients have none.

    Raises
    ------
    ConfigError
        If a number cannot work; for `average` and `max_update_norm`, since there are no models of clients.
    """

    uses_target: ClassVar[bool] = False
    """Whether it trains on the target's samples."""
    share: float | None = None
    """The share of each source that selects the round's model; None to report the last one."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reference-code": {}, "paper": {}}

    def __init__(self, **common: Unpack[CommonOptions]) -> None:
        for name in ("average", "max_update_norm"):
            if common.get(name) is not None:
                raise ConfigError(
                    f"{name} is {common.get(name)!r}, but a centralised reference has no models of clients: "
                    "leave it out"
                )
        self.warmup_rounds = common.get("warmup_rounds", 0)
        self.learning_rate_factor = common.get("learning_rate_factor", 1.0)
        self.outcomes = common.get("outcomes", False)
        self.model_average = ModelAverage(None)
        check_numbers({}, self.warmup_rounds, self.learning_rate_factor, 1.0)

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {"warmup-rounds": self.warmup_rounds, "learning-rate-factor": self.learning_rate_factor}

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Accept any number of samples."""
        return None

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs of the largest source; the target's only if there are none."""
        known = {"source": (rounds + warmup) * epochs["source"]}
        return known if self.uses_target else {**known, "target": 0}

    def prepare(self, model: nn.Module, x: Tensor) -> None:
        """Change the network before the first round, where the reference has one of its own."""
        return None

    def warmup_losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the sources' mean loss alone, in the rounds before the reference begins."""
        yield source_loss(model, step)

    @abstractmethod
    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the losses of a step; the optimizer takes a step after each, before the next is computed."""


class ERM(Reference):
    """``mean_i L_i``, the mean over sources of the mean loss of their batches.

    Parameters
    ----------
    validation_share : float
        The share of each source that is held out to select the model, between 0 and 1.
    **common
        See `Reference`.
    """

    def __init__(self, *, validation_share: float = 0.2, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        if not 0 < validation_share < 1:
            raise ConfigError(f"validation_share is {validation_share}, it must be between 0 and 1")
        self.share = validation_share

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {**super().settings(), "validation-share": self.share}

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
    **more
        See `ERM`.
    """

    def __init__(
        self, *, gamma: float = 1.0, validation_share: float = 0.2, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(validation_share=validation_share, **common)
        self._gamma = not_negative("gamma", gamma)

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {**super().settings(), "gamma": self._gamma}

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss and γ times the mean gap of the features."""
        with features_of(model) as features:
            outputs = outputs_of(model, step.sources)
        parts = torch.split(features[0], [len(y) for _, y in step.sources])
        gaps = [self.gap(a, b) for a, b in combinations(parts, 2)]
        yield mean_loss(outputs, step.sources) + self._gamma * torch.stack(gaps).mean()

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
    **more
        See `ERM`.
    """

    def __init__(
        self, *, alpha: float = 0.2, validation_share: float = 0.2, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(validation_share=validation_share, **common)
        if not alpha > 0:
            raise ConfigError(f"alpha is {alpha}, it must be above 0")
        self._alpha = alpha

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {**super().settings(), "alpha": self._alpha}

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of the mixed batches; of two batches the larger is cut."""
        order = step.rng.permutation(len(step.sources))
        mixed, labels = [], []
        for i, j in zip(order, np.roll(order, -1), strict=True):
            (x, y), (other_x, other_y) = step.sources[i], step.sources[j]
            n, u = min(len(y), len(other_y)), float(step.rng.beta(self._alpha, self._alpha))
            mixed.append((u * x[:n] + (1 - u) * other_x[:n], y[:n]))
            labels.append((u, y[:n], other_y[:n]))
        parts = zip(outputs_of(model, mixed), labels, strict=True)
        losses = [u * loss_for(y)(out, y) + (1 - u) * loss_for(y)(out, other) for out, (u, y, other) in parts]
        yield torch.stack(losses).mean()


class SourceTarget(Reference):
    """S+T: cross entropy on the sources' and the target's labelled samples together.

    The network's head is replaced by a `PrototypeHead`, as for `MinimaxEntropy`, with which it is compared
    (Saito et al., ICCV 2019). The model of the last round is reported: the few labels select nothing.

    Parameters
    ----------
    temperature : float
        T of the head, above 0.
    **common
        See `Reference`.
    """

    uses_target = True

    def __init__(self, *, temperature: float = 0.05, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        if not temperature > 0:
            raise ConfigError(f"temperature is {temperature}, it must be above 0")
        self._temperature = temperature

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {**super().settings(), "temperature": self._temperature}

    def prepare(self, model: nn.Module, x: Tensor) -> None:
        """Replace the head; its weights are drawn anew."""
        model.eval()
        with torch.no_grad(), features_of(model) as features:
            classes = model(x).shape[1]
        old = head_of(model)
        (name,) = [name for name, module in model.named_modules() if module is old]
        head = PrototypeHead(features[0].shape[1], classes, self._temperature).to(features[0])
        model.set_submodule(name, head)

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of all labelled samples of the step, whosever they are."""
        batches = [*step.sources, *([] if step.labelled is None else [step.labelled])]
        y = torch.cat([y for _, y in batches])
        yield loss_for(y)(torch.cat(outputs_of(model, batches)), y)


class Entropy(SourceTarget):
    """ENT: S+T, and a step in which head and body lower ``λ H`` of unlabelled target samples.

    Parameters
    ----------
    lam : float
        λ, not negative; 0 is S+T.
    temperature : float
        T of the head.
    **common
        See `Reference`.
    """

    def __init__(
        self, *, lam: float = 0.1, temperature: float = 0.05, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(temperature=temperature, **common)
        self._lam = not_negative("lam", lam)

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {**super().settings(), "lam": self._lam}

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield S+T's loss, then the entropy's."""
        yield from super().losses(model, step)
        if step.unlabelled is not None and self._lam > 0:
            yield self._lam * self.entropy_loss(model, step.unlabelled)

    def entropy_loss(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return what is minimised on unlabelled samples."""
        return entropy(model(x))


class MinimaxEntropy(Entropy):
    """MME (Saito et al., ICCV 2019): the head raises ``λ H`` of unlabelled samples, the body lowers it.

    The loss is ``−λ H``; its gradient is reversed between the body and the head.
    """

    def entropy_loss(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return what is minimised on unlabelled samples."""
        with reversed_gradient(model):
            return -entropy(model(x))


class PrototypeHead(nn.Linear):
    """``W · f/‖f‖ / T``, without bias: the classes' prototypes.

    Parameters
    ----------
    features, classes : int
        Numbers of inputs and outputs.
    temperature : float
        T.
    """

    def __init__(self, features: int, classes: int, temperature: float) -> None:
        super().__init__(features, classes, bias=False)
        self._temperature = temperature

    def forward(self, input: Tensor) -> Tensor:
        """Return the outputs for features of shape ``(n, ...)``, flattened."""
        return linear(normalize(input.flatten(1)), self.weight) / self._temperature


@contextmanager
def reversed_gradient(model: nn.Module) -> Iterator[None]:
    """Reverse the gradient that arrives at the body from outputs computed inside."""

    def reverse(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        features = inputs[0].view_as(inputs[0])
        features.register_hook(torch.neg)  # type: ignore[no-untyped-call]
        return features

    handle = head_of(model).register_forward_pre_hook(reverse)
    try:
        yield
    finally:
        handle.remove()


def outputs_of(model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """Return the model's outputs for each batch; they go through it together, so BatchNorm sees them all."""
    outputs: Tensor = model(torch.cat([x for x, _ in batches]))
    return list(torch.split(outputs, [len(y) for _, y in batches]))


def source_loss(model: nn.Module, step: Step) -> Tensor:
    """Return the mean over sources of the mean loss of their batches."""
    return mean_loss(outputs_of(model, step.sources), step.sources)


def mean_loss(outputs: Sequence[Tensor], batches: Sequence[Batch]) -> Tensor:
    """Return the mean over batches of their mean losses."""
    losses = [loss_for(y)(out, y) for out, (_, y) in zip(outputs, batches, strict=True)]
    return torch.stack(losses).mean()


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


def entropy(outputs: Tensor) -> Tensor:
    """Return the mean entropy of the softmax of outputs, ``−mean Σ_c p_c log(p_c + 1e-5)``, in nats.

    Examples
    --------
    >>> round(float(entropy(torch.tensor([[0.9, 0.1]]).log())), 4)
    0.3251
    """
    p = outputs.softmax(dim=1)
    return -(p * (p + TINY).log()).sum(dim=1).mean()


def not_negative(name: str, value: float) -> float:
    """Return a number, or raise a `ConfigError` if it is negative or none."""
    if not value >= 0:
        raise ConfigError(f"{name} is {value}, it must not be negative")
    return value
