"""The server app."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fda_flower.strategies import SourceOnly
from plugin_message_api.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    num_rounds = context.run_config["num-server-rounds"]
    arrays = ArrayRecord(Net().state_dict())
    strategy = SourceOnly(target="3")
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=num_rounds,
    )
    print("Last round:", dict(result.evaluate_metrics_clientapp[num_rounds]))
