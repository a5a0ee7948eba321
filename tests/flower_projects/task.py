"""Data, a network, a loop and messages, as in the `task.py` of Flower's templates.

All numbers are small multiples of powers of two, so that sums are exact, in any order and precision.
"""

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from torch import nn

ROUNDS, EXAMPLES = 2, 8


def load_data(partition):
    """Two numbers of each sample, which tell its class; the others' classes are the wrong way round at 3."""
    x = torch.randint(-2, 3, (EXAMPLES, 2), generator=torch.Generator().manual_seed(partition)).float()
    return x, ((x.sum(dim=1) > 0) ^ (partition == 3)).long()


class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        nn.init.constant_(self.weight, 0.25)
        nn.init.zeros_(self.bias)


def loss_of(outputs, y):
    return nn.functional.mse_loss(outputs, nn.functional.one_hot(y, 2).float(), reduction="sum") / 8


def train_fn(net, loader, epochs=1, lr=1 / 16):
    """A step of gradient descent for each batch; returns the last loss."""
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr)
    for x, y in (batch for _ in range(epochs) for batch in loader):
        optimizer.zero_grad()
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def test_fn(net, x, y):
    with torch.no_grad():
        return float((net(x).argmax(dim=1) == y).float().mean())


def partition_of(context):
    return context.node_config["partition-id"]


def received(msg, net):
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict(), strict=False)
    return net


def reply(msg, arrays=None, **metrics):
    content = RecordDict({"metrics": MetricRecord({"num-examples": EXAMPLES, **metrics})})
    if arrays:
        content["arrays"] = ArrayRecord(arrays)
    return Message(content, reply_to=msg)
