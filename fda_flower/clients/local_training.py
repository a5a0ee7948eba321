"""How a client trains in a round: settings, checked without loading torch."""

import math
from dataclasses import dataclass

from fda_flower.errors import ConfigError, check_choice, invalid, unknown

OPTIMIZERS = ("adam", "sgd")
"""The names of the optimizers; see `fda_flower.clients.training`."""

CUTS = ("even", "keep-last", "drop-last")
"""How samples can be cut into batches."""

CLASS_WEIGHTS = ("none", "balanced")
"""How classes can be weighted in the loss."""


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in a round; the optimizer starts afresh in each.

    Attributes
    ----------
    learning_rate : float
        ``η``.
    batch_size : int
        Samples in a step.
    epochs : int
        Passes over the client's samples in a round.
    optimizer : str
        A name of `OPTIMIZERS`.
    batches : {"even", "keep-last", "drop-last"}
        How samples are cut into batches; see `fda_flower.datasets.Samples.batches`.
    proximal : float
        ``μ`` of the penalty ``μ/2 ‖v − θ‖²``, where ``θ`` is the model that a training begins with.
    class_weights : {"none", "balanced"}
        How classes weigh in the loss; see `fda_flower.clients.training.training_loss`.

    Raises
    ------
    ConfigError
        If the optimizer or the cut is unknown, or a number cannot work.
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
        """``K``, the optimizer steps of a round on this number of examples."""
        full, rest = divmod(examples, self.batch_size)
        return self.epochs * (full if full and self.batches == "drop-last" else full + (rest > 0))
