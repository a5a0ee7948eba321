"""FedAvg FT: FedAvg, judged by what the target makes of its model."""

from typing import Unpack

from fda_flower.aggregation import Weighting
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.personal import EvaluatesTrained


class FedAvgFT(EvaluatesTrained, FedAvg):
    """FedAvg of all clients; the headline is the target's model after its local training.

    It is fine-tuned in every round, from the global model anew (Sen et al., Section 5.2.3). Fine-tuning once,
    after the sources have trained, is the method ``finetune-offline``.

    Parameters
    ----------
    weights : {"uniform", "examples"}
        Of the clients' mean, the target among them.
    **common
        See `DomainAdaptationStrategy`.
    """

    def __init__(self, *, weights: Weighting = "uniform", **common: Unpack[CommonOptions]) -> None:
        super().__init__(weights=weights, **common)
