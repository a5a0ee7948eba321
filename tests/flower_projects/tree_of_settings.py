"""Settings as in Hydra: a strategy is named by its path, and started anew for each stage of the training."""

from importlib import import_module
from typing import Any

import torch
from flower_projects.task import Net
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp

CONFIG: dict[str, Any] = {
    "stages": [{"lr": 1 / 16}, {"lr": 1 / 32}],
    "strategy": {"_target_": "flwr.serverapp.strategy.FedAvg", "fraction_train": 1.0, "min_train_nodes": 4},
}


def instantiate(_target_, **options):
    module, _, name = _target_.rpartition(".")
    return getattr(import_module(module), name)(**options)


server = ServerApp()


@server.main()
def main(grid, context):
    strategy, arrays = instantiate(**CONFIG["strategy"]), ArrayRecord(Net().state_dict())
    for stage in CONFIG["stages"]:
        arrays = strategy.start(grid, arrays, num_rounds=1, train_config=ConfigRecord(stage)).arrays
    torch.save(arrays.to_torch_state_dict(), "final_model.pt")
