"""An older server's settings for each round and its own evaluation, and clients with a loss alone."""

from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from projects import data, loss_of, network, partition_of

from fda_flower.legacy import LegacyStrategy
from fda_flower.strategies import FedGP

NAMES = list(network().state_dict())


class Client(NumPyClient):
    def __init__(self, partition):
        self.partition, self.model = partition, network()

    def get_properties(self, config):
        return {"domain": str(self.partition)}

    def load(self, parameters):
        self.model.load_state_dict(dict(zip(NAMES, map(torch.from_numpy, parameters), strict=True)))

    def fit(self, parameters, config):
        self.load([np.copy(array) for array in parameters])
        optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])
        x, y = data(self.partition)
        optimizer.zero_grad()
        loss_of(self.model(x), y).backward()
        optimizer.step()
        return [tensor.numpy() for tensor in self.model.state_dict().values()], len(x), {}

    def evaluate(self, parameters, config):
        return 0.25 * config["share"], 8, {}


class Saving(LegacyStrategy):
    def aggregate_fit(self, server_round, results, failures):
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        print(f"saved {len(parameters.tensors)} arrays")
        return parameters, metrics


def server_fn(context):
    initial = ndarrays_to_parameters([tensor.numpy() for tensor in network().state_dict().values()])
    options: dict[str, Any] = {"fraction_fit": 1.0, "min_available_clients": 4}
    strategy = Saving(
        FedGP(target="3"),
        initial,
        names=NAMES,
        **options,
        on_fit_config_fn=lambda number: {"lr": 0.1 / number},
        on_evaluate_config_fn=lambda number: {"share": 0.5},
        evaluate_fn=lambda number, arrays, config: (0.75, {"acc": 0.5}),
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


server = ServerApp(server_fn=server_fn)
client = ClientApp(client_fn=lambda context: Client(partition_of(context)).to_client())
