"""The server app."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fda_flower.strategies import Ridge
from plugin_sklearn.task import zeros

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the one round."""
    strategy = Ridge(target="3")
    strategy.start(grid=grid, initial_arrays=zeros(), num_rounds=1)
