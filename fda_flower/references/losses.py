"""Centralised references: their losses over the samples of all domains in one place."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fda_flower.clients.training import loss_for, reversing
from fda_flower.errors import invalid
from fda_flower.models.parts import features_of, head_of, replace_head
from fda_flower.names.options import Bounds, Natural, NotNegative, Positive
from fda_flower.names.tasks import Task
from fda_flower.records.record import (
    Record,
)
from fda_flower.strategies.averaging import ModelAverage
from fda_flower.strategies.options import CommonOptions

Batch = tuple[Tensor, Tensor]
"""Samples and labels."""


@dataclass(frozen=True)
class Step:
    """The samples of one step: a batch of each source, in the order of domains, and of the target's labelled.

    `unlabelled` are twice as many of the target's other samples; `rng` is for further draws. Of `rounds`
    after the warm-up, `done` are done, a round's earlier steps being a part of it.
    """

    sources: Sequence[Batch]
    labelled: Batch | None
    unlabelled: Tensor | None
    rng: np.random.Generator
    task: Task = "classes"
    done: float = 0.0
    rounds: int = 1


class Reference(CommonOptions, ABC):
    """The loss of a reference; a run's settings treat it as a strategy.

    The options `warmup_rounds`, in which it trains only on the sources' pooled samples,
    `learning_rate_factor` and `outcomes` have the same meaning as for strategies. `average`,
    `max_update_norm`, `source_mean` and `buffers` are a `ConfigError`, because there are no clients' models,
    and so is `evaluate_every`, because each round is evaluated.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    """Nothing with any options, besides what its method needs."""
    uses_target: ClassVar[bool] = False
    """Whether it trains on the target's samples."""
    share: ClassVar[float | None] = None
    """The share of each source that selects the round's model; None to report the last one."""
    prototypes: ClassVar[float | None] = None
    """The temperature of the head of prototypes that replaces the network's; None if none does."""
    evaluates_own: ClassVar[bool] = True
    """There are no sources that could evaluate the model apart from the target."""
    ends_with_an_evaluation: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reference-code": {}, "paper": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        clients = "but a centralised reference has no models of clients"
        for name, none, why in (
            ("average", None, clients),
            ("max_update_norm", None, clients),
            ("source_mean", "mean", clients),
            ("buffers", "mean", clients),
            ("evaluate_every", 1, "but a centralised reference evaluates in each round"),
        ):
            if (value := getattr(self, name)) != none:
                raise invalid(name, value, "leave it out", why)
        self.model_average = ModelAverage(None)
        self.discriminator: nn.Module = nn.Identity()
        """A network that trains next to the model without being a part of it, if `prepare` makes one."""

    @property
    def chooses_itself(self) -> bool:
        """Whether samples of the sources choose the model that it reports."""
        return self.share is not None

    def settings(self) -> Record:
        """Return the definition of the reference, as JSON values."""
        return {
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
            **self.own_settings(),
        }

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Accept any number of samples."""

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs of the largest source; the target's only if there are none."""
        known = {"source": (rounds + warmup) * epochs["source"]}
        return known if self.uses_target else {**known, "target": 0}

    def epochs_of_head(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return none: the whole network trains."""
        return dict.fromkeys(epochs, 0)

    def conclusion(self, record: Record) -> list[str]:
        """Return no lines at the end of a run."""
        return []

    def prepare(self, model: nn.Module, x: Tensor, sources: int) -> None:
        """Change the network before the first round, or make another; `x` is a batch of inputs."""

    def warmup_losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield only the sources' mean loss, in the warm-up rounds."""
        yield source_loss(model, step)

    @abstractmethod
    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the losses of a step; the optimizer takes a step after each, before the next is computed."""


def outputs_of(model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """Return the model's outputs for each batch, computed together: BatchNorm sees all batches."""
    return by_batch(model(torch.cat([x for x, _ in batches])), batches)


def by_batch(rows: Tensor, batches: Sequence[Batch]) -> list[Tensor]:
    """Return the rows of each batch."""
    return list(torch.split(rows, [len(y) for _, y in batches]))


def source_loss(model: nn.Module, step: Step) -> Tensor:
    """Return the mean over sources of the mean loss of their batches."""
    return mean_loss(outputs_of(model, step.sources), step)


def mean_loss(outputs: Sequence[Tensor], step: "Step") -> Tensor:
    """Return the mean over the sources' batches of their mean losses."""
    losses = [loss_for(step.task)(out, y) for out, (_, y) in zip(outputs, step.sources, strict=True)]
    return torch.stack(losses).mean()


TINY = 1e-5
"""Added to probabilities before their logarithm, as MME's authors do."""


class SourceTarget(Reference):
    """S+T: cross entropy on the sources' and the target's labelled samples together.

    As in `MinimaxEntropy`, with which it is compared (Saito et al., ICCV 2019), a
    `fda_flower.models.parts.PrototypeHead` replaces the network's head. The last round's model is reported:
    the few labels select nothing.

    Parameters
    ----------
    temperature : float
        T of the head, above 0.
    **common
        See `Reference`.
    """

    uses_target = True

    temperature: Positive = 0.05

    @property
    def prototypes(self) -> float:  # type: ignore[override]
        """The temperature of the head."""
        return self.temperature

    def prepare(self, model: nn.Module, x: Tensor, sources: int) -> None:
        """Replace the head, with new weights."""
        replace_head(model, x, self.temperature)

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of all labelled samples of the step."""
        batches = [*step.sources, *([] if step.labelled is None else [step.labelled])]
        y = torch.cat([y for _, y in batches])
        yield loss_for(step.task)(torch.cat(outputs_of(model, batches)), y)


class Entropy(SourceTarget):
    """ENT: S+T, and a step in which head and body lower ``λ H`` of unlabelled target samples.

    Parameters
    ----------
    lam : float
        λ, not negative; 0 is S+T.
    temperature, **common
        See `SourceTarget`.
    """

    lam: NotNegative = 0.1

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield S+T's loss, then the entropy's."""
        yield from super().losses(model, step)
        if step.unlabelled is not None and self.lam > 0:
            yield self.lam * self.entropy_loss(model, step.unlabelled)

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


@contextmanager
def reversed_gradient(model: nn.Module) -> Iterator[None]:
    """Reverse the gradient that arrives at the body from outputs computed inside."""
    with head_of(model).register_forward_pre_hook(lambda _, inputs: reversing(inputs[0])):
        yield


def entropy(outputs: Tensor) -> Tensor:
    """Return the mean entropy of the softmax of outputs, ``−mean Σ_c p_c log(p_c + 1e-5)``, in nats.

    Examples
    --------
    >>> round(float(entropy(torch.tensor([[0.9, 0.1]]).log())), 4)
    0.3251
    """
    p = outputs.softmax(dim=1)
    return -(p * (p + TINY).log()).sum(dim=1).mean()


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


def moment_gap(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of two samples' means, plus the same of their covariances.

    Covariances divide by ``n−1``; a single sample has 0.

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

    gap = staticmethod(moment_gap)
    """The distance of two sources' features, each of shape ``(n, features)``."""
    gamma: NotNegative = 1.0

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss and γ times the mean gap of the features."""
        with features_of(model) as features:
            outputs = outputs_of(model, step.sources)
        parts = by_batch(features[0], step.sources)
        gaps = [self.gap(a, b) for a, b in combinations(parts, 2)]
        yield mean_loss(outputs, step) + self.gamma * torch.stack(gaps).mean()


class MMD(CORAL):
    """The same with `kernel_gap` (Li et al., CVPR 2018, without its adversary, as DomainBed has it)."""

    gap = staticmethod(kernel_gap)


WIDTH = 256
"""Units of each of the two hidden layers of `DANN`'s discriminator, DomainBed's default."""


class DANN(ERM):
    """ERM on features that do not tell the sources apart (Ganin et al., JMLR 2016).

    A discriminator D learns to tell from features f which source i a sample is of. The loss is
    ``mean_i L_i + mean_i L(D(f), i)``, whose second term's gradient is multiplied by −λ on its way from D to
    the body. ``λ = 2/(1 + exp(−γp)) − 1`` rises from 0 while p rises from 0 to 1 over the rounds after the
    warm-up; D itself learns with λ = 1. All this is as in the paper.

    The paper's domains are a source and the target; here they are the sources, as in DomainBed, whose D has
    the same layers. DomainBed trains D and the network in turn, by two optimizers, with a fixed λ; it
    searches for λ, rates, D's steps, weight decay and a penalty on D's gradient. Here one step of one
    optimizer trains both, at one rate.

    Parameters
    ----------
    gamma : float
        γ, not negative; 0 is ERM.
    rise_rounds : int
        The rounds in which p rises. Default: 0, all after the warm-up. Set it if you may extend the run
        later: a resumed run equals an uninterrupted one only if p rises in the same rounds.
    validation_share, **common
        See `ERM`.
    """

    gamma: NotNegative = 10.0
    rise_rounds: Natural = 0

    def prepare(self, model: nn.Module, x: Tensor, sources: int) -> None:
        """Make the discriminator, with new weights."""
        model.eval()
        with torch.no_grad(), features_of(model) as features:
            model(x)
        sizes = (features[0].shape[1], WIDTH, WIDTH)
        hidden = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
        self.discriminator = nn.Sequential(*hidden, nn.Linear(WIDTH, sources)).to(features[0])

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss plus the discriminator's, whose gradient is reversed in the body."""
        with features_of(model) as features:
            outputs = outputs_of(model, step.sources)
        guesses = by_batch(self.discriminator(reversing(features[0], self.weight(step))), step.sources)
        sources = [torch.full((len(guess),), i, device=guess.device) for i, guess in enumerate(guesses)]
        of_sources = torch.stack([*map(cross_entropy, guesses, sources)])
        yield mean_loss(outputs, step) + of_sources.mean()

    def weight(self, step: Step) -> float:
        """Return λ in a step."""
        share = min(step.done / (self.rise_rounds or step.rounds), 1.0)
        return 2 / (1 + math.exp(-self.gamma * share)) - 1


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
        losses = [
            u * loss_for(step.task)(out, y) + (1 - u) * loss_for(step.task)(out, other)
            for out, (u, y, other) in parts
        ]
        yield torch.stack(losses).mean()
