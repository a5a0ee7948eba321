"""Ridge's questions: sums of the sources, the target's head, and a head at every site."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fda_flower.aggregation import Heads, Layers
from fda_flower.names.options import Natural, NotNegative, Positive, Share
from fda_flower.wire.questions import Answer, MetricName, Question
from fda_flower.wire.releases import Release

OfHead = Annotated[float, Release.HEAD]


class Summed(Answer):
    """A source's `sums` over its rows.

    The arrays are the ones of `fda_flower.aggregation.Sums`, of each kind of rows (see `with_kinds`), or of
    `PrivateSums` at a site that protects its patients.
    """

    sums: Annotated[Layers, Release.SUMS]


class SumRows(Question):
    """Ridge: send sums over your rows, and leave the model; `noise` tells whether they may have noise.

    If they are `centred`, they are around your means, as `fda_flower.aggregation.CentredRows` has them.
    """

    action = "sum_rows"
    roles = ("source",)
    model = Release.NOTHING
    answer = Summed
    answered_by = "fda_flower.clients.ridge:sum_rows"

    noise: bool
    centred: bool | None = None


class HeadFitted(Answer):
    """Numbers of the target's head; a model sent with them is the received one with this head.

    `temperature` is the factor on its outputs, and `weights` are the ones of the averaged heads. `share` is
    the share of the sources' solution in the heads that shrink it, or the weight of the logistic heads that
    start from it, and `source_weight` the weight of the sources' rows in the heads that pool. `kinds` are the
    weights of several kinds of rows; `unlabelled` counts the samples without labels, whose fit has the weight
    `unlabelled_share`. `held_out` is the run's metric on the target's held-out labels, `held_out_target` and
    `held_out_sources` the same with one side alone; `held_out_half` is the metric of what random halves of
    the labels predict for the others. `fewest_labels` counts the rarest class, and for survival `events` the
    ones that came; `horizons` are the run's.
    """

    temperature: Annotated[Positive, Release.HEAD]
    weights: Annotated[Mapping[str, NotNegative], Release.HEAD]
    share: OfHead | None = None
    source_weight: OfHead | None = None
    held_out: OfHead | None = None
    held_out_target: OfHead | None = None
    held_out_sources: OfHead | None = None
    held_out_half: OfHead | None = None
    fewest_labels: Annotated[Natural, Release.COUNTS] | None = None
    kinds: Annotated[tuple[Share, ...], Release.HEAD] = ()
    unlabelled: Annotated[Natural, Release.COUNTS] | None = None
    unlabelled_share: Annotated[Share, Release.HEAD] | None = None
    events: Annotated[Natural, Release.COUNTS] | None = None
    horizons: Annotated[tuple[Positive, ...], Release.NOTHING] = ()


class FitHead(Question):
    """Ridge's target: fit the linear layer to your rows, starting from the sources' sums.

    `paths` are the heads to average; ``logistic`` ones need classes. `start` has the arrays of
    `fda_flower.aggregation.Sums.start`, of each kind of rows, or of centred sums. `unlabelled` asks for a fit
    to the samples without labels, too. `metric` is the run's, by default the task's first.
    """

    action = "fit_head"
    roles = ("target",)
    model = Release.HEAD
    answer = HeadFitted
    answered_by = "fda_flower.clients.ridge:fit_head"

    paths: Heads
    start: Layers
    unlabelled: bool = False
    metric: MetricName | None = None


class SiteFitted(Answer):
    """Whether the site has `kept` its head, and metrics, if it reports them.

    `alone` and `with_others` are the run's metric, and `gain_low` and `gain_high` the interval of the
    difference. `share` is the share of the others' solution. `held_out` and `held_out_half` are as in
    `HeadFitted`. `test` has all metrics on `test_examples` samples. Where each class counts alike in the
    metric, `fewest_cases` are the samples of the rarest class.
    """

    kept: Annotated[bool, Release.NOTHING]
    alone: OfHead | None = None
    with_others: OfHead | None = None
    gain_low: OfHead | None = None
    gain_high: OfHead | None = None
    share: OfHead | None = None
    held_out: OfHead | None = None
    held_out_half: OfHead | None = None
    test: Annotated[Mapping[str, float], Release.HEAD] | None = None
    test_examples: Annotated[Natural, Release.COUNTS] | None = None
    fewest_cases: Annotated[Natural, Release.COUNTS] | None = None


class FitSiteHead(Question):
    """Ridge where every site is a target: subtract your own sums from the `total`, fit a layer, and keep it.

    If the sums were `masked`, yours are the ones in fixed point. Without a `report` the answer has no
    metrics. `metric` is the run's, if it is not the task's first.
    """

    action = "fit_site_head"
    roles = ("source",)
    model = Release.NOTHING
    answer = SiteFitted
    answered_by = "fda_flower.clients.ridge_sites:fit_site_head"

    paths: Heads
    report: Literal["full", "none"]
    total: Layers
    masked: bool = False
    unlabelled: bool = False
    metric: MetricName | None = None
