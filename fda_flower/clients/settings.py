"""Settings of a round's local training, checked without importing torch."""

import math
from dataclasses import dataclass

from fda_flower.errors import ConfigError, check_choice, invalid, unknown

OPTIMIZERS = ("adam", "sgd")
"""Names of the optimizers; see `fda_flower.clients.training`."""

CUTS = ("even", "keep-last", "drop-last")
"""Ways to cut samples into batches."""

CLASS_WEIGHTS = ("none", "balanced")
"""Ways to weight classes in the loss."""


@dataclass(frozen=True)
class LocalTraining:
    """Settings of a client's training in a round; each round starts with a new optimizer.

    Attributes
    ----------
    learning_rate : float
        ``η``.
    batch_size : int
        Samples per step.
    epochs : int
        Passes over the client's samples in a round.
    optimizer : str
        A name of `OPTIMIZERS`.
    batches : {"even", "keep-last", "drop-last"}
        How samples are cut into batches; see `fda_flower.datasets.Samples.batches`.
    proximal : float
        ``μ`` of the penalty ``μ/2 ‖v − θ‖²``, where ``θ`` is the initial model.
    class_weights : {"none", "balanced"}
        Weights of classes in the loss; see `fda_flower.clients.training.training_loss`.

    Raises
    ------
    ConfigError
        If the optimizer or the kind of batches is unknown, or a number is out of range.
    """

    learning_rate: float
    batch_size: int
    epochs: int = 1
    optimizer: str = "adam"
    batches: str = "even"
    proximal: float = 0.0
    class_weights: str = "none"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("batches", self.batches, CUTS)
        check_choice("class-weights", self.class_weights, CLASS_WEIGHTS)
        if not 0 < self.learning_rate < math.inf:
            raise invalid("the learning rate", self.learning_rate, "it must be a number above 0")
        if not 0 <= self.proximal < math.inf:
            raise invalid("proximal", self.proximal, "it must be a number of at least 0")
        for name, value in (("batch size", self.batch_size), ("number of epochs", self.epochs)):
            if value < 1:
                raise ConfigError(f"the {name} is {value}, it must be at least 1", thing=name, value=value)

    def steps(self, examples: int) -> int:
        """Return ``K``, the optimizer steps of a round with this number of examples."""
        full, rest = divmod(examples, self.batch_size)
        return self.epochs * (full if full and self.batches == "drop-last" else full + (rest > 0))
