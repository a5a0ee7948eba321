"""Ridge's clients: a source sums over its rows, the target fits its head; nobody trains."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Columns, Layers, Sums, shape_of_head
from fda_flower.clients.client import DomainClient, Settings, SourceClient, TargetClient
from fda_flower.clients.features import features_of, groups_of
from fda_flower.clients.ridge_numpy import (
    Array,
    Samples,
    TargetHead,
    compare,
    fit_site,
    fit_target,
    open_sums,
    placed,
    source_records,
)
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import invalid
from fda_flower.prediction.predictors import Single
from fda_flower.wire import methods as wire
from fda_flower.wire import protocol
from fda_flower.wire.protocol import TrainReply, TrainRequest, to_layers
from fda_flower.wire.secure_sums import SECURE


class OnRows(DomainClient):
    """A client with rows: the features that enter the network's linear layer, and a constant 1."""

    def rows(self, model: Layers, config: Settings) -> tuple[Array, NDArray[Any]]:
        """Return rows, float64 of shape ``(n, d)``, and labels of the training samples."""
        features, labels = features_of(self, model, config)
        return np.hstack([features, np.ones((len(features), 1))]), labels

    def samples(self, model: Layers, config: Settings) -> Samples:
        """Return `rows`, and the patient of each, if there are groups."""
        return *self.rows(model, config), groups_of(self)

    def replying(
        self, request: TrainRequest, records: Mapping[str, Layers], metrics: Mapping[str, float] | None = None
    ) -> TrainReply:
        """Return a reply with the received model, so that its update is zero."""
        received = {name: np.array(array) for name, array in self.received(request).items()}
        return TrainReply(received, len(self.domain.train), metrics or {}, records)

    def columns(self, rows: Array) -> Columns | None:
        """Return how this site standardised its columns, or None if the rows are not a table's."""
        x = self.domain.train.x
        if x.ndim != 2 or not np.array_equal(rows[:, :-1], x.cpu().numpy()):
            return None
        preparation, features = self.domain.preparation, rows.shape[1] - 1
        if isinstance(preparation, TablePreparation):
            return Columns(np.array(preparation.mean), np.array(preparation.deviation))
        return Columns(np.zeros(features), np.ones(features))

    def both_columns(self, rows: Array, sent: Layers) -> tuple[Columns, Columns] | None:
        """Return this site's columns and the ones from the server, or None if either is missing."""
        own, common = self.columns(rows), Columns.from_arrays(sent, rows.shape[1] - 1)
        return None if own is None or common is None else (own, common)

    def outputs(self, model: Layers) -> int | None:
        """Return the number of classes; None for a regression."""
        return None if self.domain.train.y.is_floating_point() else shape_of_head(model)[0]


class RidgeSource(OnRows, SourceClient):
    """A source that sends sums over its rows if the message requests ``sums`` or ``secure-sums``."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Return the model as received, and the record ``sums`` (see `fda_flower.aggregation.Sums`).

        With the setting ``secure-sums``, which names a stage of the protocol, the record is ``secure-sums``
        instead; see `fda_flower.wire.secure_sums`.
        """
        if request.config.keys().isdisjoint({protocol.SUMS, SECURE}):
            return super().local_train(request)
        model = self.received(request)
        samples = partial(self.samples, model, request.config)
        records = source_records(request, self.own_state, samples, self.outputs(model))
        table = protocol.SUMS in records and self.domain.train.x.ndim == 2
        if table and protocol.OF_PATIENTS not in request.config and (columns := self.columns(samples()[0])):
            records = {**records, protocol.SUMS: {**records[protocol.SUMS], **columns.to_arrays()}}
        if self.domain.standardised:  # one more patient changes all rows
            records = {
                name: {key: array for key, array in record.items() if key != protocol.CHANGE}
                for name, record in records.items()
            }
        return self.replying(request, records)


class RidgeSite(RidgeSource):
    """A site where every site is a target: it sends sums, and fits a head if the message has ``total``.

    It subtracts its own sums, as sent, from the total, and keeps its head. The reply has the received model
    and, unless ``report`` is ``none``, figures with and without the others, on its own test set or, without
    one, by leave-one-out on its labels.
    """

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Return the received model; with ``total`` also figures, after publishing the head.

        Raises a `ConfigError` if the site protects its patients: the sums it subtracts have no noise.
        """
        if request.config.get(protocol.OF_PATIENTS):
            why = "but if every site is a target, it would subtract its open sums from noisy ones"
            raise invalid("dp-unit", "patient", "name one target", why)
        if wire.TOTAL not in request.records:
            return super().local_train(request)
        model, config = self.received(request), request.config
        rows, labels = self.rows(model, config)
        own = open_sums(rows, labels, self.outputs(model)).rounded()
        outputs, features = shape_of_head(model)
        sent = to_layers(request.records[wire.TOTAL])  # type: ignore[arg-type]
        total, columns = Sums.from_arrays(sent, features + 1, outputs), self.both_columns(rows, sent)
        fitted = fit_site(rows, labels, total, own, config[wire.PATHS], columns)
        whole = Single(fitted.in_model(model))
        self.announce(whole, config)
        told = self._figures(model, whole, fitted, labels, config) if config[wire.REPORT] == "full" else {}
        return self.replying(request, {}, {wire.KEPT: float(self.publish is not None), **told})

    def _figures(
        self, model: Layers, whole: Single, fitted: TargetHead, labels: NDArray[Any], config: Settings
    ) -> dict[str, float]:
        """Return the metrics of the reply."""
        test, told = (
            self.domain.test,
            {wire.SHARE: fitted.metrics[wire.SHARE]} if wire.SHARE in fitted.metrics else {},
        )
        if not len(test):
            held_out = fitted.held_out
            return told | (compare(held_out[wire.ALONE], held_out[wire.TOGETHER], labels) if held_out else {})
        told[f"{protocol.EVAL}{protocol.NUM_EXAMPLES}"] = len(test)
        passes = self.passes(config)
        outputs = whole.outputs(passes)
        told |= {f"{protocol.EVAL}{key}": value for key, value in self.figures(outputs, test).items()}
        if fitted.alone is None:
            figure = "r2" if test.y.is_floating_point() else "accuracy"
            return told | {wire.TOGETHER: told[f"{protocol.EVAL}{figure}"]}
        alone = Single(placed(model, fitted.alone)).outputs(passes)
        without, together = (each.cpu().double().numpy() for each in (alone, outputs))
        return told | compare(without, together, test.y.cpu().numpy())


class RidgeTarget(OnRows, TargetClient):
    """A target that fits its head if the train message has the record ``sources``."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Return the model with the fitted head, and numbers for the round's record."""
        if wire.SOURCES not in request.records:
            return super().local_train(request)
        model = self.received(request)
        rows, labels = self.rows(model, request.config)
        sent = to_layers(request.records[wire.SOURCES])  # type: ignore[arg-type]
        if (columns := self.both_columns(rows, sent)) is None:
            fitted = fit_target(rows, labels, sent, request.config[wire.PATHS])
        else:
            matrix = columns[0].into(columns[1])
            fitted = fit_target(rows @ matrix, labels, sent, request.config[wire.PATHS]).moved(matrix)
        return TrainReply(fitted.in_model(model), len(rows), fitted.metrics)
