"""APFL: FedAvg, and beside it a model of the target's own, trained in a mixture with the global one."""

from collections.abc import Mapping
from typing import Literal

from fda_flower.errors import ConfigError
from fda_flower.options import NotNegative, Share
from fda_flower.protocol import (
    ADAPTIVE,
    ALPHA,
    ALPHA_DECAY,
    FRESH_START,
    MIX,
    MIXING,
    EvaluateRequest,
)
from fda_flower.strategies.base import Node, Record, Round, TrainRequest
from fda_flower.strategies.fedavg import FedAvg
from fda_flower.strategies.own_model import OwnModel


class APFL(OwnModel, FedAvg):
    """``a v + (1 − a) θ`` on the target, with ``θ`` by FedAvg.

    Deng et al., "Adaptive Personalized Federated Learning", 2020. All clients train the global model ``θ``,
    as in FedAvg. The target, which runs `fda_flower.clients.APFLTarget`, also trains a model ``v`` of its
    own, which never leaves it. The headline is the accuracy of the mixture of ``v`` and the new ``θ``;
    ``accuracy-global`` is the accuracy of ``θ``. A round's record has the target's ``alpha``, the weight
    ``a`` after the round. If the target has lost ``v``, it begins again as ``θ``, and the record has the
    target's ``fallback``.

    The sources train ``θ`` alone: models of their own would not change the target's.

    Parameters
    ----------
    mixing : float
        ``a``, the weight of the target's own model, in [0, 1]: 0 is FedAvg, with 1 the target trains ``v``
        alone. With `adaptive`, its first value.
    mix : {"outputs", "parameters"}
        What is mixed: the outputs of two networks (logits, or a regression's numbers), as in the authors'
        code, or their parameters, as in the paper's Algorithm 1 (unverified: the paper's text was not read).
    adaptive : bool
        Whether the target moves ``a`` against the gradient of the mixture's loss, once a round on the first
        batch, with the learning rate of the model; ``a`` stays in [0, 1].
    alpha_decay : float
        With `adaptive`: ``alpha_decay · a`` is added to this gradient, which pulls towards the global model.
        The authors' code has 0.02.
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number or a word cannot work.

    Examples
    --------
    >>> from fda_flower.strategies import APFL
    >>> strategy = APFL(mixing=0.75)
    """

    keeps_own = True

    mixing: Share = 0.5
    mix: Literal["outputs", "parameters"] = "outputs"
    adaptive: bool = False
    alpha_decay: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha_decay and not self.adaptive:
            raise ConfigError(
                f"alpha_decay is {self.alpha_decay}, but the mixing weight is fixed: leave it out, or set "
                "adaptive=true"
            )
        self._mixture: Record = {MIXING: self.mixing, MIX: self.mix}
        self._adapting: Record = {ADAPTIVE: self.adaptive, ALPHA_DECAY: self.alpha_decay}

    def train_request(self, node: Node, round: Round) -> TrainRequest | None:
        """Ask the target to train its own model too."""
        request = super().train_request(node, round)
        if request is None or not node.is_target:
            return request
        return request.adding(
            config={**self._mixture, **self._adapting},
            requires={ALPHA: "APFL's target has to be served by fda_flower.clients.APFLTarget"},
            measures={ALPHA: "alpha", FRESH_START: FRESH_START},
        )

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Have the target evaluate its mixture, and the new global model beside it."""
        return EvaluateRequest(round.arrays, {**round.config, **self._mixture})

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs by role; the target trains its own model as long as the global one."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": 2 * total["target"]}
