"""One's own networks: one with a stem, three blocks and a head, whose backbone can be frozen; a small one."""

from math import prod

from torch import nn


class Net(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(channels, 8, 3, 1, 1)
        blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)]
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(128, classes)

    def forward(self, x):
        return self.fc(nn.functional.avg_pool2d(self.blocks(self.stem(x)), 2).flatten(1))


def net(shape, classes):
    return Net(shape[0], classes)


def normed(shape, classes):
    """A small network with BatchNorm, for inputs of any shape."""
    layers = [nn.Flatten(), nn.Linear(prod(shape), 12), nn.BatchNorm1d(12), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(12, classes))
