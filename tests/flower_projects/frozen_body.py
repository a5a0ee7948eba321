"""The head alone is trained and travels, and the clients do not evaluate: as in Flower's `flowertune-vit`."""

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from projects import network, partition_of, reply_to, take_steps

from fda_flower.clients import answer_role_query, record_updates
from fda_flower.strategies import FedGP

server = ServerApp()
client = ClientApp()
answer_role_query(client)


def frozen():
    model = network().requires_grad_(False)
    model[-1].requires_grad_(True)
    return model


@client.train()
@record_updates
def train(message, context):
    model = frozen()
    model[-1].load_state_dict(message.content["arrays"].to_torch_state_dict())
    take_steps(model, torch.optim.Adam(model.parameters(), lr=0.05), partition_of(context))
    return reply_to(message, model[-1].state_dict())


@server.main()
def main(grid, context):
    FedGP(target="3", auto=True).start(
        grid,
        ArrayRecord(frozen()[-1].state_dict()),
        num_rounds=2,
        evaluate_fn=lambda number, _: MetricRecord({"accuracy": number / 4}),
    )
