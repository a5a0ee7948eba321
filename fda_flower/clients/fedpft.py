"""FedPFT's clients: they fit a Gaussian mixture to the features of each class."""

from fda_flower.aggregation import ClassMixtures
from fda_flower.clients.client import SourceClient, TargetClient
from fda_flower.clients.on_features import OnFeatures
from fda_flower.files import derive_seed
from fda_flower.wire.protocol import SERVER_ROUND, TrainReply, TrainRequest

MIXTURES = "mixtures"
"""Names on the wire: the setting with the number of components, and the record of mixtures."""


class Mixtures(OnFeatures):
    """A client that sends mixtures of its features, if the message has ``mixtures`` (FedPFT, 2024)."""

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Reply with one mixture per class."""
        config = request.config
        if MIXTURES not in config:
            return super().local_train(request)
        features, labels = self.features(self.received(request), config)
        seed = derive_seed(self.seed, "mixtures", config.get(SERVER_ROUND, 0), self.domain.name)
        found = ClassMixtures.of(features, labels, self.classes(request), int(config[MIXTURES]), seed)
        return self.replying(request, {MIXTURES: found.layers()})


class MixturesSource(Mixtures, SourceClient):
    """A source that sends mixtures of its features; see `Mixtures`."""


class MixturesTarget(Mixtures, TargetClient):
    """A target that sends mixtures of its features; see `Mixtures`."""
