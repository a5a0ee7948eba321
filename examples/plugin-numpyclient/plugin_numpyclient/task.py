"""The network, the data, and how to train and test."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy


def make_net() -> nn.Module:
    """Return a network with one hidden layer for images of 8 x 8."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def load_data(partition_id: int, num_partitions: int):
    """Load a partition of scikit-learn's digits; the last one has few, rotated by 90 degrees and inverted."""
    digits = load_digits()
    mine = np.random.default_rng(0).permutation(len(digits.target))[partition_id::num_partitions]
    images, labels = digits.images[mine] / 16, digits.target[mine]
    train_size = len(mine) - 100
    if partition_id == num_partitions - 1:
        images, train_size = 1 - np.rot90(images, axes=(1, 2)), 50
    x, y = torch.tensor(images.copy(), dtype=torch.float32), torch.tensor(labels)
    return (x[:train_size], y[:train_size]), (x[-100:], y[-100:])


def train(net, samples, epochs, lr):
    """Train the network in batches of 5."""
    x, y = samples
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(5):
            optimizer.zero_grad()
            cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()


@torch.no_grad()
def test(net, samples):
    """Return loss and accuracy of the network."""
    x, y = samples
    net.eval()
    outputs = net(x)
    return cross_entropy(outputs, y).item(), (outputs.argmax(dim=1) == y).float().mean().item()


def get_weights(net):
    """Return the network's arrays."""
    return [tensor.numpy().copy() for tensor in net.state_dict().values()]


def set_weights(net, weights):
    """Overwrite the network's arrays."""
    net.load_state_dict(
        {name: torch.tensor(array) for name, array in zip(net.state_dict(), weights, strict=True)}
    )
