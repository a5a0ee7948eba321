"""The server sends all arrays of the classifier, with the original ones; clients return what they train."""

import torch
from flower_projects.task import ROUNDS, Net, load_data, partition_of, received, reply, test_fn, train_fn
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn


class Adapted(nn.Module):
    """A frozen body, and a classifier under the names that peft gives to one it saves."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.body.weight)
        self.classifier = nn.ModuleDict({"original_module": Net(), "modules_to_save": Net()})
        self.requires_grad_(False)
        self.classifier["modules_to_save"].requires_grad_(True)

    def forward(self, x):
        return self.classifier["modules_to_save"](self.body(x))


app = ClientApp()


@app.train()
def train(msg, context):
    model, (x, y) = received(msg, Adapted()), load_data(partition_of(context))
    train_fn(model, [(x, y)])
    return reply(msg, {name: each.data for name, each in model.named_parameters() if each.requires_grad})


@app.evaluate()
def evaluate(msg, context):
    return reply(msg, eval_acc=test_fn(received(msg, Adapted()), *load_data(partition_of(context))))


server = ServerApp()


@server.main()
def main(grid, context):
    sent = {name: tensor for name, tensor in Adapted().state_dict().items() if "classifier" in name}
    strategy = FedAvg()
    result = strategy.start(grid, ArrayRecord(sent), ROUNDS)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
