"""FedPFT: in one round, the server trains a head on features drawn from the clients' mixtures."""

from fda_flower.aggregation import ClassMixtures, Layers, shape_of_head
from fda_flower.files import derive_seed
from fda_flower.names import Count
from fda_flower.strategies.base import ClientUpdate, Node, Round, TrainRequest
from fda_flower.strategies.on_features import Rows, TrainsHead

MIXTURES = "mixtures"
"""Names on the wire: the setting with the number of components, and the record of mixtures."""


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
        remedy = "serve the clients with fda_flower.clients.MixturesSource and MixturesTarget"
        request = super().train_request(node, round)
        return request.adding(
            config={MIXTURES: self.components},
            expects={MIXTURES: self._empty},
            requires={MIXTURES: remedy},
        )

    def _empty(self, model: Layers) -> Layers:
        """Return an empty record of mixtures."""
        classes, features = shape_of_head(model)
        return ClassMixtures.empty(classes, self.components, features).layers()

    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Draw features from a client's mixtures."""
        mixtures = ClassMixtures.from_layers(client.extra[MIXTURES], client.examples)
        return mixtures.drawn(derive_seed(0, "features", round.number, domain))
