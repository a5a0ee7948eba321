"""A client's network, and its training for a round; PyTorch is imported where it trains."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets import Domain
from fda_flower.errors import invalid
from fda_flower.files import derive_seed
from fda_flower.models.exchange import Exchange
from fda_flower.models.linear import LinearNetwork
from fda_flower.prediction.predictors import Single
from fda_flower.site.noise import STEPS, PatientPrivacy, steps_record
from fda_flower.wire import protocol
from fda_flower.wire.arrays import freeze
from fda_flower.wire.numpy_client import NumPyFace
from fda_flower.wire.protocol import EvaluateRequest, TrainReply, TrainRequest, to_layers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fda_flower.clients.training import Objective
    from fda_flower.models.parts import Part

Settings = Mapping[str, Any]

ESTIMATION_BATCH = 256
"""Batch size for estimating running statistics."""


class Trainee(NumPyFace):
    """The half of a `DomainClient` that trains its network."""

    role: ClassVar[str]

    domain: Domain
    model: Any
    training: LocalTraining
    seed: int
    threads: int

    @property
    def device(self) -> "torch.device":
        """The device of the model."""
        from fda_flower.prediction.batches import device_of

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
        objective: "Objective | None" = None,
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
        from fda_flower.clients.recorder import make_recorder

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
        from fda_flower.clients.gradients import batch_gradients
        from fda_flower.clients.training import training_loss
        from fda_flower.prediction.batches import batches

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
        objective: "Objective | None" = None,
        part: "Part" = "all",
        on_step: Callable[[], None] | None = None,
    ) -> tuple[int, float]:
        """Train the current model as in a round (see `train`); `phase` names the random numbers.

        Raises a `ConfigError` at a site that wants noise for each patient: here there is none.
        """
        if self.privacy(config) is not None:
            why = "but the method trains in a way that has no noise for a patient"
            raise invalid("dp-unit", "patient", "choose a method that trains by the plain loss", why)
        from fda_flower.clients.training import train

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
        objective: "Objective | None",
        on_step: Callable[[], None] | None,
    ) -> tuple[int, Layers]:
        """Train as a site asks that protects each patient; return the number of steps, and their record."""
        if objective is not None:
            why = "but the method trains by a loss of its own, whose gradients have no noise for a patient"
            raise invalid("dp-unit", "patient", "choose a method that trains by the plain loss", why)
        from fda_flower.clients.patient_steps import train_patients

        self.domain.check_patients()
        with self.drawing("train", config) as generator:
            training = self.training_in(config)
            steps = train_patients(self.model, self.domain.train, training, generator, privacy, on_step)
        return steps[2], steps_record(*steps)

    def single(self, layers: Layers, config: Settings) -> Single:
        """Return the predictor of a network with these arrays."""
        return Single(self.adapted(layers, config))

    def parameters(self) -> "list[Tensor]":
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
        from fda_flower.prediction.network_passes import load_layers

        load_layers(self.model, model)

    @contextmanager
    def drawing(self, phase: str, config: Settings) -> "Iterator[torch.Generator]":
        """Derive all randomness in the block from the seed, the phase, the round and the domain."""
        import torch

        from fda_flower.clients.training import repeatable

        seed = derive_seed(self.seed, phase, config.get(protocol.SERVER_ROUND, 0), self.domain.name)
        with repeatable(seed, self.threads, self.device):
            yield torch.Generator().manual_seed(seed)

    def adapts(self, config: Settings) -> bool:
        """Return whether a message requests statistics of the domain for BatchNorm that a model may have."""
        return bool(config.get(protocol.ADABN)) and not isinstance(self.model, LinearNetwork)

    def adapted(self, layers: Layers, config: Settings) -> Layers:
        """Return the model's arrays, with BatchNorm statistics of the domain if a message requests it.

        These are estimated from all training samples, without labels; see `own_statistics`.
        """
        if not self.adapts(config):
            return layers
        from fda_flower.clients.gradients import own_statistics

        self.load(layers)
        with self.drawing("adabn", config) as generator, own_statistics(self.model, self._inputs(generator)):
            return self.layers()

    def _inputs(self, generator: "torch.Generator") -> "Iterator[Tensor]":
        """Yield all training samples of the domain in batches without labels."""
        from fda_flower.prediction.batches import batches

        for samples in (self.domain.train, self.domain.unlabelled):
            if samples is not None:
                yield from (x for x, _ in batches(samples, ESTIMATION_BATCH, generator, device=self.device))


@lru_cache(typed=True)
def _training(training: LocalTraining, rate: float, epochs: int, penalty: float) -> LocalTraining:
    """Return the settings with these values, checked; cached, as all messages of a run have the same few."""
    return replace(training, learning_rate=rate, epochs=epochs, proximal=penalty)
