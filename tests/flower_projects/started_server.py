"""Flower's older API: `start_server`, `NumPyClient`s, and functions for settings and for metrics."""

import torch
from flower_projects.task import ROUNDS, Net, load_data, test_fn, train_fn
from flwr.client import NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

model = Net()
NAMES = list(model.state_dict())


class Client(NumPyClient):
    def __init__(self, partition):
        self.partition, self.net = partition, Net()

    def load(self, parameters):
        self.net.load_state_dict(dict(zip(NAMES, map(torch.tensor, parameters), strict=True)))

    def fit(self, parameters, config):
        self.load(parameters)
        train_fn(self.net, [load_data(self.partition)], lr=config["lr"])
        return [tensor.numpy() for tensor in self.net.state_dict().values()], 8, {"lr": config["lr"]}

    def evaluate(self, parameters, config):
        self.load(parameters)
        return 0.5, 8, {"accuracy": test_fn(self.net, *load_data(self.partition))}


def evaluate(server_round, parameters, config):
    torch.save([torch.tensor(array) for array in parameters], "final_model.pt")
    return 0.5, {"accuracy": 0.5}


def weighted_average(metrics):
    return {"accuracy": sum(count * each["accuracy"] for count, each in metrics) / sum(n for n, _ in metrics)}


def main():
    strategy = FedAvg(
        fraction_fit=1.0,
        min_fit_clients=2,
        min_available_clients=4,
        evaluate_metrics_aggregation_fn=weighted_average,
        initial_parameters=ndarrays_to_parameters([each.numpy() for each in model.state_dict().values()]),
        on_fit_config_fn=lambda number: {"lr": 1 / 2 ** (3 + number)},
        evaluate_fn=evaluate,
    )
    return start_server(config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)
