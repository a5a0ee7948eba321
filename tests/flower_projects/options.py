"""FedAvg's options stay where they are, and clients report a loss alone: as in Flower's templates."""

from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, network, recorded_train

from fda_flower.strategies import FedGP

server = ServerApp()
client = client_app(recorded_train, measured=lambda arrays, partition: {"loss": 0.25})


@server.main()
def main(grid, context):
    options: dict[str, Any] = {
        "fraction_train": 1.0,
        "fraction_evaluate": 0.5,
        "min_available_nodes": 4,
        "evaluate_metrics_aggr_fn": lambda records, weight: records[0]["metrics"],
    }
    strategy = FedGP(target="3", auto=True, **options)
    strategy.start(grid, ArrayRecord(network(batch_norm=False).state_dict()), 2)
