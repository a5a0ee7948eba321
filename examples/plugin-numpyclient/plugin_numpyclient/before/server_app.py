"""The server app, on Flower's older API."""

from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from plugin_numpyclient.task import get_weights, make_net


def server_fn(context: Context):
    """Set up the rounds."""
    strategy = FedAvg(initial_parameters=ndarrays_to_parameters(get_weights(make_net())))
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
