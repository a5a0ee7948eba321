"""The questions of domain generalisation: IRM, V-REx."""

from fda_flower.names.options import NotNegative
from fda_flower.wire.questions import Answer, Figure, Question


class Penalised(Answer):
    """IRM's `penalty`, the mean of ``D`` over the training samples; it may be negative."""

    penalty: Figure


class Penalise(Question):
    """IRM: train on the loss plus `strength` (λ) times the penalty ``D`` of each batch."""

    action = "penalise"
    roles = ("source",)
    answer = Penalised
    answered_by = "fda_flower.clients.generalisation:penalise"

    strength: NotNegative


class LossMeasured(Answer):
    """`loss_at_start`, the mean loss of the received model on the training samples."""

    loss_at_start: Figure


class MeasureLoss(Question):
    """V-REx: measure the loss of the received model on the training samples, then train."""

    action = "measure_loss"
    roles = ("source",)
    answer = LossMeasured
    answered_by = "fda_flower.clients.generalisation:measure_loss"
