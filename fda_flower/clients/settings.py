"""Settings of a round's local training, checked without importing torch."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from fda_flower.names.options import Count, NotNegative, Positive, built_from, read_fields

CALLED = {"learning_rate": "the learning rate", "batch_size": "batch size", "epochs": "number of epochs"}
"""What errors call the numbers, for either role."""


@built_from(partial(read_fields, called=CALLED))
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
    optimizer : {"adam", "sgd"}
        See `fda_flower.clients.training.OPTIMIZERS`.
    batches : {"even", "keep-last", "drop-last"}
        How samples are cut into batches; see `fda_flower.prediction.batches.batches`.
    proximal : float
        ``μ`` of the penalty ``μ/2 ‖v − θ‖²``, where ``θ`` is the initial model.
    class_weights : {"none", "balanced"}
        Weights of classes in the loss; see `fda_flower.clients.training.training_loss`.

    Raises
    ------
    ConfigError
        If a word is unknown or a number is out of range.
    """

    learning_rate: Positive
    batch_size: Count
    epochs: Count = 1
    optimizer: Literal["adam", "sgd"] = "adam"
    batches: Literal["even", "keep-last", "drop-last"] = "even"
    proximal: NotNegative = 0.0
    class_weights: Literal["none", "balanced"] = "none"

    def steps(self, examples: int) -> int:
        """Return ``K``, the optimizer steps of a round with this number of examples."""
        full, rest = divmod(examples, self.batch_size)
        return self.epochs * (full if full and self.batches == "drop-last" else full + (rest > 0))
