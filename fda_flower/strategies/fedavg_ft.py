"""FedAvg FT: FedAvg, whose headline is the model that the target fine-tunes in every round."""

from typing import Literal

from fda_flower.aggregation import SourceWeights
from fda_flower.protocol import TUNE
from fda_flower.strategies.base import Node, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg


class FedAvgFT(FedAvg):
    """FedAvg of all clients; the headline is the target's model after its local training.

    The target fine-tunes the global model anew in every round (Sen et al., Section 5.2.3). The method
    ``finetune-offline`` fine-tunes once, after the sources have trained.

    Parameters
    ----------
    weights : {"uniform", "examples"}
        Weights of the mean of all clients, the target included.
    tune : {"all", "head"}
        What the target trains: all parameters, or only the last linear layer.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If `tune` is another word.
    """

    evaluates_trained = True

    weights: SourceWeights = "uniform"
    tune: Literal["all", "head"] = "all"

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Tell the target what to train."""
        request = super().train_request(node, round)
        if request is None or not node.is_target or self.tune == "all":
            return request
        return request.adding(config={TUNE: self.tune})
