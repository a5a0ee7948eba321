"""The client app."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from plugin_sklearn.task import BATCH, CLASSES, RATE, load_data, make_model, to_record

app = ClientApp()


@app.query("role")
def role(msg: Message, context: Context) -> Message:
    """Return the domain of this node."""
    info = ConfigRecord({"domain": str(context.node_config["partition-id"])})
    return Message(RecordDict({"info": info}), reply_to=msg)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data, a batch at a time."""
    (x, y), _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model = make_model(msg.content["arrays"])
    norms = []
    for batch in np.array_split(np.random.default_rng().permutation(len(y)), len(y) // BATCH):
        before = np.column_stack([model.coef_, model.intercept_])
        model.partial_fit(x[batch], y[batch])
        change = np.column_stack([model.coef_, model.intercept_]) - before
        norms.append((change**2).sum())
    # A batch is one step of the server's estimate; scikit-learn makes a step for each of its samples.
    metrics = {"num-examples": len(y), "num-steps": len(norms), "learning-rate": RATE * len(y) / len(norms)}
    content = {"arrays": to_record(model.coef_, model.intercept_), "metrics": MetricRecord(metrics)}
    if msg.content["config"].get("batch-updates") == "norms":
        content["batch-updates"] = ArrayRecord({"norms": Array(np.array(norms))})
    return Message(RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    _, (x, y) = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model = make_model(msg.content["arrays"])
    metrics = {
        "num-examples": len(y),
        "accuracy": float(model.score(x, y)),
        "loss": log_loss(y, model.predict_proba(x), labels=CLASSES),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
