"""Flower clients for federated domain adaptation; they know no strategy."""

from fda_flower.clients.aggregation import aggregate_on_target
from fda_flower.clients.client import DomainClient
from fda_flower.clients.ditto import DittoTarget
from fda_flower.clients.feddaf import FedDAFTarget
from fda_flower.clients.optimizer_hooks import record_updates
from fda_flower.clients.recorder import Recorder, make_recorder
from fda_flower.clients.serve import answer_role_query, return_errors, serve
from fda_flower.clients.source import SourceClient
from fda_flower.clients.target import TargetClient
from fda_flower.clients.training import LocalTraining, evaluate, train

__all__ = [
    "DittoTarget",
    "DomainClient",
    "FedDAFTarget",
    "LocalTraining",
    "Recorder",
    "SourceClient",
    "TargetClient",
    "aggregate_on_target",
    "answer_role_query",
    "evaluate",
    "make_recorder",
    "record_updates",
    "return_errors",
    "serve",
    "train",
]
