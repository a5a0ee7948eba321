"""Flower strategies for federated domain adaptation; they know no data set, model or client."""

from fda_flower.run_folder import RunFolder
from fda_flower.strategies.adaptive import AdaptiveStrategy
from fda_flower.strategies.apfl import APFL
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.ditto import Ditto
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.fedavg_ft import FedAvgFT
from fda_flower.strategies.fedbn import FedBN
from fda_flower.strategies.fedda import FedDA
from fda_flower.strategies.fedda_joint import FedDAJoint
from fda_flower.strategies.feddaf import FedDAF
from fda_flower.strategies.feddwa import FedDWA
from fda_flower.strategies.fedgp import FedGP
from fda_flower.strategies.fedper import FedPer
from fda_flower.strategies.fedprox import FedProx
from fda_flower.strategies.fedrep import FedRep
from fda_flower.strategies.groupdro import GroupDRO
from fda_flower.strategies.hooks import Aggregated
from fda_flower.strategies.irm import IRM
from fda_flower.strategies.kd3a import KD3A
from fda_flower.strategies.knn_per import KNNPer
from fda_flower.strategies.mixture import Mixture
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.round import Round
from fda_flower.strategies.source_only import SourceOnly
from fda_flower.strategies.target_only import TargetOnly
from fda_flower.strategies.validation import BadReplyError, ClientUpdate
from fda_flower.strategies.vrex import VREx

__all__ = [
    "APFL",
    "IRM",
    "KD3A",
    "AdaptiveStrategy",
    "Aggregated",
    "BadReplyError",
    "ClientUpdate",
    "Ditto",
    "DomainAdaptationStrategy",
    "FedAvg",
    "FedAvgFT",
    "FedBN",
    "FedDA",
    "FedDAF",
    "FedDAJoint",
    "FedDWA",
    "FedGP",
    "FedPer",
    "FedProx",
    "FedRep",
    "GroupDRO",
    "KNNPer",
    "Mixture",
    "Node",
    "Round",
    "RunFolder",
    "SourceOnly",
    "TargetOnly",
    "VREx",
]
