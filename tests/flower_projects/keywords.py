"""Batches of keywords, and a network that returns an object, as those of transformers."""

from types import SimpleNamespace
from typing import Any

import torch
from flower_projects.task import ROUNDS, Net, load_data, loss_of, partition_of, received, reply
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.utils.data import DataLoader


class TextNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = Net()

    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.classifier(input_ids * attention_mask)
        return SimpleNamespace(logits=logits, loss=None if labels is None else loss_of(logits, labels))


def loader_of(context):
    rows = zip(*load_data(partition_of(context)), strict=True)
    dataset: Any = [{"input_ids": x, "attention_mask": torch.ones(2), "labels": y} for x, y in rows]
    return DataLoader(dataset, batch_size=8)


def train_net(net, loader, epochs):
    optimizer = torch.optim.SGD(net.parameters(), lr=1 / 16)
    for batch in (batch for _ in range(epochs) for batch in loader):
        net(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_net(net, loader):
    right = sum(int((net(**batch).logits.argmax(-1) == batch["labels"]).sum()) for batch in loader)
    return right / len(loader.dataset)


app = ClientApp()


@app.train()
def train(msg, context):
    net = received(msg, TextNet())
    train_net(net, loader_of(context), 1)
    return reply(msg, net.state_dict())


@app.evaluate()
def evaluate(msg, context):
    net, loader = received(msg, TextNet()), loader_of(context)
    return reply(msg, eval_acc=test_net(net, loader))


server = ServerApp()


@server.main()
def main(grid, context):
    strategy = FedAvg()
    result = strategy.start(grid, ArrayRecord(TextNet().state_dict()), ROUNDS)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
