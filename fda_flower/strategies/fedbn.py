"""FedBN: FedAvg, in which every client keeps its BatchNorm layers for itself."""

from collections.abc import Mapping
from typing import ClassVar

from fda_flower.strategies.local_part import LocalPart


class FedBN(LocalPart):
    """FedAvg of all arrays but those of BatchNorm layers (Li et al., "FedBN", ICLR 2021).

    Parameters, running statistics and counters of BatchNorm layers stay at each client, see `LocalPart`. The
    target evaluates the new global model with its own. On a network without BatchNorm this is FedAvg.

    Parameters
    ----------
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Examples
    --------
    >>> from fda_flower.strategies import FedBN
    >>> strategy = FedBN(weights="uniform")
    """

    part = "batch-norm"
    refused_buffers: ClassVar[Mapping[str, str]] = {
        "target": "every client keeps its running statistics, which the server never sees"
    }
