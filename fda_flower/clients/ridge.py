"""Ridge's answers: a source sums over its rows, the target or every site fits a linear layer; nobody trains.

A row is the features that enter the network's linear layer, and a constant 1.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Sums, shape_of_head, widths_of
from fda_flower.clients.calibration import keep_calibration
from fda_flower.clients.client import DomainClient, TargetClient
from fda_flower.clients.columns import masked_columns
from fda_flower.clients.features import features_and_labels
from fda_flower.clients.ridge_numpy import Array, Labelled, fit_target, source_sums
from fda_flower.clients.secure_sums import masked_sums
from fda_flower.datasets import Samples
from fda_flower.datasets.drawing import Generator
from fda_flower.errors import invalid
from fda_flower.files import derive_seed
from fda_flower.wire.asked.ridge import FitHead, Summed, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import CHANGE, OF_PATIENTS, TrainReply, TrainRequest
from fda_flower.wire.questions import Answer

MOST_UNLABELLED = 4000
"""Largest number of samples without labels that a head is fitted to; of more, these are chosen at random."""


def sum_rows(client: DomainClient, request: TrainRequest, question: SumRows) -> TrainReply:
    """Return sums over the rows.

    At a site that protects its patients the sums have what its mod adds noise with. Raises a `ConfigError` if
    sums with noise are of no use.
    """
    of_patients = bool(request.config.get(OF_PATIENTS))
    if of_patients and not question.noise:
        why = "but the run takes sums without noise alone"
        remedy = "name one target, classes, and paths but 'pooled' and 'logistic'"
        raise invalid("dp-unit", "patient", remedy, why)
    own = rows_of(client, request)
    sums = source_sums(request, own, bool(question.centred))
    if client.domain.from_all_rows:  # one more patient changes all rows
        sums.pop(CHANGE, None)
    return unchanged(client, request, Summed(sums=sums))


def mask_sums(client: DomainClient, request: TrainRequest, question: MaskSums) -> TrainReply:
    """Answer a stage of masked sums over the rows or columns; see `fda_flower.wire.secure_sums`."""

    def sums() -> list[Sums]:
        return rows_of(client, request).sums(bool(question.centred))

    if question.over == "columns":
        return unchanged(client, request, masked_columns(client, request, question))
    return unchanged(client, request, masked_sums(request, question, client.private_state, sums))


def fit_head(client: TargetClient, request: TrainRequest, question: FitHead) -> TrainReply:
    """Return the received model with the fitted linear layer."""
    own = rows_of(client, request, question.unlabelled)
    fitted = fit_target(own, question)
    model = fitted.in_model(client.received(request))
    keep_calibration(client.private_state, model, fitted.calibration(own))
    return TrainReply(model, len(own.rows), answer=fitted.answer())


def rows_of(client: DomainClient, request: TrainRequest, rest: bool = False) -> Labelled:
    """Return the training samples as rows; with `rest` the samples without labels, too."""
    model = client.received(request)
    features, labels = features_and_labels(client, model, request.config)
    unlabelled, rows, theirs = client.domain.unlabelled if rest else None, None, None
    if unlabelled is not None and len(unlabelled):
        chosen = chosen_at_random(unlabelled, derive_seed(client.seed, "ridge", client.domain.name))
        rows = _with_one(features_and_labels(client, model, request.config, chosen)[0])
        theirs = chosen.groups
    classes, train = classes_of(client, request), client.domain.train
    own = Labelled(_with_one(features), labels, classes, widths_of(model), train.groups, rows, theirs)
    seed = derive_seed(client.seed, "curve", client.domain.name)
    return replace(own, judge=client.judge_of(train), what=train.task, outcomes=train.outcomes, seed=seed)


def _with_one(features: NDArray[Any]) -> Array:
    return np.hstack([features, np.ones((len(features), 1))])


def chosen_at_random(samples: Samples, seed: int) -> Samples:
    """Return at most `MOST_UNLABELLED` samples, in their order."""
    if len(samples) <= MOST_UNLABELLED:
        return samples
    order = samples.order(Generator(seed))
    return samples.take(np.sort(order[:MOST_UNLABELLED]))


def classes_of(client: DomainClient, request: TrainRequest) -> int | None:
    """Return the number of classes; None for other tasks."""
    return None if client.domain.train.task != "classes" else shape_of_head(client.received(request))[0]


def unchanged(client: DomainClient, request: TrainRequest, answer: Answer) -> TrainReply:
    """Return a reply with the received model, so that its update is zero."""
    received = {name: np.array(array) for name, array in client.received(request).items()}
    return TrainReply(received, len(client.domain.train), answer=answer)
