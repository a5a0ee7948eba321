"""A mod around the whole app reads the round of every message: as in Flower's `custom-mods`."""

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, network, recorded_train

from fda_flower.strategies import FedGP

server = ServerApp()


def counts(message, context, call_next):
    assert message.content["config"]["server-round"] in (0, 1, 2)
    return call_next(message, context)


client = client_app(recorded_train, mods=[counts])


@server.main()
def main(grid, context):
    FedGP(target="3", auto=True).start(grid, ArrayRecord(network(batch_norm=False).state_dict()), 2)
