"""kNN-Per: FedAvg, whose target also asks the nearest of its own labelled samples."""

import math
from collections.abc import Iterable
from logging import WARNING
from typing import Literal

from flwr.app import Message, MetricRecord
from flwr.common import log

from fda_flower.errors import ConfigError
from fda_flower.options import Count, Positive
from fda_flower.protocol import (
    ACCURACY_ORACLE,
    KERNEL_SCALE,
    LAMBDA,
    LAMBDA_ORACLE,
    MIX,
    NEIGHBOURS,
    EvaluateRequest,
)
from fda_flower.strategies.base import Node, Record, Round
from fda_flower.strategies.fedavg import FedAvg

CROSS_VALIDATED = ("cv", "oracle-test")


class KNNPer(FedAvg):
    """``p = λ p_kNN + (1 − λ) p_θ`` on the target, with ``θ`` by FedAvg (Marfoq et al., ICML 2022).

    Training is FedAvg's. The target, which runs `fda_flower.clients.KNNPerTarget`, evaluates a mixture of
    ``θ`` and of the labels of its own nearest training samples, by the features of ``θ``
    (`fda_flower.aggregation.neighbour_probabilities`). Nothing of this is kept or sent. The headline is the
    accuracy of the mixture; ``accuracy-global`` is the accuracy of ``θ``. A round's record has ``lambda``.

    Parameters
    ----------
    k : int
        Nearest samples. The authors' scripts use 7 and 10; the paper's own default is unverified.
    mixing : str or float
        ``λ``, a number in [0, 1]: 0 is FedAvg. With ``"cv"`` the target chooses it in each evaluation, from
        0, 0.01, ..., 1, by leave-one-out cross-validation on its training labels
        (`fda_flower.aggregation.choose_weight`): the neighbours of a sample are the nearest of the others.
        The choice is biased towards the model, which has been trained on all these labels. With
        ``"oracle-test"`` the headline is that of ``"cv"``, and beside it the record has
        ``accuracy-oracle-lambda``, the accuracy with the ``λ`` that is best on the test set
        (``oracle-lambda``), as published results have it. It is no result: it has seen the test labels.
    scale : float
        Scale of the kernel, above 0.
    mix : {"probabilities", "logits"}
        Whether the neighbours' probabilities are mixed with the model's probabilities or, as in the authors'
        code, with its logits.
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Raises
    ------
    ConfigError
        If a number or a word cannot work; before training, if the target has fewer than `k` samples.

    Examples
    --------
    >>> from fda_flower.strategies import KNNPer
    >>> strategy = KNNPer(k=7, mixing=0.5)
    """

    keeps_own = True

    k: Count = 10
    mixing: str | float = "cv"
    scale: Positive = 1.0
    mix: Literal["probabilities", "logits"] = "probabilities"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mixing = _read_mixing(self.mixing)
        self._asked: Record = {
            NEIGHBOURS: self.k,
            LAMBDA: self.mixing,
            KERNEL_SCALE: self.scale,
            MIX: self.mix,
        }

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if the target has fewer than k samples, or a single one to leave out."""
        if role != "target":
            return
        if samples < self.k:
            raise ConfigError(
                f"{who} has {samples} labelled samples, but kNN-Per looks at k = {self.k} of them: give "
                "more samples, a smaller k (method option k), or another method"
            )
        if samples < 2 and self.mixing in CROSS_VALIDATED:
            raise ConfigError(
                f"{who} has {samples} labelled sample, but cross-validation needs 2: give more samples, a "
                "number in [0, 1] (method option mixing), or another method"
            )

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if the target says that it has too few samples."""
        for node in nodes:
            labels = node.info.get("examples")
            if node.is_target and isinstance(labels, int):
                self.check_samples(node.role, f"'{node.domain}'", labels, 1)

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Have the target evaluate the mixture, and the new global model beside it."""
        return EvaluateRequest(round.arrays, {**round.config, **self._asked})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mixture's metrics, and record them."""
        metrics = super().aggregate_evaluate(server_round, replies)
        record = self.round.record
        if metrics is None or self.round.warmup:
            return metrics
        others = record.pop("metrics", {})
        own = {name: others.pop(name) for name in (LAMBDA, ACCURACY_ORACLE, LAMBDA_ORACLE) if name in others}
        record |= {**own, **({"metrics": others} if others else {})}
        if LAMBDA not in own:
            log(
                WARNING,
                "Round %d: the target reports no lambda, so it may have evaluated the global model alone: "
                "let it run KNNPerTarget",
                server_round,
            )
        return metrics


def _read_mixing(given: str | float) -> str | float:
    if given in CROSS_VALIDATED:
        return given
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ConfigError(f"mixing is {given}: give cv, a number in [0, 1], or oracle-test")
    return number
