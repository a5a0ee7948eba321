"""FedPFT: in one round, a head that the server trains on features drawn from the clients' mixtures."""

from fda_flower.aggregation import ClassMixtures, Layers, shape_of_head
from fda_flower.files import derive_seed
from fda_flower.names import Count
from fda_flower.strategies.base import ClientUpdate, Node, Round, TrainRequest
from fda_flower.strategies.on_features import Rows, TrainsHead

MIXTURES = "mixtures"
"""On the wire: the setting with the number of components, and the record of mixtures."""


class FedPFT(TrainsHead):
    """``h = argmin_h Σ_i CE(h(z), y)``, ``z ~ GMM_iy``: a head trained on features that are drawn.

    Beitollahi et al., arXiv 2402.01862. Each client, the target too, fits a Gaussian mixture to the features
    of each class, and sends it with the number of its samples. The server draws as many features of each
    mixture, and trains the head on them. The clients run `fda_flower.clients.MixturesSource` and
    `MixturesTarget`. One round is the whole method; a further one goes on from the head of the last.

    A class of which a client has one sample has this sample's features for its mean: they leave the client.

    Parameters
    ----------
    components : int
        ``K`` of each mixture, with diagonal covariances. Flower's baseline has 1, spherical.
    epochs : int
        Passes of the server over the drawn features (unverified), with AdamW, a rate of 0.001 and batches
        of 32.
    """

    components: Count = 1

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Ask for the mixtures."""
        remedy = "serve the clients with fda_flower.clients.MixturesSource and MixturesTarget"
        request = super().train_request(node, round)
        return request.adding(
            config={MIXTURES: self.components},
            expects={MIXTURES: self._empty},
            requires={MIXTURES: remedy},
        )

    def _empty(self, model: Layers) -> Layers:
        """Return a record like that of mixtures."""
        classes, features = shape_of_head(model)
        return ClassMixtures.empty(classes, self.components, features).layers()

    def rows_of(self, round: Round, domain: str, client: ClientUpdate) -> Rows:
        """Draw features of a client's mixtures."""
        mixtures = ClassMixtures.from_layers(client.extra[MIXTURES], client.examples)
        return mixtures.drawn(derive_seed(0, "features", round.number, domain))
