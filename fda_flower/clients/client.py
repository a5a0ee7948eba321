"""The base of source and target clients: one domain, one model, one training loop."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from logging import WARNING
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.common import log
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.aggregation import Calibration, Layers
from fda_flower.aggregation.conformal import exact
from fda_flower.clients.calibration import kept_calibration
from fda_flower.clients.columns import read_domain, received_columns
from fda_flower.clients.gradients import batch_gradients, own_statistics
from fda_flower.clients.patient_steps import train_patients
from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.recorder import make_recorder
from fda_flower.clients.settings import LocalTraining
from fda_flower.clients.training import Objective, limits_of, metrics_of, repeatable, train, training_loss
from fda_flower.datasets import Domain, Samples
from fda_flower.datasets.few_samples import few_events, rare_headline_of, target_problems
from fda_flower.datasets.preparation import Preparation
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
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
from fda_flower.metrics.survival import figures_of_curve
from fda_flower.models.exchange import Exchange, frozen_digest
from fda_flower.models.parts import Part
from fda_flower.names.tasks import NUMBERS
from fda_flower.prediction.batches import batches, device_of
from fda_flower.prediction.passes import Passes, load_layers
from fda_flower.prediction.predictors import Predictor, Single
from fda_flower.prediction.sets import metrics_of_sets
from fda_flower.site.config import MIN_CELL
from fda_flower.site.noise import STEPS, PatientPrivacy, steps_record
from fda_flower.wire import protocol
from fda_flower.wire.arrays import freeze
from fda_flower.wire.numpy_client import NumPyFace
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest, to_layers

Settings = Mapping[str, Any]

Publish = Callable[[Predictor, int, Calibration | None, Preparation | None], None]

ESTIMATION_BATCH = 256
"""Batch size for estimating running statistics."""


@dataclass(eq=False, repr=False)
class DomainClient(NumPyFace):
    """A client that trains on its own domain.

    Parameters
    ----------
    domain : Domain
        Its data; messages bring the means and deviations that standardise the
        columns of a table.
    model : Module
        The network; the server's weights replace its own, except the frozen ones (see `Exchange`).
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
    model: nn.Module
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

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return device_of(self.model)

    @property
    def exchange(self) -> Exchange:
        """The model's arrays that travel, that stay here, and that are frozen."""
        return Exchange.of(self.model)

    def layers(self) -> dict[str, NDArray[Any]]:
        """Return copies of the model's unfrozen arrays, in the order of its state dictionary."""
        return self.exchange.layers(self.model)

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Train as the request asks; clients with another algorithm override this."""
        return self.train_from(self.received(request), request.config)

    def received(self, request: EvaluateRequest) -> dict[str, NDArray[Any]]:
        """Return the model in a request; see `named`."""
        return self.named(request.arrays)

    def named(self, record: ArrayRecord) -> dict[str, NDArray[Any]]:
        """Return the arrays of a message by the names of the state dictionary, in its order."""
        return self.exchange.named(to_layers(record))

    def train_from(
        self,
        model: Layers,
        config: Settings,
        objective: Objective | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> TrainReply:
        """Train from a model for one round.

        Parameters
        ----------
        model : Layers
            The initial model.
        config : Mapping
            ``server-round``; ``rate-factor``, ``epochs`` and ``proximal`` (see `training_in`); ``tune``,
            to train only the ``head`` or the ``body``; and requests: ``gradients`` at `model`, the target's
            ``batch-updates``. At a site that protects each patient its mod adds how; see `train_patients`.
        objective : callable, optional
            The objective to minimise; see `train`.
        on_step : callable, optional
            Called after each step, unless the recorder is.

        Returns
        -------
        TrainReply
            The trained model, ``num-steps``, ``learning-rate``, ``batch-size``, ``train-loss``; where steps
            have noise, the record ``private-steps`` in place of the loss. On request the records
            ``gradients`` and ``batch-updates``.
        """
        self.load(model)
        privacy = self.privacy(config)
        gradients, training = self.gradients(config), self.training_in(config)
        recorder = make_recorder(self.parameters(), config) if self.role == "target" else None
        on_step = on_step if recorder is None else recorder.step
        records: dict[str, Layers] = {protocol.GRADIENTS: gradients} if gradients else {}
        loss: dict[str, float] = {}
        if privacy is None:
            part = config.get(protocol.TUNE, "all")
            steps, loss[protocol.TRAIN_LOSS] = self.train_on("train", config, objective, part, on_step)
        else:
            steps, records[STEPS] = self._train_patients(privacy, config, objective, on_step)
        metrics = {
            protocol.NUM_STEPS: steps,
            protocol.LEARNING_RATE: training.learning_rate,
            protocol.BATCH_SIZE: training.batch_size,
            **loss,
        }
        if recorder is not None:
            records[protocol.BATCH_UPDATES] = recorder.arrays()
        return TrainReply(freeze(self.layers()), len(self.domain.train), metrics, records)

    def gradients(self, config: Settings) -> dict[str, NDArray[Any]]:
        """Return the current model's gradients, if the train message requests them."""
        if config.get(protocol.GRADIENTS) is None:
            return {}
        samples = self.domain.train
        with self.drawing("gradient", config) as generator:
            size, parameters = self.training.batch_size, self.parameters()
            drawn = batches(samples, size, generator, shuffle=True, device=self.device)
            loss = training_loss(samples, self.training)
            return batch_gradients(self.model, drawn, loss, config, parameters).arrays

    def train_on(
        self,
        phase: str,
        config: Settings,
        objective: Objective | None = None,
        part: Part = "all",
        on_step: Callable[[], None] | None = None,
    ) -> tuple[int, float]:
        """Train the current model as in a round (see `train`); `phase` names the random numbers.

        Raises a `ConfigError` at a site that wants noise for each patient: here there is none.
        """
        if self.privacy(config) is not None:
            why = "but the method trains in a way that has no noise for a patient"
            raise invalid("dp-unit", "patient", "choose a method that trains by the plain loss", why)
        samples, training = self.domain.train, self.training_in(config)
        with self.drawing(phase, config) as generator:
            return train(self.model, samples, training, generator, objective, part, on_step)

    def privacy(self, config: Settings) -> PatientPrivacy | None:
        """Return how a training protects each patient; None if its site does not ask for that.

        A target whose site lets its model leave without noise trains without.
        """
        privacy = PatientPrivacy.of(config)
        return None if privacy is not None and privacy.open_model and self.role == "target" else privacy

    def _train_patients(
        self,
        privacy: PatientPrivacy,
        config: Settings,
        objective: Objective | None,
        on_step: Callable[[], None] | None,
    ) -> tuple[int, Layers]:
        """Train as a site asks that protects each patient; return the number of steps, and their record."""
        if objective is not None:
            why = "but the method trains by a loss of its own, whose gradients have no noise for a patient"
            raise invalid("dp-unit", "patient", "choose a method that trains by the plain loss", why)
        self.domain.check_patients()
        with self.drawing("train", config) as generator:
            training = self.training_in(config)
            steps = train_patients(self.model, self.domain.train, training, generator, privacy, on_step)
        return steps[2], steps_record(*steps)

    def local_evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Evaluate as the request asks; clients that predict with more than a network override this."""
        model, config = self.received(request), request.config
        return self.score(
            self.single(model, config), config, calibration=kept_calibration(self.private_state, model)
        )

    def single(self, layers: Layers, config: Settings) -> Single:
        """Return the predictor of a network with these arrays."""
        return Single(self.adapted(layers, config))

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
        before = self.layers() if config.get(protocol.ADABN) else None
        outputs = predictor.outputs(passes or self.passes(config))
        metrics = self.metrics_of(outputs, self.domain.test) | self._units_of(outputs)
        metrics |= limits_of(outputs, self.domain.test, self.domain.labels)
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

    def metrics_of(self, outputs: Tensor, samples: Samples) -> dict[str, float]:
        """Return the metrics of outputs for samples of the domain."""
        return metrics_of(outputs, samples, self.domain.labels, self.domain.mask)

    def judge_of(self, samples: Samples) -> Judge:
        """Return what measures outputs for samples of the domain, NumPy arrays of shape ``(n, C)``."""
        return lambda outputs: self.metrics_of(torch.from_numpy(outputs), samples)

    def _units_of(self, outputs: Tensor) -> dict[str, float]:
        """Return the number of the test set's units, if some have several samples, and what they tell."""
        test = self.domain.test
        if test.units == len(test):
            return {}
        found: dict[str, float] = {UNITS: test.units}
        if test.task == "classes":
            right = outputs.argmax(dim=1).cpu().numpy() == test.y
            size = share_size(right, test.groups)
            found |= {} if size is None else {EFFECTIVE: size}
        return found

    def _metrics_of_sets(self, calibration: Calibration, outputs: Tensor) -> dict[str, float]:
        """Return the metrics of the usual sets on the test set; none if there are too few labels for them."""
        if calibration.most < exact(ASKED) or not len(outputs):
            return {}
        thresholds = calibration.thresholds(ASKED, outputs.shape[1])
        test = self.domain.test
        sets = metrics_of_sets(thresholds, outputs.cpu().numpy(), test.y, self.domain.labels, test.groups)
        return {f"{SETS}-{name}": value for name, value in {"asked": ASKED, **sets}.items()}

    def announce(
        self, predictor: Predictor, config: Settings, calibration: Calibration | None = None
    ) -> None:
        """Publish a predictor if the evaluation is for the run's headline."""
        if self.publish is not None and not config.get(protocol.BESIDE):
            number = int(config.get(protocol.SERVER_ROUND, 0))
            self.publish(predictor, number, calibration, self.domain.preparation)

    def _details(self, outputs: Tensor, config: Settings) -> dict[str, Layers]:
        """Return the arrays of test outputs that a message requests."""
        records, y = dict[str, Layers](), self.domain.test.y
        if self.domain.test.task == "multilabel" and config.get(protocol.CONFUSION):
            figures = figures_of_labels(outputs.cpu().numpy(), y)
            units = units_by_label(y, self.domain.test.groups)
            return {protocol.CONFUSION: {"figures": figures, "examples": np.array(len(y)), **units}}
        if (outcomes := self.domain.test.outcomes) is not None and config.get(protocol.CONFUSION):
            return {protocol.CONFUSION: figures_of_curve(outcomes)}
        if self.domain.test.task != "classes":
            return records
        if config.get(protocol.OUTCOMES):
            right = outputs.argmax(dim=1).cpu().numpy() == y
            records[protocol.OUTCOMES] = {"right": np.packbits(right), "examples": np.array(len(y))}
        if config.get(protocol.CONFUSION):
            records[protocol.CONFUSION] = {
                "counts": confusion(outputs.cpu().numpy(), y),
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
        return Passes(self.model, samples, partial(self.drawing, phase, config), self.device)

    def parameters(self) -> list[Tensor]:
        """Return the model's unfrozen parameters, in the order of its state dictionary."""
        return list(self.exchange.parameters(self.model).values())

    def training_in(self, config: Settings) -> LocalTraining:
        """Return the training settings for a round.

        ``rate-factor`` in the message multiplies the learning rate; ``epochs`` and ``proximal`` replace the
        client's own.
        """
        rate = self.training.learning_rate * config.get(protocol.LEARNING_RATE_FACTOR, 1.0)
        epochs = int(config.get(protocol.EPOCHS, self.training.epochs))
        penalty = config.get(protocol.PROXIMAL, self.training.proximal)
        return _training(self.training, rate, epochs, penalty)

    def load(self, model: Layers) -> None:
        """Load arrays into the model."""
        load_layers(self.model, model)

    @contextmanager
    def drawing(self, phase: str, config: Settings) -> Iterator[torch.Generator]:
        """Derive all randomness in the block from the seed, the phase, the round and the domain."""
        seed = derive_seed(self.seed, phase, config.get(protocol.SERVER_ROUND, 0), self.domain.name)
        with repeatable(seed, self.threads, self.device):
            yield torch.Generator().manual_seed(seed)

    def adapted(self, layers: Layers, config: Settings) -> Layers:
        """Return the model's arrays, with BatchNorm statistics of the domain if a message requests it.

        These are estimated from all training samples, without labels; see `own_statistics`.
        """
        if not config.get(protocol.ADABN):
            return layers
        self.load(layers)
        with self.drawing("adabn", config) as generator, own_statistics(self.model, self._inputs(generator)):
            return self.layers()

    def _inputs(self, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield all training samples of the domain in batches without labels."""
        for samples in (self.domain.train, self.domain.unlabelled):
            if samples is not None:
                yield from (x for x, _ in batches(samples, ESTIMATION_BATCH, generator, device=self.device))


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


@lru_cache(typed=True)
def _training(training: LocalTraining, rate: float, epochs: int, penalty: float) -> LocalTraining:
    """Return the settings with these values, checked; cached, as all messages of a run have the same few."""
    return replace(training, learning_rate=rate, epochs=epochs, proximal=penalty)
