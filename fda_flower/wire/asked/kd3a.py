"""KD3A's question and answer."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fda_flower.aggregation import Layers
from fda_flower.names.options import NotNegative, Share
from fda_flower.wire.questions import Answer, Like, Question
from fda_flower.wire.releases import Release


class Distilled(Answer):
    """The outcome of KD3A's votes.

    `mask_share` is the share of samples with a vote above the gate, `contribution` that of each source, and
    `head` names the arrays of the target's head.
    """

    mask_share: Annotated[Share, Release.COUNTS]
    contribution: Annotated[Mapping[str, NotNegative], Release.FIGURES]
    head: Annotated[tuple[str, ...], Release.NOTHING]


class Distil(Question):
    """KD3A's target: let the sources' `models` vote on all training samples, and train on the votes.

    `gate` is the confidence from which a vote counts; with `mixup` the target trains on mixed pairs of
    images; `teacher_bn` selects the statistics with which BatchNorm votes.
    """

    action = "distil"
    roles = ("target",)
    answer = Distilled
    answered_by = "fda_flower.clients.kd3a:distil"

    gate: NotNegative
    mixup: bool
    teacher_bn: Literal["batch", "eval"]
    models: Mapping[str, Annotated[Layers, Like("model")]]
