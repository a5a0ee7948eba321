"""Describe's questions: what sites say of their rows before any training."""

from typing import Annotated, Literal

from fda_flower.aggregation import Layers
from fda_flower.names.options import Count, Natural, Positive
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release

REMEDY = "leave the site out of the run, since it only compares what sites say"


class RowsDescribed(Answer):
    """The numbers of `rows` and `units`, such as patients, the site's smallest `cell`, counts and moments.

    For survival the `horizons` are the run's.
    The arrays are the ones of `fda_flower.aggregation.describing.Statistics`; counts are multiples of `cell`.
    """

    rows: Annotated[Count, Release.COUNTS]
    units: Annotated[Count, Release.COUNTS]
    cell: Annotated[Count, Release.NOTHING]
    horizons: Annotated[tuple[Positive, ...], Release.NOTHING] = ()
    counts: Annotated[Layers, Release.COUNTS]
    moments: Annotated[Layers, Release.SUMS]


class DescribeRows(Question):
    """Describe: say the numbers of your rows, of the `classes`, and each column's mean and deviation."""

    action = "describe_rows"
    model = Release.NOTHING
    reads_inputs = False
    answer = RowsDescribed
    answered_by = "fda_flower.clients.describe:describe_rows"
    remedy = REMEDY

    classes: Natural


class RowsCounted(Answer):
    """Numbers of units in bins, and each column's most frequent number.

    The arrays are the ones of `fda_flower.aggregation.bins.Counts`.
    """

    counts: Annotated[Layers, Release.COUNTS]
    numbers: Annotated[Layers, Release.SUMS]


class CountRows(Question):
    """Describe: count your units in bins around the means of all sites, which the message brings."""

    action = "count_rows"
    model = Release.NOTHING
    reads_inputs = False
    answer = RowsCounted
    answered_by = "fda_flower.clients.describe:count_rows"
    remedy = REMEDY

    classes: Natural


class MaskStatistics(MaskSums):
    """Describe with masked sums: answer a `stage` of a sum over the moments, or the counts, of all sites."""

    action = "mask_statistics"
    roles = ("source", "target")  # type: ignore[assignment]
    reads_inputs = False
    answer = Masked
    answered_by = "fda_flower.clients.describe:mask_statistics"

    over: Literal["moments", "counts"] = "moments"  # type: ignore[assignment]
    classes: Natural = 0


class RestCompared(Answer):
    """The `distances` of a site's columns from the ones of all others, if it tells them."""

    distances: Annotated[Layers, Release.HEAD] | None = None


class CompareWithRest(Question):
    """Describe with masked sums: subtract yourself from the `totals`, and compare yourself with the rest.

    The words of the totals are the ones of `MaskStatistics`. Without a `report` the answer is empty.
    """

    action = "compare_with_rest"
    model = Release.NOTHING
    reads_inputs = False
    answer = RestCompared
    answered_by = "fda_flower.clients.describe:compare_with_rest"

    classes: Natural
    totals: Layers
    report: Literal["full", "none"]
