"""The server app, on the Message API."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fda_flower.strategies import FedGP
from plugin_numpyclient.task import make_net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    strategy = FedGP(target="3")
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_net().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
