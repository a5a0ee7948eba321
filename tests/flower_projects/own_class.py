"""A `ClientApp` around a class, which counts in its context, and a server that evaluates."""

import torch
from flower_projects.task import ROUNDS, Net, load_data, partition_of, received, reply, test_fn, train_fn
from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg


class Site:
    """What a node does; the app's functions are its methods."""

    def __init__(self, app):
        app.train()(self.train)
        app.evaluate()(self.evaluate)

    def train(self, msg, context):
        rounds = context.state["counts"]["rounds"] + 1 if "counts" in context.state else 1
        context.state["counts"] = MetricRecord({"rounds": rounds})
        net = received(msg, Net())
        train_fn(net, [load_data(partition_of(context))])
        return reply(msg, net.state_dict(), rounds=rounds)

    def evaluate(self, msg, context):
        return reply(msg, eval_acc=test_fn(received(msg, Net()), *load_data(partition_of(context))))


app = ClientApp()
Site(app)
server = ServerApp()


def central_evaluate(server_round, arrays):
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": test_fn(net, *load_data(9))})


@server.main()
def main(grid, context):
    strategy, first = FedAvg(), ArrayRecord(Net().state_dict())
    result = strategy.start(grid, first, ROUNDS, evaluate_fn=central_evaluate)
    assert [*result.evaluate_metrics_serverapp] == [0, 1, 2]
    assert result.train_metrics_clientapp[2]["rounds"] == 2
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
