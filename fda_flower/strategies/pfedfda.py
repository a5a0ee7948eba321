"""pFedFDA: class Gaussians of the features, averaged over the clients and mixed with the target's own."""

from typing import Annotated

import numpy as np
from flwr.app import ArrayRecord

from fda_flower.aggregation import ClassGaussians, shape_of_head, source_weights
from fda_flower.aggregation.rules import mean_of_models
from fda_flower.names import Bounds, NotNegative
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Record, Round, Sources, TrainRequest
from fda_flower.strategies.on_features import OnFeatures, placed
from fda_flower.strategies.replies import NotFiniteError
from fda_flower.wire.protocol import EvaluateRequest

GAUSSIANS, RIDGE, OWN_SHARE = "gaussians", "ridge", "own-share"
"""Names on the wire: the setting with the number of folds, which is also the record; a setting; a metric."""


class PFedFDA(OnFeatures):
    """``N(μ_c, Σ)`` of the features of each class: the clients' mean, mixed with ``β`` of the target's own.

    McLaughlin and Su, NeurIPS 2024. In each round every client, including the target, estimates means and one
    covariance of its features. It mixes them with the global ones, ``β`` to ``1 − β``, with the ``β`` that
    predicts best in cross-validation, and sends the mixture. The server's mean, weighted by examples, is the
    next global one. The clients run `fda_flower.clients.GaussianSource` and `GaussianTarget`.

    The headline is the accuracy of Bayes' rule, a linear layer, with the target's mixture; the run's model is
    the layer of the global Gaussians and even priors, whose accuracy is ``accuracy-global``. A round's record
    has each client's ``own-share``, its ``β`` in that round.

    The body is frozen here, while the paper trains it too, under the layer of the global Gaussians. Two more
    differences: in the first round clients send only their own Gaussians, where the authors' code has random
    global means; and ``β`` is found on a grid instead of by L-BFGS.

    Parameters
    ----------
    folds : int
        Number of cross-validation folds, at least 2; the authors' code uses 2.
    ridge : float
        Added to the diagonal of every client's covariance; without it, few samples give a singular one. The
        authors' code adds 1, which assumes features of about unit size, as from the frozen bodies here.
    """

    evaluates_own = True

    folds: Annotated[int, Bounds("a whole number of at least 2", lambda number: number >= 2)] = 2
    ridge: NotNegative = 1.0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Send the global Gaussians, and request the client's."""
        request = super().train_request(node, round)
        remedy = "serve the clients with fda_flower.clients.GaussianSource and GaussianTarget"
        return request.adding(
            config=self._asked,
            records={GAUSSIANS: self.state.get(GAUSSIANS, ArrayRecord())},
            expects={GAUSSIANS: lambda model: ClassGaussians.initial(*shape_of_head(model)).layers()},
            requires={GAUSSIANS: remedy, OWN_SHARE: remedy},
            measures={OWN_SHARE: OWN_SHARE},
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the Gaussians; the model is their linear layer."""
        assert target is not None, "the base class holds the round without the target"
        clients = [target, *sources.values()]
        told = [client.extra[GAUSSIANS] for client in clients]
        layers = mean_of_models(told, source_weights(clients).tolist())
        gaussians = ClassGaussians.from_layers(layers)
        classes = len(gaussians.means)
        try:
            np.linalg.cholesky(gaussians.covariance)
            weight, bias = gaussians.discriminant(np.full(classes, 1 / classes))
        except np.linalg.LinAlgError as error:
            raise NotFiniteError(f"the mean covariance of the clients is none: {error}") from error
        return Aggregated(placed(round, clients, weight, bias), {GAUSSIANS: layers})

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request an evaluation of both the target's mixture and the global Gaussians."""
        if GAUSSIANS not in self.state:
            return EvaluateRequest(round.arrays, round.config)
        asked = {**round.config, **self._asked}
        return EvaluateRequest(round.arrays, asked, {GAUSSIANS: self.state[GAUSSIANS]})

    @property
    def _asked(self) -> Record:
        return {GAUSSIANS: self.folds, RIDGE: self.ridge}
