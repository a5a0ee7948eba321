"""Mixture's question: the evaluation of the mixture, and its report."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fda_flower.aggregation import Layers
from fda_flower.names.options import Count, Epochs, Natural, Positive, Share
from fda_flower.wire.questions import Answer, Figure, Figures, Folds, Like, MetricName, Question
from fda_flower.wire.releases import Release


class MixtureReport(Answer):
    """Mixture's numbers by member; all may be absent.

    `held_out` and `test` are the run's metric on held-out labels and the test set. Members in `left_out` have
    outputs that are not finite. `folds` are their sizes, and `alone` counts the classes with one label.
    `held_out_mixture` and `held_out_target` are the held-out metrics of the whole mixture, and of one without
    the sources. `taught` and `teacher` are a student's number of unlabelled samples and the mixture's metric.
    """

    weights: Annotated[Mapping[str, Share], Release.FIGURES] | None = None
    temperatures: Annotated[Mapping[str, Positive], Release.FIGURES] | None = None
    held_out: Figures | None = None
    test: Figures | None = None
    left_out: Annotated[tuple[str, ...], Release.FIGURES] = ()
    folds: Annotated[tuple[Natural, ...], Release.COUNTS] = ()
    alone: Annotated[Natural, Release.COUNTS] | None = None
    held_out_mixture: Figure | None = None
    held_out_target: Figure | None = None
    taught: Annotated[Natural, Release.COUNTS] | None = None
    teacher: Figure | None = None


class EvaluateMixture(Question):
    """Mixture: evaluate the sources' model, which is sent, mixed with models that the target trains.

    `folds`, `epochs`, `members` and `views` are as in `MixturePlan`. The target's own model begins as
    `first` in the round `first_round`. Without a `report` the answer is empty, and the reply has only the
    number of test samples; with `student` one network evaluates in place of the mixture. `metric` is the
    run's, by default the task's first.
    """

    action = "mixture"
    roles = ("target",)
    kind = "evaluate"
    answer = MixtureReport
    answered_by = "fda_flower.clients.mixture:evaluate_mixture"

    folds: Folds
    epochs: tuple[Epochs, ...]
    members: tuple[str, ...]
    views: Literal["all", "full"]
    first: Annotated[Layers, Like("model")]
    first_round: Count
    report: Literal["full", "none"]
    student: bool
    metric: MetricName | None = None
