"""The base of source and target clients: one domain, one model, and its evaluation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from logging import WARNING
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from flwr.app import RecordDict
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Calibration, Layers
from fda_flower.aggregation.conformal import exact
from fda_flower.clients.calibration import kept_calibration
from fda_flower.clients.columns import read_domain, received_columns
from fda_flower.clients.measures import metrics_and_limits, metrics_of
from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.trainee import Settings, Trainee
from fda_flower.datasets import Domain, Samples
from fda_flower.datasets.few_samples import few_events, rare_headline_of, target_problems
from fda_flower.datasets.preparation import Preparation
from fda_flower.errors import ConfigError
from fda_flower.metrics import (
    ASKED,
    EFFECTIVE,
    SETS,
    UNITS,
    Judge,
    confusion,
    figures_of_labels,
    share_size,
    units_by_class,
    units_by_label,
)
from fda_flower.metrics.losses import mean_loss
from fda_flower.metrics.survival import figures_of_curve
from fda_flower.models.exchange import frozen_digest
from fda_flower.models.linear import LinearNetwork
from fda_flower.names.tasks import NUMBERS
from fda_flower.prediction.passes import Passes, passes_of
from fda_flower.prediction.predictors import Predictor
from fda_flower.prediction.sets import metrics_of_sets
from fda_flower.site.config import MIN_CELL
from fda_flower.wire import protocol
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

Publish = Callable[[Predictor, int, Calibration | None, Preparation | None], None]


@dataclass(eq=False, repr=False)
class DomainClient(Trainee):
    """A client that trains on its own domain.

    Parameters
    ----------
    domain : Domain
        Its data; messages bring the means and deviations that standardise the columns of a table.
    model : Module or LinearNetwork
        The network; the server's weights replace its own, except the frozen ones (see `Exchange`). With a
        `LinearNetwork`, which nobody trains, PyTorch is not imported.
    training : LocalTraining
        Settings of a round's training.
    seed : int
        Determines the order of samples, together with the round and the domain.
    threads : int
        Torch's threads during training.
    about : Mapping, optional
        Further properties of the data for the server, such as their ``shape``.
    state : RecordDict, optional
        The context's ``state``, where the client keeps private data; see `PrivateState`.
    own_folder : Path, optional
        Folder for the same data instead.
    publish : callable, optional
        Receives the predictor, the round, the predictor's `Calibration`, if there is one, and the domain's
        preparation after each evaluation for the headline.
    hides : bool
        Whether an answer tells nothing of a head that the client keeps, not even that it could not be fitted:
        whoever chooses the others' sums would find this site's own by trying. So at a site whose heads may
        not leave.
    min_cell, min_samples : int
        The site's rules of these names: what counts of patients are multiples of, and the least number of
        them from which a mean may leave.
    """

    role: ClassVar[str]

    domain: Domain
    model: Any
    training: LocalTraining
    seed: int = 0
    threads: int = 1
    about: Settings | None = None
    state: RecordDict | None = None
    own_folder: Path | None = None
    publish: Publish | None = None
    hides: bool = False
    min_cell: int = MIN_CELL
    min_samples: int = 0

    def __post_init__(self) -> None:
        self.private_state = PrivateState(RecordDict() if self.state is None else self.state, self.own_folder)
        self._domains = (self.domain, self.domain)

    @property
    def as_loaded(self) -> Domain:
        """The domain before a message has standardised its columns."""
        before, after = self._domains
        return before if self.domain is after else self.domain

    def read_domain(self, request: EvaluateRequest) -> None:
        """Take the domain as a message's network reads it; see `fda_flower.datasets.Domain.in_columns`."""
        loaded = self.as_loaded
        self.domain = read_domain(loaded, received_columns(loaded, request))
        self._domains = loaded, self.domain

    def train_reply(self, request: TrainRequest) -> TrainReply:
        """Return the reply to a train request, with the answer to its question, if it has one."""
        if request.question is None or request.question.reads_inputs:
            self.read_domain(request)
        return super().train_reply(request)

    def evaluate_reply(self, request: EvaluateRequest) -> EvaluateReply:
        """Return the reply to an evaluate request, with the answer to its question, if it has one."""
        self.read_domain(request)
        return super().evaluate_reply(request)

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return counts of samples, whether the task is a regression, the frozen digest, and `about`."""
        rest, held_out = self.domain.unlabelled, self.domain.validation
        frozen, task = frozen_digest(self.model), self.domain.train.task
        grouped = {
            protocol.GROUPS: self.domain.train,
            protocol.TEST_GROUPS: self.domain.test,
            protocol.VALIDATION_GROUPS: held_out,
        }
        return {
            protocol.LABELLED: len(self.domain.train),
            protocol.UNLABELLED: 0 if rest is None else len(rest),
            **({} if held_out is None else {protocol.VALIDATION_EXAMPLES: len(held_out)}),
            **{
                name: each.units
                for name, each in grouped.items()
                if each is not None and each.groups is not None
            },
            protocol.TEST: len(self.domain.test),
            protocol.REGRESSION: task == "regression",
            **({} if task in ("classes", "regression") else {protocol.TASK: task}),
            **({protocol.FROZEN: frozen} if frozen else {}),
            **({protocol.COLUMNS: self.domain.columns} if self.domain.columns else {}),
            **(self.about or {}),
        }

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the request asks; clients that predict with more than a network override this."""
        model, config = self.received(request), request.config
        return self.score(
            self.single(model, config), config, calibration=kept_calibration(self.private_state, model)
        )

    def score(
        self,
        predictor: Predictor,
        config: Settings,
        passes: Passes | None = None,
        calibration: Calibration | None = None,
    ) -> EvaluateReply:
        """Evaluate a predictor on the test set and on the validation samples, if any.

        Metrics of the latter begin with ``validation-``. A `calibration` adds the metrics of sets.
        """
        before = self.layers() if self.adapts(config) else None
        outputs = predictor.outputs(passes or self.passes(config))
        test, loss = self.domain.test, self._loss_of(outputs, self.domain.test)
        metrics, limits = metrics_and_limits(outputs, test, loss, self.domain.labels, self.domain.mask)
        metrics |= self._units_of(outputs) | limits
        if calibration is not None:
            metrics |= self._metrics_of_sets(calibration, outputs)
        reply = EvaluateReply(len(outputs), metrics, self._details(outputs, config))
        self.announce(predictor, config, calibration)
        if (held_out := self.domain.validation) is not None:
            outputs = predictor.outputs(self.passes(config, samples=held_out))
            reply = reply.judged_by(self.metrics_of(outputs, held_out))
        if before is not None:
            self.load(before)
        return reply

    def metrics_of(self, outputs: NDArray[Any], samples: Samples) -> dict[str, float]:
        """Return the metrics of outputs for samples of the domain."""
        loss = self._loss_of(outputs, samples)
        return metrics_of(outputs, samples, loss, self.domain.labels, self.domain.mask)

    def _loss_of(self, outputs: NDArray[Any], samples: Samples) -> float:
        if isinstance(self.model, LinearNetwork):
            return mean_loss(outputs, samples.y, samples.task)
        import torch

        from fda_flower.clients import training

        return training.mean_loss(torch.from_numpy(outputs), samples)

    def judge_of(self, samples: Samples) -> Judge:
        """Return what measures outputs for samples of the domain, NumPy arrays of shape ``(n, C)``."""
        return lambda outputs: self.metrics_of(outputs, samples)

    def _units_of(self, outputs: NDArray[Any]) -> dict[str, float]:
        """Return the number of the test set's units, if some have several samples, and what they tell."""
        test = self.domain.test
        if test.units == len(test):
            return {}
        found: dict[str, float] = {UNITS: test.units}
        if test.task == "classes":
            right = outputs.argmax(axis=1) == test.y
            size = share_size(right, test.groups)
            found |= {} if size is None else {EFFECTIVE: size}
        return found

    def _metrics_of_sets(self, calibration: Calibration, outputs: NDArray[Any]) -> dict[str, float]:
        """Return the metrics of the usual sets on the test set; none if there are too few labels for them."""
        if calibration.most < exact(ASKED) or not len(outputs):
            return {}
        thresholds = calibration.thresholds(ASKED, outputs.shape[1])
        test = self.domain.test
        sets = metrics_of_sets(thresholds, outputs, test.y, self.domain.labels, test.groups)
        return {f"{SETS}-{name}": value for name, value in {"asked": ASKED, **sets}.items()}

    def announce(
        self, predictor: Predictor, config: Settings, calibration: Calibration | None = None
    ) -> None:
        """Publish a predictor if the evaluation is for the run's headline."""
        if self.publish is not None and not config.get(protocol.BESIDE):
            number = int(config.get(protocol.SERVER_ROUND, 0))
            self.publish(predictor, number, calibration, self.domain.preparation)

    def _details(self, outputs: NDArray[Any], config: Settings) -> dict[str, Layers]:
        """Return the arrays of test outputs that a message requests."""
        records, y = dict[str, Layers](), self.domain.test.y
        if self.domain.test.task == "multilabel" and config.get(protocol.CONFUSION):
            figures = figures_of_labels(outputs, y)
            units = units_by_label(y, self.domain.test.groups)
            return {protocol.CONFUSION: {"figures": figures, "examples": np.array(len(y)), **units}}
        if (outcomes := self.domain.test.outcomes) is not None and config.get(protocol.CONFUSION):
            return {protocol.CONFUSION: figures_of_curve(outcomes)}
        if self.domain.test.task != "classes":
            return records
        if config.get(protocol.OUTCOMES):
            right = outputs.argmax(axis=1) == y
            records[protocol.OUTCOMES] = {"right": np.packbits(right), "examples": np.array(len(y))}
        if config.get(protocol.CONFUSION):
            records[protocol.CONFUSION] = {
                "counts": confusion(outputs, y),
                **units_by_class(y, outputs.shape[1], self.domain.test.groups),
            }
        return records

    def passes(self, config: Settings, phase: str = "test", samples: Samples | None = None) -> Passes:
        """Return the passes of samples through the network; by default of the test set.

        Raises a `ConfigError` if that has no features, as at a source (`fda_flower.prediction.features`).
        """
        if samples is None:
            samples = self.domain.test
            if tuple(samples.x.shape[1:]) == (0,):
                why = "is not a target of this run, and has no features of its test samples"
                raise ConfigError(f"'{self.domain.name}' {why}", thing="evaluation", value=self.domain.name)
        return passes_of(self.model, samples, partial(self.drawing, phase, config))


