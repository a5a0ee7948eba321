"""pFedFDA's questions: statistics of features."""

from typing import Annotated

from fda_flower.aggregation import ClassGaussians, Layers, shape_of_head
from fda_flower.names.options import NotNegative
from fda_flower.wire.questions import Answer, Folds, Like, Question, ShareFigure
from fda_flower.wire.releases import Release


def _like_gaussians(model: Layers) -> Layers:
    return ClassGaussians.initial(*shape_of_head(model)).layers()


class WithGaussians(Question):
    """pFedFDA: the global `gaussians`, if there are any, cross-validation's `folds`, and the `ridge`."""

    gaussians: Annotated[Layers, Like(_like_gaussians)] | None = None
    folds: Folds
    ridge: NotNegative


class GaussiansMixed(Answer):
    """A client's Gaussians mixed with the global ones, and `own_share`, the weight of its own."""

    gaussians: Annotated[Layers, Like(_like_gaussians), Release.SUMS]
    own_share: ShareFigure


class MixGaussians(WithGaussians):
    """pFedFDA: mix the global Gaussians with the client's own, and leave the model."""

    action = "mix_gaussians"
    model = Release.NOTHING
    answer = GaussiansMixed
    answered_by = "fda_flower.clients.features:mix_gaussians"


class EvaluateGaussians(WithGaussians):
    """pFedFDA: evaluate Bayes' rule with the target's mixture of Gaussians on the body received."""

    action = "gaussians"
    roles = ("target",)
    kind = "evaluate"
    answered_by = "fda_flower.clients.features:evaluate_gaussians"
