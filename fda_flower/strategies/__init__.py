"""Flower strategies for federated domain adaptation; they know no data set, model or client."""

from fda_flower.run_folder import RunFolder
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.ditto import Ditto
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.fedavg_ft import FedAvgFT
from fda_flower.strategies.fedda import FedDA
from fda_flower.strategies.fedda_joint import FedDAJoint
from fda_flower.strategies.feddaf import FedDAF
from fda_flower.strategies.feddwa import FedDWA
from fda_flower.strategies.fedgp import FedGP
from fda_flower.strategies.fedprox import FedProx
from fda_flower.strategies.hooks import Aggregated
from fda_flower.strategies.mixture import Mixture
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.round import Round
from fda_flower.strategies.source_only import SourceOnly
from fda_flower.strategies.target_only import TargetOnly
from fda_flower.strategies.validation import BadReplyError, ClientUpdate

__all__ = [
    "Aggregated",
    "BadReplyError",
    "ClientUpdate",
    "Ditto",
    "DomainAdaptationStrategy",
    "FedAvg",
    "FedAvgFT",
    "FedDA",
    "FedDAF",
    "FedDAJoint",
    "FedDWA",
    "FedGP",
    "FedProx",
    "Mixture",
    "Node",
    "Round",
    "RunFolder",
    "SourceOnly",
    "TargetOnly",
]