class SourceClient(DomainClient):
    """A client of a source domain; see `DomainClient`.

    Examples
    --------
    >>> from fda_flower.clients import LocalTraining
    >>> from fda_flower.datasets import DataSpec, load_federation
    >>> from fda_flower.models import build_model
    >>> data = load_federation(DataSpec("digits", "rotate"))
    >>> model = build_model("mlp", data.shape, data.classes, seed=0)
    >>> client = SourceClient(data.domains["source-1"], model, LocalTraining(0.01, 32))
    >>> _, examples, metrics = client.fit(client.get_parameters({}), {"server-round": 1})
    >>> examples, metrics["num-steps"]
    (337, 11)
    """

    role: ClassVar[str] = "source"


class TargetClient(DomainClient):
    """The client of the target domain; it records its steps on request; see `DomainClient`."""

    role: ClassVar[str] = "target"

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the properties of every client; warn here, not at the server, of too few samples."""
        properties = super().get_properties(config)
        classes = properties.get(protocol.CLASS_NAMES) or range(int(properties.get("classes", 0)))
        numbers = self.domain.train.task in NUMBERS
        names = [] if numbers else [str(name) for name in classes]
        for problem in target_problems(self.domain.test, self.domain.train, names):
            log(WARNING, "The target '%s': %s", self.domain.name, problem)
        rare = rare_headline_of(self.domain.train, len(names))
        properties |= {protocol.FEW_EVENTS: True} if few_events(self.domain.train) else {}
        return properties | ({} if rare is None else {protocol.HEADLINE: rare})
