"""FedProx: FedAvg, with each client drawn to the global model while it trains."""

from fda_flower.options import NotNegative
from fda_flower.protocol import PROXIMAL
from fda_flower.strategies.base import Node, Round, TrainRequest
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

    mu: NotNegative = 0.01

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Tell every client the penalty."""
        request = super().train_request(node, round)
        return None if request is None else request.adding(config={PROXIMAL: self.mu})
