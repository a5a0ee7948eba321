"""Flower strategies for federated domain adaptation; they know no data set, model or client."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.records.folder import RunFolder
    from fda_flower.strategies.adaptive import AdaptiveStrategy, FedDA, FedDAJoint, FedGP
    from fda_flower.strategies.base import DomainAdaptationStrategy
    from fda_flower.strategies.fada import FADA
    from fda_flower.strategies.features import PFedFDA
    from fda_flower.strategies.fedavg import FedAvg, FedAvgFT, FedProx, SourceOnly, TargetOnly
    from fda_flower.strategies.generalisation import IRM, FedOMG, GroupDRO, VREx
    from fda_flower.strategies.kd3a import KD3A
    from fda_flower.strategies.method import Aggregated
    from fda_flower.strategies.mixture import Mixture
    from fda_flower.strategies.nodes import Node
    from fda_flower.strategies.personal import APFL, Ditto, FedDAF, FedDWA, KNNPer
    from fda_flower.strategies.personal_layers import FedBN, FedPer, FedRep
    from fda_flower.strategies.replies import BadReplyError, ClientUpdate
    from fda_flower.strategies.ridge import Ridge
    from fda_flower.strategies.ridge_sites import RidgeEverySite
    from fda_flower.strategies.round import Round
else:
    __getattr__, __dir__ = lazy_exports(__name__)

# fmt: off
__all__ = [
    "APFL", "FADA", "IRM", "KD3A", "AdaptiveStrategy", "Aggregated", "BadReplyError", "ClientUpdate", "Ditto",
    "DomainAdaptationStrategy", "FedAvg", "FedAvgFT", "FedBN", "FedDA", "FedDAF", "FedDAJoint", "FedDWA",
    "FedGP", "FedOMG", "FedPer", "FedProx", "FedRep", "GroupDRO", "KNNPer", "Mixture", "Node",
    "PFedFDA", "Ridge", "RidgeEverySite", "Round", "RunFolder", "SourceOnly", "TargetOnly", "VREx",
]
# fmt: on
