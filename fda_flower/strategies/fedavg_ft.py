"""FedAvg FT: FedAvg, judged by what the target makes of its model."""

from typing import Literal, Unpack

from flwr.app import ConfigRecord

from fda_flower.aggregation import SourceWeights
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.node import Node
from fda_flower.strategies.personal import EvaluatesTrained


class FedAvgFT(EvaluatesTrained, FedAvg):
    """FedAvg of all clients; the headline is the target's model after its local training.

    It is fine-tuned in every round, from the global model anew (Sen et al., Section 5.2.3). Fine-tuning once,
    after the sources have trained, is the method ``finetune-offline``.

    Parameters
    ----------
    weights : {"uniform", "examples"}
        Of the clients' mean, the target among them.
    tune : {"all", "head"}
        What the target trains: all parameters, or those of the last linear layer.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If `tune` is another word.
    """

    def __init__(
        self,
        *,
        weights: SourceWeights = "uniform",
        tune: Literal["all", "head"] = "all",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(weights=weights, **common)
        if tune not in ("all", "head"):
            raise ConfigError(f"tune is '{tune}': choose all or head")
        self._tune = tune

    def settings(self) -> Record:
        """What defines the strategy."""
        return {**super().settings(), "tune": self._tune}

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """Tell the target what to train."""
        asked = super().extra_config(server_round, node)
        if node.is_target and self._tune == "head":
            asked["tune"] = self._tune
        return asked
