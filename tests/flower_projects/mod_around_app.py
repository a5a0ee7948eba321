"""A mod around the whole app reads the round of every message: as in Flower's `custom-mods`."""

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, network, partition_of, reply_to, sgd, take_steps

from fda_flower.clients import record_updates
from fda_flower.strategies import FedGP

server = ServerApp()


def counts(message, context, call_next):
    assert message.content["config"]["server-round"] in (0, 1, 2)
    return call_next(message, context)


@record_updates
def train(message, context):
    model = network(batch_norm=False)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    take_steps(model, sgd(model), partition_of(context))
    return reply_to(message, model.state_dict())


client = client_app(train, mods=[counts])


@server.main()
def main(grid, context):
    FedGP(target="3", auto=True).start(grid, ArrayRecord(network(batch_norm=False).state_dict()), 2)
