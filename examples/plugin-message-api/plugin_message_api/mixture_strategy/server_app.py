"""The server app."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fda_flower.strategies import Mixture
from plugin_message_api.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    num_rounds = context.run_config["num-server-rounds"]
    strategy = Mixture()
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=num_rounds)
    print("Mixture:", strategy.history[-1]["accuracy"])
    for name, member in strategy.history[-1]["mixture"]["members"].items():
        print(f"{name}: accuracy {member['test']:.2f}, weight {member['weight']:.2f}")
