"""Clients of digits: their networks, and what they are asked."""

from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from fda_flower.clients import LocalTraining
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.models import build_model
from fda_flower.wire.asked.mixture import EvaluateMixture
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=50)
NOISY = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50, test_samples=60)


def mlp(spec=SPEC, seed=0):
    federation = load_federation(spec)
    return build_model("mlp", federation.shape, federation.classes, seed=seed)


def normalised(dropout: float = 0.5) -> nn.Sequential:
    """A network with all that could go wrong: dropout, and integer and float buffers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = (nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(dropout), nn.ReLU())
        return nn.Sequential(*body, nn.Linear(16, 10))


NETWORKS = {"mlp": mlp, "batchnorm": normalised}


def make(kind, model="mlp", spec=SPEC, training=None, **more):
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


PARABOLA = Samples(np.array([[0.5**0.5]], np.float32), np.array([[2.0**0.5]], np.float32))
"""``F(v) = (v − 2)²/2`` as the mean squared error of one sample."""


def scalar(kind, rate, epochs=1, **more):
    """A client of `PARABOLA`, whose batches are its one sample."""
    return kind(Domain("t", PARABOLA, PARABOLA), Scalar(), LocalTraining(rate, 1, epochs, "sgd"), **more)


def state_of(model):
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def trained(client, round=1, model=None, question=None, **config):
    """The reply to a train message with a model, by default the client's own."""
    arrays = to_record(client.layers() if model is None else model)
    return client.train_reply(TrainRequest(arrays, {"server-round": round, **config}, question=question))


def evaluated(client, round=1, model=None, question=None, **config):
    """The reply to an evaluate message with a model, by default the client's own."""
    arrays = to_record(client.layers() if model is None else model)
    request = EvaluateRequest(arrays, {"server-round": round, **config}, question=question)
    return client.evaluate_reply(request)


def mixture_of(plan, first, first_round=1, report="full", student=False):
    """The question for a mixture after a plan."""
    more = {"first": first, "first_round": first_round, "report": report, "student": student}
    return EvaluateMixture(**asdict(plan), **more)


def same(one, other, names=None):
    """Whether two models have the same bits."""
    names = one if names is None else names
    return all(one[name].tobytes() == other[name].tobytes() for name in names)


def kept(client, name):
    """The arrays that a client keeps for itself."""
    return client.private_state.load(name)[0]


def shifted(model, by):
    return {n: np.asarray(a + np.float32(by)) if a.dtype.kind == "f" else a for n, a in model.items()}
