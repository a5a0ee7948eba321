"""The client app."""

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from fda_flower.aggregation import to_rows
from fda_flower.clients import ridge_reply
from plugin_sklearn.task import CLASSES, load_data, make_model

app = ClientApp()


@app.query("role")
def role(msg: Message, context: Context) -> Message:
    """Return the domain of this node."""
    info = ConfigRecord({"domain": str(context.node_config["partition-id"])})
    return Message(RecordDict({"info": info}), reply_to=msg)


@app.train("sum_rows")
@app.train("mask_sums")
@app.train("fit_head")
def train(msg: Message, context: Context) -> Message:
    """Send sums over local data or, at the target, the layer that is fitted to them."""
    (x, y), _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return ridge_reply(msg, to_rows(x), y, len(CLASSES), state=context.state)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    _, (x, y) = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model, x = make_model(msg.content["arrays"]), to_rows(x)[:, :-1]
    metrics = {
        "num-examples": len(y),
        "accuracy": float(model.score(x, y)),
        "loss": log_loss(y, model.predict_proba(x), labels=CLASSES),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
