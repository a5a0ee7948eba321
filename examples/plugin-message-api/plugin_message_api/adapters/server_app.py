"""The server app."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from peft import get_peft_model_state_dict

from fda_flower.strategies import FedGP
from plugin_message_api.adapters.network import adapted

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    num_rounds = context.run_config["num-server-rounds"]
    arrays = ArrayRecord(get_peft_model_state_dict(adapted()))
    strategy = FedGP(target="3", auto=True)
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=num_rounds,
    )
    print("Last round:", dict(result.evaluate_metrics_clientapp[num_rounds]))
