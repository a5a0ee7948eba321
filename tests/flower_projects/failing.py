"""A client app reads a setting that the server does not send."""

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, network

from fda_flower.strategies import FedGP

server = ServerApp()
client = client_app(lambda message, context: message.content["config"]["lr"])


@server.main()
def main(grid, context):
    FedGP(target="3").start(grid, ArrayRecord(network().state_dict()), 2)
