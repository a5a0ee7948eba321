"""Batches are dictionaries, and the server evaluates as well: as in Flower's `quickstart-pytorch`."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from projects import client_app, data, loss_of, network, partition_of, reply_to

from fda_flower.clients import record_updates
from fda_flower.strategies import FedGP

server = ServerApp()


@record_updates
def train(message, context):
    model = network(batch_norm=False)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"], momentum=0.9)
    x, y = data(partition_of(context))
    for batch in ({"image": x[i : i + 8], "label": y[i : i + 8]} for i in range(0, len(x), 8)):
        optimizer.zero_grad()
        loss = loss_of(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
    return reply_to(message, model.state_dict(), train_loss=loss.item())


client = client_app(train)


@server.main()
def main(grid, context):
    result = FedGP(target="3", auto=True).start(
        grid,
        ArrayRecord(network(batch_norm=False).state_dict()),
        num_rounds=2,
        train_config=ConfigRecord({"lr": 0.1}),
        evaluate_fn=lambda number, _: MetricRecord({"accuracy": number / 4}),
    )
    assert "train_loss" in result.train_metrics_clientapp[2]
