"""The server app."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fda_flower.strategies import FedGP
from plugin_sklearn.task import zeros

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    strategy = FedGP(target="3")
    strategy.start(grid=grid, initial_arrays=zeros(), num_rounds=context.run_config["num-server-rounds"])
