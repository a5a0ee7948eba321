"""The target mixes in the last round, by the project's own training: also Flower's `quickstart-pytorch`."""

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from projects import data, partition_of, reply_to
from torch import nn
from torch.utils.data import DataLoader

from fda_flower.clients import answer_role_query, mix_on_target
from fda_flower.strategies import SourceOnly

ROUNDS = 2

server = ServerApp()
client = ClientApp()
answer_role_query(client)


def loader_of(context):
    x, y = data(partition_of(context))
    samples = [{"image": image, "label": int(label)} for image, label in zip(x, y, strict=True)]
    return DataLoader(samples, batch_size=8, shuffle=True)  # type: ignore[arg-type]


def train_fn(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in (batch for _ in range(epochs) for batch in loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
        optimizer.step()


def accuracy_of(model, loader):
    right = sum(int((model(batch["image"]).argmax(1) == batch["label"]).sum()) for batch in loader)
    return right / len(loader.dataset)


def received(message):
    model = nn.Linear(3, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@client.train()
def train(message, context):
    train_fn(model := received(message), loader_of(context), 1)
    return reply_to(message, model.state_dict())


@client.evaluate()
def evaluate(message, context):
    model, loader = received(message), loader_of(context)
    metrics = {"eval_acc": accuracy_of(model, loader), "num-examples": len(loader.dataset)}
    if message.content["config"]["server-round"] == ROUNDS:
        metrics["mixture_acc"] = accuracy_of(mix_on_target(model, nn.Linear(3, 2), loader, train_fn), loader)
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@server.main()
def main(grid, context):
    SourceOnly(target="3").start(grid, ArrayRecord(nn.Linear(3, 2).state_dict()), ROUNDS)
