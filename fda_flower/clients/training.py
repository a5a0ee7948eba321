"""The one local training loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fda_flower.clients.recorder import Recorder
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.local_training import OPTIMIZERS as OPTIMIZERS
from fda_flower.local_training import LocalTraining as LocalTraining

CPU = torch.device("cpu")


def train(
    model: nn.Module,
    samples: Samples,
    training: LocalTraining,
    generator: torch.Generator,
    recorder: Recorder | None = None,
    tune: str = "all",
) -> tuple[int, float]:
    """Train a model in place on one client's samples; see `loss_for`.

    Parameters
    ----------
    model : Module
        On the device of the samples.
    samples : Samples
        What to train on.
    training : LocalTraining
        Rates and sizes.
    generator : torch.Generator
        Decides the order of samples and their noise.
    recorder : Recorder, optional
        Told of each step.
    tune : {"all", "head"}
        What to train: all parameters, or those of the last linear layer.

    Returns
    -------
    tuple[int, float]
        Number of steps, and the mean loss over the samples that were trained on.
    """
    part = model if tune == "all" else head_of(model)
    optimizer = OPTIMIZERS[training.optimizer](part.parameters(), lr=training.learning_rate)
    loss_of = loss_for(samples.y)
    model.train()
    steps, total = 0, torch.zeros((), dtype=torch.float64, device=samples.y.device)
    for _ in range(training.epochs):
        for x, y in samples.batches(training.batch_size, generator, shuffle=True):
            model.zero_grad()
            loss = loss_of(model(x), y)
            torch.autograd.backward(loss)
            optimizer.step()
            if recorder is not None:
                recorder.step()
            total += loss.detach() * len(y)
            steps += 1
    return steps, float(total) / (training.epochs * len(samples))


def head_of(model: nn.Module) -> nn.Linear:
    """The last linear layer; a `ConfigError` if there is none."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ConfigError("the model has no linear layer to tune: choose another model, or tune=all")
    return layers[-1]


def mean_gradient(
    model: nn.Module, samples: Samples, batch_size: int, generator: torch.Generator
) -> dict[str, NDArray[np.float32]]:
    """``g = (1/J) Σ_j ∂F_j/∂w`` over the ``J`` mini-batches of one client (FedDAF, Algorithm 2).

    They are gradients of the objective that is trained: the model is in training mode, so that BatchNorm
    takes each batch's own statistics; its running ones are left as they were.

    Returns
    -------
    dict[str, NDArray]
        The gradient of each parameter, by its name in the state dictionary.
    """
    loss_of, batches = loss_for(samples.y), 0
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    model.zero_grad()
    for x, y in samples.batches(batch_size, generator):
        torch.autograd.backward(loss_of(model(x), y))
        batches += 1
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad / batches
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    model.zero_grad()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
    return {name: gradient.cpu().numpy() for name, gradient in gradients.items()}


@torch.no_grad()
def evaluate(
    model: nn.Module, samples: Samples, generator: torch.Generator, batch_size: int = 256
) -> tuple[float, float]:
    """Mean loss (see `loss_for`) of a model on samples, and how good it is.

    Returns
    -------
    tuple[float, float]
        The loss, and accuracy, a share in [0, 1]. Where the task is a regression: the coefficient of
        determination ``R² = 1 − Σ(y − f(x))² / Σ(y − ȳ)²``, summed over all outputs, with `ȳ` each
        output's mean over the samples; it is at most 1, and below 0 for a model that is worse than `ȳ`. If
        all samples have the same `y`, it is 1 where the model is exact, and else 0.
    """
    model.eval()
    loss_of, regression = loss_for(samples.y), samples.y.is_floating_point()
    loss = correct = 0.0
    for x, y in samples.batches(batch_size, generator):
        outputs = model(x)
        loss += float(loss_of(outputs, y, reduction="sum"))
        if not regression:
            correct += int((outputs.argmax(dim=1) == y).sum())
    if not regression:
        return loss / len(samples), correct / len(samples)
    y = samples.y.double()
    spread = float((y - y.mean(dim=0)).square().sum())
    return loss / y.numel(), 1 - loss / spread if spread else float(loss == 0)


def loss_for(y: Tensor) -> Callable[..., Tensor]:
    """Cross entropy for classes, which are integers; the mean squared error for real numbers."""
    return mse_loss if y.is_floating_point() else cross_entropy


@contextmanager
def repeatable(seed: int, threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Global random state and number of threads fixed inside, and as they were after.

    Dropout and the like draw from the global state, and the number of threads decides the order of
    sums: with both fixed a client's training has the same bits in any process.
    """
    before, deterministic = torch.get_num_threads(), torch.backends.cudnn.deterministic
    # Not torch.manual_seed: without a GPU it spends a millisecond a call on looking for one.
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed(seed)
        torch.set_num_threads(threads)
        torch.backends.cudnn.deterministic = True
        try:
            yield
        finally:
            torch.set_num_threads(before)
            torch.backends.cudnn.deterministic = deterministic
