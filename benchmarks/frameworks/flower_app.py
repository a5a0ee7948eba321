"""Flower's own app on its simulation: a `ClientApp` and `FedAvg` as in Flower's tutorials for PyTorch.

The server evaluates after each round, with `evaluate_fn`, in its own process and on one thread; clients do
not evaluate. A process on Ray loads the clients' data once. The simulation is started by Flower's
`run_simulation`, so that the server runs in the process that is timed.
"""

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from frameworks import bare
from frameworks.pairing import Pairing
from frameworks.task import WORKERS, Labelled, Task


@lru_cache
def data_of(task: Task) -> list[Labelled]:
    """Load the clients' data once in each process."""
    torch.set_num_threads(1)
    return task.client_data()


def client_app(task: Task) -> ClientApp:
    """Return the app of the clients."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data = data_of(task)[int(context.node_config["partition-id"])]
        model = task.model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        bare.train(model, data)
        metrics = MetricRecord({"num-examples": len(data[1])})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def server_app(task: Task, pairing: Pairing) -> ServerApp:
    """Return the app of the server."""
    app = ServerApp()
    test, model = task.test_data(), task.model()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy = bare.accuracy(model, test)
        if server_round > 0:
            pairing.round_done(accuracy)
        return MetricRecord({"accuracy": accuracy})

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=task.clients)
        arrays = ArrayRecord(model.state_dict())
        strategy.start(grid, arrays, num_rounds=task.all_rounds, evaluate_fn=evaluate)

    return app


def run(task: Task, pairing: Pairing) -> None:
    """Run all rounds."""
    run_simulation(
        server_app(task, pairing),
        client_app(task),
        task.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": WORKERS, "include_dashboard": False},
        },
    )
