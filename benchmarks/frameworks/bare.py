"""FedAvg as one writes it without a framework: what the others are compared with."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from frameworks.pairing import Pairing
from frameworks.task import BATCH_SIZE, EPOCHS, LEARNING_RATE, TEST_BATCH_SIZE, Labelled, Task


def train(model: nn.Module, data: Labelled, order: Callable[[int], Tensor] = torch.randperm) -> int:
    """Train a model on a client's samples, and return the number of steps."""
    (x, y), steps = data, 0
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    model.train()
    for _ in range(EPOCHS):
        for part in order(len(y)).split(BATCH_SIZE):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x[part]), y[part]))
            optimizer.step()
            steps += 1
    return steps


@torch.no_grad()
def accuracy(model: nn.Module, data: Labelled) -> float:
    """Return the share of samples that a model gets right."""
    x, y = data
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=y.device)
    for images, labels in zip(x.split(TEST_BATCH_SIZE), y.split(TEST_BATCH_SIZE), strict=True):
        right += (model(images).argmax(dim=1) == labels).sum()
    return right.item() / len(y)


class BareLoop:
    """The clients' training, the mean of their models weighted by samples, and its evaluation.

    Parameters
    ----------
    model : Module
        The network; its weights are the first global model.
    clients : sequence
        The training samples of each client.
    test : tuple
        The test set.
    order : callable
        The positions of the samples, by their number, in the order of an epoch. Default: at random.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Labelled],
        test: Labelled,
        order: Callable[[int], Tensor] = torch.randperm,
    ) -> None:
        self.model, self._clients, self._test, self._order = model, clients, test, order
        self._weights = [parameter.detach() for parameter in model.parameters()]
        self._samples = sum(len(y) for _, y in clients)
        self.steps = 0

    @classmethod
    def of(cls, task: Task) -> "BareLoop":
        """Load a task's data onto its device."""
        device = torch.device(task.device)
        test, *clients = [(x.to(device), y.to(device)) for x, y in (task.test_data(), *task.client_data())]
        return cls(task.model().to(device), clients, test, partial(torch.randperm, device=device))

    @torch.no_grad()
    def _load(self, weights: Sequence[Tensor]) -> None:
        for own, new in zip(self._weights, weights, strict=True):
            own.copy_(new)

    def round(self) -> float:
        """Do a round, and return the new model's accuracy."""
        begin = [weight.clone() for weight in self._weights]
        mean = [torch.zeros_like(weight) for weight in self._weights]
        for data in self._clients:
            self._load(begin)
            self.steps += train(self.model, data, self._order)
            for total, weight in zip(mean, self._weights, strict=True):
                total.add_(weight, alpha=len(data[1]) / self._samples)
        self._load(mean)
        return accuracy(self.model, self._test)


def run(task: Task, pairing: Pairing) -> None:
    """Pair the loop with itself: its ratio says how far one can trust the others."""
    loop = BareLoop.of(task)
    for _ in range(task.all_rounds):
        pairing.round_done(loop.round())
