"""What a centralised reference is: the losses of a step with samples of all domains.

It needs them in one place, so that it is no federated method. `fda_flower.experiments.central` trains it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.clients.training import loss_for
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.averaging import ModelAverage
from fda_flower.strategies.common_options import CommonOptions

Batch = tuple[Tensor, Tensor]
"""Samples and labels."""


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


class Reference(CommonOptions, ABC):
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
        If a number cannot work; for `average`, `max_update_norm` and `source_mean`, since there are no models
        of clients; for `evaluate_every`, since each round is evaluated.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    """Nothing with any options, beside what its method needs."""
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
        for name, none in (("average", None), ("max_update_norm", None), ("source_mean", "mean")):
            if (value := getattr(self, name)) != none:
                raise ConfigError(
                    f"{name} is {value!r}, but a centralised reference has no models of clients: leave it out"
                )
        if self.evaluate_every != 1:
            raise ConfigError(
                f"evaluate_every is {self.evaluate_every}, but a centralised reference evaluates in each "
                "round: leave it out"
            )
        self.model_average = ModelAverage(None)

    @property
    def chooses_itself(self) -> bool:
        """Whether samples of the sources choose the model that it reports."""
        return self.share is not None

    def settings(self) -> Record:
        """Return what defines the reference, as JSON."""
        return {
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
            **self.own_settings(),
        }

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
