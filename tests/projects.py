"""Projects that are not ours: a small network, and client apps around it as Flower's templates make them."""

import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fda_flower.clients import answer_role_query, record_updates
from fda_flower.engines import LocalGrid
from fda_flower.wire.internals import task_identity

NODES, TARGET, STEPS, EXAMPLES = 4, "3", 3, 24

loss_of = nn.functional.binary_cross_entropy_with_logits


def network(batch_norm=True):
    torch.manual_seed(1)
    norm = [nn.BatchNorm1d(4)] if batch_norm else []
    return nn.Sequential(nn.Linear(3, 4), *norm, nn.Linear(4, 1))


def data(partition):
    x = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(partition))
    return x, (x.sum(dim=1, keepdim=True) > 0.3 * partition).float()


def take_steps(model, optimizer, partition, after=lambda: None):
    """Train for some steps; `after` is called after each."""
    for x, y in zip(*(part.chunk(STEPS) for part in data(partition)), strict=True):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        after()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def partition_of(context):
    return context.node_config["partition-id"]


def reply_to(message, arrays, updates=None, **metrics):
    """The reply to a train message; arrays are a state dictionary or NumPy arrays by name."""
    content = RecordDict({"metrics": MetricRecord({"num-examples": EXAMPLES, **metrics})})
    for record, found in {"arrays": arrays, "batch-updates": updates}.items():
        if found:
            named = {k: Array(v) for k, v in found.items()}
            content[record] = ArrayRecord(named)
    return Message(content, reply_to=message)


@record_updates
def recorded_train(message, context):
    """Train a network without BatchNorm, with the one line for auto-weighting."""
    model = network(batch_norm=False)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    take_steps(model, sgd(model), partition_of(context))
    return reply_to(message, model.state_dict())


def client_app(train, measured=lambda arrays, partition: {"eval_loss": 0.1}, mods=None, train_mods=None):
    """An app around a train function, with the one line for roles."""
    app = ClientApp(mods=mods)
    answer_role_query(app)
    app.train(mods=train_mods)(train)

    @app.evaluate()
    def evaluate(message, context):
        arrays = message.content["arrays"].to_numpy_ndarrays()
        metrics = {"num-examples": EXAMPLES, **measured(arrays, partition_of(context))}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def start(strategy, app, arrays, rounds=2, **kwargs):
    """Run the rounds over nodes that run an app."""
    with task_identity():
        return strategy.start(LocalGrid(app, NODES), arrays, rounds, **kwargs)


def fallbacks(strategy):
    """Why the sources of a run had a fixed β, None for an estimated one."""
    return {entry["fallback"] for record in strategy.history for entry in record["sources"].values()}


def same_bits(one, other):
    return all(one[name].numpy().tobytes() == array.numpy().tobytes() for name, array in other.items())
