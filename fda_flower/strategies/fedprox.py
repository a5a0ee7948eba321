"""FedProx: FedAvg, with each client drawn to the global model while it trains."""

import math
from typing import Unpack

from fda_flower.aggregation import SourceWeights
from fda_flower.errors import ConfigError
from fda_flower.protocol import PROXIMAL
from fda_flower.strategies.base import CommonOptions, Node, Record, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg


class FedProx(FedAvg):
    """FedAvg of all clients, each of which minimises ``F_i(v) + μ/2 ‖v − θ‖²`` (Li et al., MLSys 2020).

    ``θ`` is the global model that the client receives (Algorithm 2). The paper lets clients do different
    amounts of work; here each does as much as it is set to. Warm-up rounds have no penalty.

    Parameters
    ----------
    mu : float
        ``μ``: 0 is FedAvg, a large one keeps clients near ``θ``. The paper's are 0.001 to 1, chosen for each
        data set. With SGD the product of μ and the learning rate must stay below 2, else training diverges.
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If μ is negative or not finite.

    Examples
    --------
    >>> from fda_flower.strategies import FedProx
    >>> strategy = FedProx(mu=0.1)
    """

    def __init__(
        self, mu: float = 0.01, *, weights: SourceWeights = "examples", **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(weights=weights, **common)
        if not 0 <= mu < math.inf:
            raise ConfigError(f"mu is {mu}, it must be a number of at least 0: with 0 it is FedAvg")
        self._mu = float(mu)

    def settings(self) -> Record:
        """Return what defines the strategy."""
        return {**super().settings(), "mu": self._mu}

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Tell every client the penalty."""
        request = super().train_request(node, round)
        return None if request is None else request.adding(config={PROXIMAL: self._mu})
