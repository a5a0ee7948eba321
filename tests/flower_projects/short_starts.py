"""A loop of starts of one round, with a fraction of the clients: as in projects that save in between."""

from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, network, recorded_train

from fda_flower.strategies import FedGP

server = ServerApp()
client = client_app(recorded_train, measured=lambda arrays, partition: {"loss": 0.25})


@server.main()
def main(grid, context):
    numbers: dict[str, Any] = {"fraction_train": 0.7, "min_train_nodes": 2, "min_available_nodes": 4}
    strategy = FedGP(target="3", auto=True, **numbers)
    arrays = ArrayRecord(network(batch_norm=False).state_dict())
    for number in range(1, 4):
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
        arrays = result.arrays
        print(f"after {number}: loss {result.evaluate_metrics_clientapp[1]['loss']}")
