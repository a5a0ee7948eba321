"""Clients of digits: their networks, and what they are asked."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fda_flower.clients import DomainClient, LocalTraining
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.models import build_model
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest, to_record

Arrays = dict[str, NDArray[Any]]
SPEC = DataSpec("digits", "rotate", target_samples=50)
NOISY = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50, test_samples=60)


def mlp(spec: DataSpec = SPEC, seed: int = 0) -> nn.Module:
    federation = load_federation(spec)
    return build_model("mlp", federation.shape, federation.classes, seed=seed)


def normalised(dropout: float = 0.5) -> nn.Sequential:
    """A network with all that could go wrong: dropout, and integer and float buffers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = (nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(dropout), nn.ReLU())
        return nn.Sequential(*body, nn.Linear(16, 10))


NETWORKS = {"mlp": mlp, "batchnorm": normalised}


def make(kind: Any, model: Any = "mlp", spec: DataSpec = SPEC, training: Any = None, **more: Any) -> Any:
    """A client with the data of its role; ``model`` is a network or a name of `NETWORKS`."""
    settings = LocalTraining(0.05, 11, optimizer="sgd") if training is None else training
    domain = load_federation(spec).domains["target" if kind.role == "target" else "source-1"]
    network = NETWORKS[model]() if isinstance(model, str) else model
    return kind(more.pop("domain", domain), network, settings, **more)


class Scalar(nn.Module):
    """A model of one number ``v`` that predicts ``v x``."""

    def __init__(self, v: float = 0.0) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.tensor([[v]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.v


PARABOLA = Samples(torch.tensor([[0.5**0.5]]), torch.tensor([[2.0**0.5]]))
"""``F(v) = (v − 2)²/2`` as the mean squared error of one sample."""


def scalar(kind: Any, rate: float, epochs: int = 1, **more: Any) -> Any:
    """A client of `PARABOLA`, whose batches are its one sample."""
    return kind(Domain("t", PARABOLA, PARABOLA), Scalar(), LocalTraining(rate, 1, epochs, "sgd"), **more)


def state_of(model: nn.Module) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def trained(client: DomainClient, round: int = 1, model: Any = None, **config: Any) -> TrainReply:
    """The reply to a train message with a model, by default the client's own."""
    arrays = to_record(client.layers() if model is None else model)
    return client.local_train(TrainRequest(arrays, {"server-round": round, **config}))


def evaluated(client: DomainClient, round: int = 1, model: Any = None, **config: Any) -> EvaluateReply:
    """The reply to an evaluate message with a model, by default the client's own."""
    arrays = to_record(client.layers() if model is None else model)
    return client.local_evaluate(EvaluateRequest(arrays, {"server-round": round, **config}))


def same(one: Any, other: Any, names: Any = None) -> bool:
    """Whether two models have the same bits."""
    names = one if names is None else names
    return all(one[name].tobytes() == other[name].tobytes() for name in names)


def kept(client: DomainClient, name: str) -> Arrays:
    """The arrays that a client keeps for itself."""
    found = client.own_state.load(name)
    assert found is not None
    return found[0]


def shifted(model: Arrays, by: float) -> Arrays:
    return {n: np.asarray(a + np.float32(by)) if a.dtype.kind == "f" else a for n, a in model.items()}
