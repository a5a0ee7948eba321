"""What a plain reply holds for the estimates of β: batch updates, or gradients at the start."""

from typing import Annotated

from fda_flower.aggregation import Layers
from fda_flower.wire.protocol import BATCH_UPDATES, GRADIENTS
from fda_flower.wire.questions import Answer, InRecord
from fda_flower.wire.releases import Release


class WithBatchUpdates(Answer):
    """The target's `batch_updates`; see `fda_flower.aggregation.BatchUpdates`."""

    needed = False
    batch_updates: Annotated[Layers, InRecord(BATCH_UPDATES), Release.BATCHES]


class WithGradients(Answer):
    """A client's `gradients` at the model that it received; see `fda_flower.aggregation.read_gradients`."""

    needed = False
    gradients: Annotated[Layers, InRecord(GRADIENTS), Release.BATCHES]
