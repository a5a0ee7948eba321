"""The questions of methods whose target keeps a model: Ditto, APFL, FedDAF, FedDWA, kNN-Per, FedAvg FT."""

from typing import Annotated, Literal

from fda_flower.aggregation import Layers
from fda_flower.names.options import Count, NotNegative, Positive, Share
from fda_flower.wire.questions import Answer, Figure, Like, Question, ShareFigure
from fda_flower.wire.releases import Release


class FineTune(Question):
    """FedAvg FT, Ditto without a global branch: train the model or its `part`, and keep the result."""

    action = "fine_tune"
    roles = ("target",)
    answered_by = "fda_flower.clients.personal:fine_tune"

    part: Literal["all", "head"] = "all"


class EvaluatePersonal(Question):
    """FedAvg FT, Ditto, FedDWA: evaluate the model that the target keeps, not the one received."""

    action = "personal"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal:evaluate_personal"


class OwnModelTrained(Answer):
    """Whether the target had no model of its own (`fresh_start`), and began from the one received."""

    fresh_start: Annotated[bool, Release.NOTHING]


class Personalised(OwnModelTrained):
    """Ditto's `distance`, ``‖v − θ‖`` before the training."""

    distance: Annotated[NotNegative, Release.FIGURES]


class Personalise(Question):
    """Ditto: train the model received, then `v` with the `penalty` (λ) ``λ/2 ‖v − θ‖²``, and keep `v`."""

    action = "personalise"
    roles = ("target",)
    answer = Personalised
    answered_by = "fda_flower.clients.personal:personalise"

    penalty: NotNegative


class TrainedToMix(OwnModelTrained):
    """APFL's weight `alpha` of the target's own model after the round."""

    alpha: ShareFigure


class TrainToMix(Question):
    """APFL: train the model received, and `v` for the mixture of both; keep `v` and its weight.

    `mixing` is the weight of a new `v`, which moves if it is `adaptive`, drawn to 0 by `alpha_decay`.
    """

    action = "train_to_mix"
    roles = ("target",)
    answer = TrainedToMix
    answered_by = "fda_flower.clients.personal:train_to_mix"

    mixing: Share
    mix: Literal["outputs", "parameters"]
    adaptive: bool
    alpha_decay: NotNegative


class EvaluateMix(Question):
    """APFL: evaluate the mixture, of outputs or parameters, of the model received and the target's own."""

    action = "mix"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.personal:evaluate_mix"

    mix: Literal["outputs", "parameters"]


class Blended(OwnModelTrained):
    """FedDAF's `adapted` model, and with a model of the target's own what it follows from.

    `sim` is the cosine of the gradients, `theta` their angle in radians, `alpha` the sources' weight.
    """

    adapted: Annotated[Layers, Like("model"), Release.MODEL]
    sim: Figure | None = None
    theta: Figure | None = None
    alpha: ShareFigure | None = None


class Blend(Question):
    """FedDAF: blend the sources' model with the target's own, train from the blend, and keep the result.

    `mu` is μ of the Gompertz function. The gradients are of both models in training mode on the same draw, or
    `apart`: of the target's own in evaluation mode. The `penalty` (λ) draws to the sources' model.
    """

    action = "blend"
    roles = ("target",)
    answer = Blended
    answered_by = "fda_flower.clients.personal:blend_models"

    mu: float
    gradients: Literal["alike", "apart"]
    statistics: Literal["blended", "own"]
    penalty: NotNegative


class Guided(Answer):
    """FedDWA's `guidance`: the parameters after training twice as long."""

    guidance: Annotated[Layers, Like("parameters"), Release.MODEL]


class Guide(Question):
    """FedDWA: train, then as long again for the guidance; the first model is the reply's.

    With `keep` the target keeps that, for `EvaluatePersonal`.
    """

    action = "guide"
    answer = Guided
    answered_by = "fda_flower.clients.personal:guide"

    keep: bool


class NeighboursUsed(Answer):
    """kNN-Per's `weight` (λ) of the neighbours; of an oracle also the best on the test set.

    None where a site keeps it.
    """

    weight: ShareFigure | None = None


class EvaluateNeighbours(Question):
    """kNN-Per: evaluate the model received, mixed with the labels of the target's `k` nearest samples.

    `scale` is the kernel's. Without a `weight` (λ) the target chooses it by leave-one-out on its
    training labels.
    """

    action = "neighbours"
    roles = ("target",)
    kind = "evaluate"
    answer = NeighboursUsed
    answered_by = "fda_flower.clients.personal:evaluate_neighbours"

    k: Count
    scale: Positive
    weight: Share | None = None
