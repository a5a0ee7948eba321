"""Ditto: FedAvg, and beside it a personal model of the target that is drawn towards the global one."""

from collections.abc import Mapping
from typing import Literal

from fda_flower.options import NotNegative
from fda_flower.protocol import FRESH_START, PERSONAL, PROXIMAL
from fda_flower.strategies.base import Node, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.own_model import OwnModel


class Ditto(OwnModel, FedAvg):
    """``min_v F_T(v) + λ/2 ‖v − θ‖²`` with ``θ`` by FedAvg (Li et al., "Ditto", ICML 2021, Algorithm 1).

    All clients train the global model ``θ``, as in FedAvg. The target, which runs
    `fda_flower.clients.DittoTarget`, also trains its personal model ``v``, which never leaves it. The
    headline is the accuracy of ``v``; ``accuracy-global`` is the accuracy of ``θ``. A round's record has the
    target's ``distance``, ``‖v − θ‖`` before the round's training. If the target has lost ``v``, it begins
    again at ``θ``, and the record has the target's ``fallback``.

    Parameters
    ----------
    lam : float
        ``λ``: 0 trains ``v`` alone, a large one keeps it near ``θ``. The product of λ and the learning rate
        must stay below 2, else the training of ``v`` diverges.
    global_branch : {"fedavg", "none"}
        ``"fedavg"`` is the paper's method. With ``"none"`` all clients train from ``θ`` with the penalty, the
        server averages these models, and the target's is the personal one: FedProx with ``μ = λ``.
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If λ is negative or not finite, or `global_branch` is another word.

    Examples
    --------
    >>> from fda_flower.strategies import Ditto
    >>> strategy = Ditto(lam=0.1)
    """

    evaluates_trained = True

    lam: NotNegative = 1.0
    global_branch: Literal["fedavg", "none"] = "fedavg"

    @property
    def _has_global_branch(self) -> bool:
        return self.global_branch == "fedavg"

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Ask the target for its personal model; without a global branch, all clients for the penalty."""
        request = super().train_request(node, round)
        if request is None or (self._has_global_branch and not node.is_target):
            return request
        if not self._has_global_branch:
            return request.adding(config={PROXIMAL: self.lam})
        return request.adding(
            config={PERSONAL: self.lam},
            requires={"distance": "Ditto's target has to be served by fda_flower.clients.DittoTarget"},
            measures={"distance": "distance", FRESH_START: FRESH_START},
        )

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs by role; beside a global branch, the target trains its personal model too."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        total["target"] += rounds * epochs["target"] * self._has_global_branch
        return total
