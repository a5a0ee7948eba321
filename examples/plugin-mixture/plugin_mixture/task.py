"""The network, the data, and how to train and test."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import max_pool2d, relu
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small CNN for images of 8 x 8."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        """Return the scores of the ten digits."""
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def load_data(partition_id: int, num_partitions: int):
    """Load a partition of scikit-learn's digits; the last one has few, rotated by 90 degrees and inverted."""
    digits = load_digits()
    mine = np.random.default_rng(0).permutation(len(digits.target))[partition_id::num_partitions]
    images, labels = digits.images[mine] / 16, digits.target[mine]
    train_size = len(mine) - 100
    if partition_id == num_partitions - 1:
        images, train_size = 1 - np.rot90(images, axes=(1, 2)), 50
    x = torch.tensor(images.copy(), dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(labels)
    train_set, test_set = TensorDataset(x[:train_size], y[:train_size]), TensorDataset(x[-100:], y[-100:])
    return DataLoader(train_set, batch_size=5, shuffle=True), DataLoader(test_set, batch_size=100)


def train(net, trainloader, epochs, lr, device):
    """Train the network on the training set, and return the mean loss."""
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Return loss and accuracy of the network on the test set."""
    net.to(device)
    net.eval()
    criterion = nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (outputs.argmax(dim=1) == labels.to(device)).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)
