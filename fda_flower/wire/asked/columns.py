"""The question of a table's columns, before the first round of every method."""

from typing import Annotated

from fda_flower.aggregation import Layers
from fda_flower.names.options import Count
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release


class ColumnsDescribed(Answer):
    """The number of a source's `rows`, and mean and deviation of each of their `columns`.

    The arrays are the ones of `fda_flower.aggregation.Columns`.
    """

    rows: Annotated[Count, Release.COUNTS]
    columns: Annotated[Layers, Release.SUMS]


class DescribeColumns(Question):
    """Say the means and deviations of your table's columns; there is no model."""

    action = "describe_columns"
    roles = ("source",)
    model = Release.NOTHING
    reads_inputs = False
    answer = ColumnsDescribed
    answered_by = "fda_flower.clients.columns:describe_columns"
    remedy = "the run goes on with the other sites' columns, and with columns = own it does not ask"
