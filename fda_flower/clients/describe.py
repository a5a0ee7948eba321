"""What a site says of its rows before any training, and how it compares itself with all others."""

from collections.abc import Sequence
from functools import reduce
from logging import INFO

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Columns
from fda_flower.aggregation.apart import apart
from fda_flower.aggregation.bins import Counts
from fda_flower.aggregation.columns import LIMBS
from fda_flower.aggregation.describing import SiteRows, Statistics, Totals
from fda_flower.aggregation.survival import Outcomes
from fda_flower.clients.client import DomainClient
from fda_flower.clients.columns import received_columns
from fda_flower.clients.ridge import unchanged
from fda_flower.clients.secure_sums import masked_words
from fda_flower.datasets import Domain, Samples
from fda_flower.errors import ConfigError
from fda_flower.records.alike import Alike
from fda_flower.wire.asked.describe import (
    CompareWithRest,
    CountRows,
    DescribeRows,
    MaskStatistics,
    RestCompared,
    RowsCounted,
    RowsDescribed,
)
from fda_flower.wire.protocol import CLASS_NAMES, TrainReply, TrainRequest
from fda_flower.wire.questions import Answer
from fda_flower.wire.secure_sums import Words

REST = "the others"
"""How a site's own log calls all others."""


def rows_at_site(domain: Domain, classes: int) -> SiteRows:
    """Return all rows of a domain, whatever they are for: a table's as they were read, or features."""
    width = domain.train.x.shape[1:]
    parts = [each for each in domain.parts.values() if each.x.shape[1:] == width and len(each)]
    if len(width) != 1:
        remedy = "choose a pretrained network, whose features are compared"
        raise ConfigError("images have no rows to describe", thing="images", value=domain.name, remedy=remedy)
    groups = [each.groups for each in parts if each.groups is not None]
    rows = sum(map(len, parts))
    units = np.concatenate(groups) if len(groups) == len(parts) else np.arange(rows)
    values = np.concatenate([_values_of(each) for each in parts])
    labels = np.concatenate([_labels_of(each, classes) for each in parts])
    return SiteRows(values, labels, np.unique(units, return_inverse=True)[1], classes, _events_in(parts))


def _events_in(parts: Sequence[Samples]) -> NDArray[np.float64] | None:
    """Return the share of patients with the event by each horizon; None of another task than survival."""
    followed = [each.outcomes for each in parts if each.outcomes is not None]
    return 1 - reduce(Outcomes.joined, followed).curve if followed else None


def _values_of(samples: Samples) -> NDArray[np.float64]:
    values = samples.x if samples.values is None else samples.values
    return np.asarray(values, np.float64)


def _labels_of(samples: Samples, classes: int) -> NDArray[np.int64]:
    """Return the classes of samples, or which of several labels each has; -1 where it is unknown."""
    y = samples.y.astype(np.float64)
    if not classes or samples.task == "survival":
        return np.full(len(y), -1)
    return np.where(np.isnan(y), -1, y).astype(np.int64)


def statistics_of(client: DomainClient, classes: int) -> tuple[SiteRows, Statistics]:
    """Return a site's rows, and what it says of them first."""
    rows = rows_at_site(client.as_loaded, classes)
    return rows, Statistics.of(rows, client.min_cell, client.min_samples)


def describe_rows(client: DomainClient, request: TrainRequest, question: DescribeRows) -> TrainReply:
    """Say numbers of rows, units and classes, and each column's moments; there is no model."""
    _, own = statistics_of(client, question.classes)
    counts, moments = own.to_arrays()
    numbers = {"rows": own.rows, "units": own.units, "cell": own.cell}
    answer = RowsDescribed(**numbers, horizons=_horizons(client), counts=counts, moments=moments)
    return _without_model(client, answer)


def _horizons(client: DomainClient) -> tuple[float, ...]:
    outcomes = client.domain.train.outcomes
    return () if outcomes is None else outcomes.horizons


def count_rows(client: DomainClient, request: TrainRequest, question: CountRows) -> TrainReply:
    """Count the units in bins around the means of all sites; there is no model."""
    counts, numbers = _counts_of(client, request, question.classes).to_arrays()
    return _without_model(client, RowsCounted(counts=counts, numbers=numbers))


def _counts_of(client: DomainClient, request: TrainRequest, classes: int) -> Counts:
    rows, own = statistics_of(client, classes)
    return Counts.of(rows, own, _common(client, request))


def _common(client: DomainClient, request: TrainRequest) -> Columns:
    columns = received_columns(client.as_loaded, request)
    if columns is None:
        what = "the message has no means of all sites"
        raise ConfigError(what, thing="columns", value=client.domain.name)
    return Columns(*np.frombuffer(columns).reshape(2, -1))


def _without_model(client: DomainClient, answer: Answer) -> TrainReply:
    return TrainReply({}, len(client.domain.train), answer=answer)


def mask_statistics(client: DomainClient, request: TrainRequest, question: MaskStatistics) -> TrainReply:
    """Answer a stage of masked sums over moments or counts; see `fda_flower.wire.secure_sums`."""

    def words() -> Words:
        if question.over == "counts":
            return _counts_of(client, request, question.classes).to_words()
        return statistics_of(client, question.classes)[1].to_words()

    answer = masked_words(request, question, client.private_state, words, LIMBS)
    return unchanged(client, request, answer)


def compare_with_rest(client: DomainClient, request: TrainRequest, question: CompareWithRest) -> TrainReply:
    """Subtract the site from the totals, and compare it with the rest; its own log has the sentences."""
    rows, own = statistics_of(client, question.classes)
    form, common = (rows.values.shape[1], question.classes), _common(client, request)
    counts = Counts.of(rows, own, common)
    try:
        rest = Totals.of(question.totals["moments"], form).without(own).statistics(own.cell)
        others = Counts.from_words(question.totals["counts"], form).without(counts)
    except (KeyError, ValueError, OverflowError) as error:
        why = f"the message has totals that cannot be used: {error}"
        raise ConfigError(why, thing="totals", value=client.domain.name) from error
    name, about = client.domain.name, client.about or {}
    columns = list(getattr(client.domain.preparation, "features", ())) or [
        f"column {j + 1}" for j in range(form[0])
    ]
    classes = [str(each) for each in about.get(CLASS_NAMES, range(question.classes))]
    several = client.domain.train.task != "classes"
    alike = Alike({name: (own, counts), REST: (rest, others)}, common, columns, classes, several=several)
    (pair,) = alike.to_record()["pairs"]
    log(INFO, "%s", pair["sentence"])
    if question.report == "none":
        return _without_model(client, RestCompared())
    distances = apart((own, counts), (rest, others), common).distances
    return _without_model(client, RestCompared(distances={"distances": np.nan_to_num(distances)}))
