"""A server that samples clients and saves its model, as `flwr new` makes it."""

import torch
from flower_projects.task import ROUNDS, Net, load_data, partition_of, received, reply, test_fn, train_fn
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ClientApp()


@app.train()
def train(msg, context):
    net, (x, y) = received(msg, Net()), load_data(partition_of(context))
    loss = train_fn(net, [(x, y)], lr=msg.content["config"]["lr"])
    return reply(msg, net.state_dict(), train_loss=loss)


@app.evaluate()
def evaluate(msg, context):
    net = received(msg, Net())
    return reply(msg, eval_acc=test_fn(net, *load_data(partition_of(context))))


server = ServerApp()


@server.main()
def main(grid, context):
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.5, min_available_nodes=4)
    config = ConfigRecord({"lr": 1 / 16})
    result = strategy.start(grid, ArrayRecord(Net().state_dict()), ROUNDS, train_config=config)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
