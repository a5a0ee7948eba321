"""A strategy with a `start` of its own, clients that keep their heads: as in Flower's `advanced-pytorch`."""

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from projects import client_app, network, partition_of, reply_to, sgd, take_steps

from fda_flower.clients import record_updates
from fda_flower.strategies import FedGP

server = ServerApp()


class OwnStart(FedGP):
    def start(self, grid, arrays, rounds):  # type: ignore[override]
        self.summary()
        for number in range(1, rounds + 1):
            sent = self.configure_train(number, arrays, ConfigRecord(), grid)
            arrays, metrics = self.aggregate_train(number, grid.send_and_receive(sent))
            asked = self.configure_evaluate(number, arrays, ConfigRecord(), grid)
            self.aggregate_evaluate(number, grid.send_and_receive(asked))
            print(f"round {number}: {metrics}")


@record_updates
def train(message, context):
    model = network(batch_norm=False)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    if "head" in context.state:
        model[-1].load_state_dict(context.state["head"].to_torch_state_dict())
    take_steps(model, sgd(model), partition_of(context))
    context.state["head"] = ArrayRecord(model[-1].state_dict())
    return reply_to(message, model.state_dict())


client = client_app(train)


@server.main()
def main(grid, context):
    OwnStart(target="3", auto=True).start(grid, ArrayRecord(network(batch_norm=False).state_dict()), 2)
