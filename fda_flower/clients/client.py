"""What source and target clients share: one domain, one model, one training loop."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.client import NumPyClient
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.clients.recorder import Recorder
from fda_flower.clients.training import LocalTraining, evaluate, repeatable, train
from fda_flower.datasets import Domain
from fda_flower.seeds import derive_seed

NDArrays = list[NDArray[Any]]

PERSONAL = "personal"
"""The record of a client's state that holds a model of its own; the server may give it back in a message."""


class DomainClient(NumPyClient):
    """A client that trains on its own domain.

    Parameters
    ----------
    domain : Domain
        Its data, on the device of the model.
    model : Module
        The network; its weights are overwritten by the server's.
    training : LocalTraining
        How it trains in a round.
    seed : int
        With the round and the domain it decides the order of samples, whichever process runs it.
    threads : int
        Torch's threads while it trains.
    about : Mapping, optional
        What else the server is told of the data when it asks for the role, such as their ``shape``.
    state : RecordDict, optional
        What is kept between rounds, if anything: the context's ``state``.
    """

    role: ClassVar[str]

    def __init__(
        self,
        domain: Domain,
        model: nn.Module,
        training: LocalTraining,
        seed: int = 0,
        threads: int = 1,
        about: Mapping[str, Any] | None = None,
        state: RecordDict | None = None,
    ) -> None:
        self.domain = domain
        self.model = model
        self.training = training
        self._seed = seed
        self._threads = threads
        self._about = dict(about or {})
        self._state = RecordDict() if state is None else state

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """The labelled samples to train on, ``examples``, and what the client was given as `about`."""
        return {"examples": len(self.domain.train), **self._about}

    def get_parameters(self, config: dict[str, Any]) -> NDArrays:
        """Copies of the model's arrays, in the order of its state dictionary."""
        return [tensor.detach().cpu().numpy().copy() for tensor in self.model.state_dict().values()]

    def fit(self, parameters: NDArrays, config: dict[str, Any]) -> tuple[NDArrays, int, dict[str, Any]]:
        """Train from the server's model for one round.

        Parameters
        ----------
        parameters : list of arrays
            The global model, in the order of the state dictionary.
        config : dict
            ``server-round``; ``rate-factor``, which multiplies the learning rate; ``evaluate-trained`` and
            ``guidance``, which ask for what they say; ``tune``, of `train`; and for the target what
            `recorder` reads.

        Returns
        -------
        tuple
            The trained model, the number of examples, and the metrics ``num-steps``,
            ``learning-rate``, ``train-loss``. If asked: ``eval-accuracy``, ``eval-loss`` and
            ``eval-num-examples`` of the trained model on the domain's test set; and arrays, in NumPy's file
            format, which `fda_flower.clients.serve` sends as records: ``batch-updates.*``, and
            ``guidance.*``, the parameters after as much training again.
        """
        self._load(parameters)
        server_round = config.get("server-round", 0)
        rate = self.training.learning_rate * config.get("rate-factor", 1.0)
        training = replace(self.training, learning_rate=rate)
        recorder = self.recorder(config)
        steps, loss = self._train("train", server_round, training, recorder, config.get("tune", "all"))
        metrics: dict[str, Any] = {
            "num-steps": steps,
            "learning-rate": rate,
            "train-loss": loss,
        }
        if recorder is not None:
            metrics |= as_metrics("batch-updates", recorder.arrays())
        trained = self.get_parameters({})
        if config.get("evaluate-trained"):
            loss, accuracy = self._evaluate(server_round)
            examples = len(self.domain.test)
            metrics |= {"eval-loss": loss, "eval-accuracy": accuracy, "eval-num-examples": examples}
        if config.get("guidance"):
            self._train("guidance", server_round, training)
            parameters_now = self.model.named_parameters(remove_duplicate=False)
            metrics |= as_metrics("guidance", {n: p.detach().cpu().numpy() for n, p in parameters_now})
        return trained, len(self.domain.train), metrics

    def evaluate(self, parameters: NDArrays, config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        """Loss, number of examples and ``accuracy`` of the server's model on the domain's test set."""
        self._load(parameters)
        loss, accuracy = self._evaluate(config.get("server-round", 0))
        return loss, len(self.domain.test), {"accuracy": accuracy}

    def recorder(self, config: dict[str, Any]) -> Recorder | None:
        """What records the steps of this round, if anything."""
        return None

    def parameters_in_order(self) -> list[Tensor]:
        """The model's parameters, without its buffers, in the order of its state dictionary."""
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        return [parameters[name] for name in self.model.state_dict() if name in parameters]

    def _train(
        self,
        phase: str,
        server_round: int,
        training: LocalTraining,
        recorder: Recorder | None = None,
        tune: str = "all",
    ) -> tuple[int, float]:
        with self._drawing(phase, server_round) as generator:
            return train(self.model, self.domain.train, training, generator, recorder, tune)

    def _evaluate(self, server_round: int) -> tuple[float, float]:
        with self._drawing("test", server_round) as generator:
            return evaluate(self.model, self.domain.test, generator)

    @contextmanager
    def _drawing(self, phase: str, server_round: int) -> Iterator[torch.Generator]:
        """All randomness inside follows from the seed, the phase, the round and the domain."""
        seed = derive_seed(self._seed, phase, server_round, self.domain.name)
        with repeatable(seed, self._threads, self.domain.train.y.device):
            yield torch.Generator().manual_seed(seed)

    def _load(self, parameters: NDArrays) -> None:
        state = self.model.state_dict()
        tensors = (torch.from_numpy(array) for array in parameters)
        self.model.load_state_dict(dict(zip(state, tensors, strict=True)))


def as_metrics(record: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Arrays as metrics ``RECORD.NAME`` in NumPy's file format, never pickled."""
    metrics = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        metrics[f"{record}.{name}"] = buffer.getvalue()
    return metrics
