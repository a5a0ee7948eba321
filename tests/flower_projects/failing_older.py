"""An older client reads a setting that the server does not send."""

from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from projects import network, partition_of

from fda_flower.legacy import LegacyStrategy
from fda_flower.strategies import FedGP


class Client(NumPyClient):
    def __init__(self, domain):
        self.domain = domain

    def get_properties(self, config):
        return {"domain": self.domain}

    def fit(self, parameters, config):
        return config["lr"]


def client_fn(context):
    return Client(str(partition_of(context))).to_client()


def server_fn(context):
    state = network(batch_norm=False).state_dict()
    initial = ndarrays_to_parameters([tensor.numpy() for tensor in state.values()])
    strategy = LegacyStrategy(FedGP(target="3"), initial)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


server = ServerApp(server_fn=server_fn)
client = ClientApp(client_fn=client_fn)
