"""Methods whose clients send statistics of their features instead of training: FedPFT, MPFT, pFedFDA."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    ClassGaussians,
    ClassMixtures,
    Layers,
    head_in,
    linear_head,
    mean_update,
    shape_of_head,
    source_weights,
    train_head,
    with_head,
)
from fda_flower.aggregation.rules import mean_of_models
from fda_flower.aggregation.updates import Vector
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
from fda_flower.names import Bounds, Count, NotNegative
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.method import Epochs
from fda_flower.strategies.replies import ClientUpdate, NotFiniteError
from fda_flower.wire.methods import DISTILLATION, GAUSSIANS, MIXTURES, OWN_SHARE, PROTOTYPES, RIDGE
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_layers


class OnFeatures(DomainAdaptationStrategy):
    """A strategy whose model is one linear layer on the features of a frozen body.

    Its clients reply with the received model and a record of statistics.

    Raises
    ------
    ConfigError
        If `max_update_norm` is set: the clients send no update.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_update_norm is not None:
            remedy = "leave it out, or choose another method"
            why = f"but the clients of {type(self).__name__} send no update that it could limit"
            raise invalid("max_update_norm", self.max_update_norm, remedy, why)

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Begin the run; raise a `ConfigError` unless the model is one linear layer."""
        if linear_head(to_layers(arrays)) is None:
            name = type(self).__name__
            remedy = "freeze all but the head, as with --train head, or choose another method"
            why = f"{name} needs a model that is one linear layer, but its arrays are {list(arrays)[:3]}"
            raise ConfigError(why, thing="model", value=name, remedy=remedy)
        super().begin(arrays, done)

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: only the sources', in the warm-up rounds."""
        return {role: warmup * each * (role == "source") for role, each in epochs.items()}


def asking(
    request: TrainRequest, record: str, number: int, clients: str, empty: Callable[[Layers], Layers]
) -> TrainRequest:
    """Ask for a record of statistics, like `empty`'s, with a `number` of them per class."""
    remedy = f"serve the clients with fda_flower.clients.{clients}Source and {clients}Target"
    return request.adding(config={record: number}, expects={record: empty}, requires={record: remedy})


def placed(
    round: Round, clients: Sequence[ClientUpdate], weight: Vector, bias: Vector
) -> dict[str, NDArray[Any]]:
    """Return a round's model with a new linear layer and the mean of the clients' buffers."""
    return with_head(mean_update(round.model, clients, source_weights(clients)), weight, bias)


Rows = tuple[Vector, Any]
"""Rows of features with their classes."""


class TrainsHead(OnFeatures):
    """A strategy that trains the model, a linear layer, on rows made from the clients' statistics."""

    epochs: Count = 50

    @abstractmethod
    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Return the rows of a client; raise a `ValueError` if its statistics are invalid."""

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Train the layer on the rows of all clients."""
        assert target is not None, "the base class holds the round without the target"
        assert round.target is not None, "it has replied"
        clients = {round.target.domain: target, **sources}
        try:
            found = [self.rows_of(round, domain, client) for domain, client in clients.items()]
        except ValueError as error:
            raise NotFiniteError(str(error)) from error
        rows, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        seed = derive_seed(0, "head", round.number)
        trained = train_head(*head_in(round.model), rows, labels, self.epochs, seed)
        return Aggregated(placed(round, list(clients.values()), *trained))


class FedPFT(TrainsHead):
    """``h = argmin_h Σ_i CE(h(z), y)``, ``z ~ GMM_iy``: a head trained on sampled features.

    Beitollahi et al., arXiv 2402.01862. Each client, including the target, fits a Gaussian mixture to the
    features of each class, and sends it with its number of samples. The server draws that number of features
    from each mixture and trains the head on them. The clients run `fda_flower.clients.MixturesSource` and
    `MixturesTarget`. The method takes one round; a further round continues from the last head.

    If a client has a single sample of a class, the mean is that sample's features, which leave the client.

    Parameters
    ----------
    components : int
        ``K`` of each mixture, with diagonal covariances. Flower's baseline has 1, spherical.
    epochs : int
        Passes of the server over the drawn features (unverified), with AdamW, a learning rate of 0.001 and
        batches of 32.
    """

    components: Count = 1

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the mixtures."""
        request = super().train_request(node, round)
        return asking(request, MIXTURES, self.components, "Mixtures", self._empty)

    def _empty(self, model: Layers) -> Layers:
        """Return an empty record of mixtures."""
        classes, features = shape_of_head(model)
        return ClassMixtures.empty(classes, self.components, features).layers()

    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Draw features from a client's mixtures."""
        mixtures = ClassMixtures.from_layers(client.extra[MIXTURES], client.examples)
        return mixtures.drawn(derive_seed(0, "features", round.number, domain))


class MPFT(TrainsHead):
    """A head trained on all clients' prototypes and adapted by the target (Zhang et al., ICLR 2025).

    Each client, including the target, sends prototypes of each class: the mean of its features, or cluster
    centres. The server trains the head on all of them, without averaging. In each evaluation the target
    trains it on its labels, with ``λ KL(p_θ ‖ p)`` to the received head in its loss. The clients run
    `fda_flower.clients.PrototypesSource` and `PrototypesTarget`. The method takes one round.

    The headline is the accuracy of the adapted head; ``accuracy-global`` is the server's.

    The paper trains an adapter before CLIP's head, which it derives from the classes' names. Here there is no
    adapter, and the head itself is trained. The paper's random sampling, which sends features, is omitted.

    Parameters
    ----------
    prototypes : int
        Number per class and client; 1 is the mean, more are k-means centres.
    epochs : int
        Passes of the server over the prototypes, with AdamW and a learning rate of 0.001. The authors' code
        stops once the loss is constant, after at most 200.
    distillation : float
        ``λ``; the paper's value is unknown, so the default is unverified. 0 is plain fine-tuning.
    """

    evaluates_own = True

    prototypes: Count = 1
    epochs: Count = 200
    distillation: NotNegative = 1.0

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request the prototypes."""
        request = super().train_request(node, round)
        return asking(request, PROTOTYPES, self.prototypes, "Prototypes", self._empty)

    def _empty(self, model: Layers) -> Layers:
        """Return an empty record of prototypes: a mask of used places, and the centres."""
        classes, features = shape_of_head(model)
        used = np.zeros((classes, self.prototypes), np.uint8)
        return {"used": used, "centres": np.zeros((*used.shape, features), np.float32)}

    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Return a client's prototypes."""
        told = client.extra[PROTOTYPES]
        classes, places = np.nonzero(told["used"])
        if not len(classes):
            raise ValueError(f"'{domain}' has sent no prototype")
        return told["centres"][classes, places].astype(np.float64), classes

    def evaluate_request(self, round: Round) -> EvaluateRequest:
        """Request adaptation of the new head, and evaluation of both."""
        return EvaluateRequest(round.arrays, {**round.config, DISTILLATION: self.distillation})

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role: the target adapts the head in each round that it evaluates."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": rounds * epochs["target"]}


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
