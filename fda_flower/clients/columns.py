"""A table's columns at a client: what a source says of them, and the common ones that a message brings."""

from logging import WARNING
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from flwr.common import log

from fda_flower.aggregation import Columns, Moments
from fda_flower.aggregation.columns import LIMBS, columns_far
from fda_flower.clients.secure_sums import masked_words
from fda_flower.datasets import Domain
from fda_flower.errors import ConfigError, some
from fda_flower.wire import protocol
from fda_flower.wire.arrays import to_layers
from fda_flower.wire.asked.columns import ColumnsDescribed, DescribeColumns
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.protocol import EvaluateRequest, TrainReply, TrainRequest
from fda_flower.wire.secure_sums import Words

if TYPE_CHECKING:
    from fda_flower.clients.client import DomainClient


READ = WeakKeyDictionary[Domain, tuple[bytes | None, Domain]]()
"""Domains as a network last read them, since all messages of a run have the same columns; freed with them."""


def describe_columns(client: "DomainClient", request: TrainRequest, question: DescribeColumns) -> TrainReply:
    """Return number of rows, means and deviations of a source's columns, and no model."""
    columns, rows = columns_of(client.as_loaded), len(client.domain.train)
    return TrainReply({}, rows, answer=ColumnsDescribed(rows=rows, columns=columns.to_arrays()))


def masked_columns(client: "DomainClient", request: TrainRequest, question: MaskSums) -> Masked:
    """Answer a stage of masked sums over the values of the columns."""

    def words() -> Words:
        return Moments.of(columns_of(client.as_loaded), len(client.domain.train)).to_words()

    return masked_words(request, question, client.private_state, words, LIMBS)


def columns_of(domain: Domain) -> Columns:
    """Return mean and deviation of a table's values, over its training samples."""
    if domain.preparation is None or not domain.columns:
        raise ConfigError("the samples are no rows of a table", thing="columns", value=domain.name)
    return domain.preparation.described(domain.train.x)


def read_domain(domain: Domain, columns: bytes | None) -> Domain:
    """Return a domain as a network reads it, with the bytes of a message's common columns, if any."""
    last = READ.get(domain)
    if last is None or last[0] != columns:
        READ[domain] = last = columns, _standardised(domain, columns)
    return last[1]


def _standardised(domain: Domain, columns: bytes | None) -> Domain:
    if columns is None:
        return domain.in_columns(None)
    common = Columns(*np.frombuffer(columns).reshape(2, -1))
    own, names = columns_of(domain), getattr(domain.preparation, "features", ())
    far = [
        f"{names[j]} ({own.means[j]:.3g} ± {own.deviations[j]:.3g}, at the sources {common.means[j]:.3g} ± "
        f"{common.deviations[j]:.3g})"
        for j in columns_far(own, common)
    ]
    if far:
        what = "columns that are far from the sources', as in another unit"
        log(WARNING, "'%s' has %s: %s", domain.name, what, some(far))
    return domain.in_columns(common)


def received_columns(domain: Domain, request: EvaluateRequest) -> bytes | None:
    """Return the bytes of the common means and deviations in a message; None without any.

    Raises a `ConfigError` if they are not of this domain's columns.
    """
    record: Any = request.records.get(protocol.COLUMNS)
    if record is None:
        return None
    try:
        columns = Columns.from_arrays(to_layers(record), domain.columns)
    except (ValueError, AttributeError, TypeError) as error:
        message = f"the message has common columns that cannot be used: {error}"
        raise ConfigError(message, thing="columns", value=domain.name) from error
    return np.stack([columns.means, columns.deviations]).tobytes()
