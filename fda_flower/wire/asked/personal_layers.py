"""The questions of methods whose clients keep a part of the model: FedPer, FedRep, FedBN."""

from typing import Annotated

from fda_flower.names.options import MoreEpochs, Natural
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release


class PartKept(Answer):
    """What a client that keeps a part of the model began from.

    `began_in` is the round of its own part with which the training began, 0 for the part received.
    """

    began_in: Annotated[Natural, Release.NOTHING]


class KeepPart(Question):
    """FedPer, FedRep, FedBN: train the received model with the client's own part, and keep that part.

    `part` is ``head``, ``batch-norm``, or a pattern of names. With `head_epochs` the head alone trains first,
    for this many epochs. The reply's model has the part as it was received.
    """

    action = "keep_part"
    answer = PartKept
    answered_by = "fda_flower.clients.personal_layers:keep_part"

    part: str
    head_epochs: MoreEpochs = 0


class EvaluateWithPart(Question):
    """FedPer, FedRep, FedBN: evaluate the received model with the target's own `part`.

    With `final_head_epochs` the head first trains this many epochs longer, and is discarded afterwards.
    """

    action = "with_part"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal_layers:evaluate_with_part"

    part: str
    final_head_epochs: MoreEpochs = 0
