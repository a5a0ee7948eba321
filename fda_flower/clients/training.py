"""The local training loop, losses, and evaluation."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from logging import WARNING
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.common import log
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax, mse_loss
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from fda_flower.clients.gradients import Loss, each_gradient
from fda_flower.clients.measures import metrics_of
from fda_flower.clients.settings import LocalTraining as LocalTraining
from fda_flower.clients.steps import Step, fastest
from fda_flower.datasets import Samples
from fda_flower.metrics import metric_names
from fda_flower.models.devices import deterministic, forked, widest_float
from fda_flower.models.parts import Part, to_train
from fda_flower.names.tasks import Task
from fda_flower.prediction.batches import batches, device_of, tensor_of
from fda_flower.prediction.network_passes import predict

CPU = torch.device("cpu")

Kind = TypeVar("Kind", bound=Optimizer)

Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""Loss of a model on a batch of samples and labels."""


def train(
    model: nn.Module,
    samples: Samples,
    training: LocalTraining,
    generator: torch.Generator,
    objective: Objective | None = None,
    part: Part = "all",
    on_step: Callable[[], None] | None = None,
) -> tuple[int, float]:
    """Train a model in place on one client's samples.

    Parameters
    ----------
    model : Module
        The network.
    samples : Samples
        The training samples.
    training : LocalTraining
        Rates and sizes.
    generator : torch.Generator
        Determines the order of samples and their noise.
    objective : callable, optional
        The objective to minimise, in addition to the penalty of `training`. Default: `training_loss`.
    part : {"all", "head", "body"}
        The part to train. The rest, and everything frozen (see `fda_flower.models.parts`), keeps its
        parameters and running statistics, and is in evaluation mode.
    on_step : callable, optional
        Called after each step of the optimizer.

    Returns
    -------
    tuple[int, float]
        Number of steps, and the mean objective over the training samples.
    """
    parameters = to_train(model, part)
    every_parameter = parameters if part == "all" else [p for p in model.parameters() if p.requires_grad]
    plain = objective is None and _is_cross_entropy(samples, training)
    objective = plain_objective(samples, training) if objective is None else objective
    objective = penalised(objective, model, training)
    by_autograd = partial(_by_autograd, model, every_parameter, parameters, training, objective)
    losses, sizes, device = list[Tensor](), list[int](), parameters[0].device
    trained = set(parameters)
    with without_gradients([p for p in every_parameter if p not in trained]):
        step = fastest(model, parameters, training, by_autograd) if plain else by_autograd()
        for _ in range(training.epochs):
            drawn = batches(
                samples, training.batch_size, generator, shuffle=True, cut=training.batches, device=device
            )
            for x, y in drawn:
                losses.append(step(x, y))
                if on_step is not None:
                    on_step()
                sizes.append(len(y))
    # Copy from the device once; each float() would wait for it.
    total = sum(size * loss for size, loss in zip(sizes, torch.stack(losses).tolist(), strict=True))
    return len(sizes), total / sum(sizes)


def _by_autograd(
    model: nn.Module,
    every_parameter: Sequence[Tensor],
    parameters: Sequence[Tensor],
    training: LocalTraining,
    objective: Objective,
) -> Step:
    optimizer = OPTIMIZERS[training.optimizer](parameters, lr=training.learning_rate)

    def step(x: Tensor, y: Tensor) -> Tensor:
        for parameter in every_parameter:
            parameter.grad = None
        loss = objective(model, x, y)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    return step


@contextmanager
def without_gradients(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Disable gradients of these parameters in the block, which saves time."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def plain_objective(samples: Samples, training: LocalTraining) -> Objective:
    """Return the objective of plain training for a client with these samples; see `training_loss`."""
    loss_of = training_loss(samples, training)
    return lambda model, x, y: loss_of(model(x), y)


def penalised(
    objective: Objective, model: nn.Module, training: LocalTraining, symbol: str = "μ"
) -> Objective:
    """Return an objective plus ``μ/2 ‖v − w‖²`` over the parameters; ``w`` is the current model.

    ``μ`` is the training's ``proximal``; at 0 the objective is unchanged. Warns if the training will diverge:
    without the loss's gradient, an SGD step multiplies the distance from ``w`` by 1 − ημ.
    """
    strength = training.proximal
    if strength == 0:
        return objective
    product = training.learning_rate * strength
    if training.optimizer == "sgd" and product >= 1:
        log(WARNING, "The learning rate times %s is %g: above 2 the training diverges", symbol, product)
    moving = [p for p in model.parameters() if p.requires_grad]
    anchor = [p.detach().clone() for p in moving]

    def with_penalty(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = objective(model, x, y)
        pairs = zip(moving, anchor, strict=True)
        return loss + strength / 2 * sum((p - point).square().sum() for p, point in pairs)

    return with_penalty


def _is_cross_entropy(samples: Samples, training: LocalTraining) -> bool:
    """Return whether plain training minimises the cross entropy, without weights or a penalty."""
    return samples.task == "classes" and training.class_weights == "none" and training.proximal == 0


def mean_gradient(
    model: nn.Module,
    samples: Samples,
    training: LocalTraining,
    generator: torch.Generator,
    evaluation: bool = False,
) -> dict[str, NDArray[np.float32]]:
    """Return ``g = (1/J) Σ_j ∂F_j/∂w`` over a client's ``J`` mini-batches (FedDAF, Algorithm 2).

    It has each trained parameter, by its name in the state dictionary; for the modes see `each_gradient`.
    """
    named = model.named_parameters(remove_duplicate=False)
    parameters = {name: p for name, p in named if p.requires_grad}
    sums, count = {name: torch.zeros_like(p).detach() for name, p in parameters.items()}, 0
    drawn = batches(samples, training.batch_size, generator, device=device_of(model))
    for _ in each_gradient(model, drawn, training_loss(samples, training), evaluation):
        count += 1
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                sums[name] += parameter.grad
    return {name: (total / count).cpu().numpy() for name, total in sums.items()}


def evaluate(
    model: nn.Module, samples: Samples, generator: torch.Generator, batch_size: int = 256
) -> tuple[float, float]:
    """Return a model's mean loss on samples, and its task's headline, NaN if unknown; see `metrics_of`."""
    outputs = predict(model, samples, generator, batch_size, device_of(model))
    measured = metrics_of(outputs.cpu().numpy(), samples, mean_loss(outputs, samples))
    return measured["loss"], measured.get(metric_names(samples.task)[0], math.nan)


def mean_loss(outputs: Tensor, samples: Samples) -> float:
    """Return the mean loss of outputs (see `loss_for`), summed in float64 where the device has it."""
    widest, y = widest_float(outputs.device), tensor_of(samples.y, outputs.device)
    if samples.task == "classes":
        # Ten times as fast as torch's cross entropy for a few classes, because it iterates along samples.
        losses = -log_softmax(outputs.T, dim=0).gather(0, y[None])
        return float(losses.sum(dtype=widest)) / len(y)
    return float(LOSSES[samples.task](outputs, y, reduction="none").sum(dtype=widest)) / y.numel()


def training_loss(samples: Samples, training: LocalTraining) -> Loss:
    """Return the loss that a client with these samples minimises.

    It is `loss_for` their task; with balanced class weights, the cross entropy in which a class with ``n_c``
    of the client's ``n`` labels in ``k`` classes weighs ``n / (k n_c)`` (scikit-learn's balanced weights).
    """
    if training.class_weights == "none" or samples.task != "classes":
        return loss_for(samples.task)
    from sklearn.utils.class_weight import compute_class_weight

    classes = np.unique(samples.y)
    present = torch.from_numpy(classes)
    known = torch.from_numpy(compute_class_weight("balanced", classes=classes, y=samples.y))

    def weighted(outputs: Tensor, labels: Tensor) -> Tensor:
        weight = outputs.new_ones(outputs.shape[1])
        weight[present.to(weight.device)] = known.to(weight)
        return cross_entropy(outputs, labels, weight=weight)

    return weighted


LOSSES: dict[Task, Callable[..., Tensor]] = {
    "classes": cross_entropy,
    "regression": mse_loss,
    "survival": mse_loss,
    "multilabel": binary_cross_entropy_with_logits,
}
"""The losses of the tasks, a mean over samples and, without classes, over outputs; survival's labels are
pseudo-values."""


def reversing(features: Tensor, factor: float = 1.0) -> Tensor:
    """Return features that pass their gradient on times ``−factor`` (Ganin's gradient reversal layer).

    Examples
    --------
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (3 * reversing(x, 0.5)).sum().backward()
    >>> x.grad
    tensor([-1.5000, -1.5000])
    """
    features = features.view_as(features)
    features.register_hook(lambda gradient: -factor * gradient)  # type: ignore[no-untyped-call]
    return features


def loss_for(task: Task) -> Loss:
    """Return the loss of a task."""
    return LOSSES[task]


def light(kind: type[Kind], update: Callable[..., Any] | None = None) -> type[Kind]:
    """Return an optimizer class without `torch.optim`'s wrappers for ``torch.compile`` and the profiler.

    The compiler's import costs each new process two seconds and 150 MB, and the profiler's label of a step as
    much as a step of a small network. `update` replaces the step itself. Steps are equal bit for bit, and
    call the hooks that there are; the option ``differentiable`` is unavailable.
    """
    wrapped = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {name: unwrap(getattr(kind, name)) for name in wrapped}
    plain = torch.no_grad()(update or unwrap(kind.step))
    with_hooks = Optimizer.profile_hook_step(plain)

    def step(self: Any, closure: None = None) -> Any:
        own = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        hooked = own or _global_optimizer_pre_hooks or _global_optimizer_post_hooks
        return (with_hooks if hooked else plain)(self, closure)

    vars(step)["hooked"] = True  # else the class's first object would add the label
    return type(kind.__name__, (kind,), {**methods, "step": step})


def descend(optimizer: Optimizer, closure: None = None) -> None:
    """Take a step ``w ← w − η g`` of SGD without momentum, in a third of the time of PyTorch's."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-group["lr"])


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": partial(light(torch.optim.Adam), fused=True),
    "sgd": light(torch.optim.SGD, descend),
}
"""Optimizers by name: functions of the parameters and the learning rate."""


@contextmanager
def repeatable(seed: int, threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Fix the global random state, which dropout uses, and the threads, which determine the order of sums.

    A client's training is then equal bit for bit in any process. Both are restored afterwards. On an
    accelerator only deterministic algorithms run in the block; see `deterministic`.
    """
    before = torch.get_num_threads()
    with forked(device), deterministic(seed, device):
        # torch.manual_seed looks for a GPU in each call, which takes a millisecond.
        torch.default_generator.manual_seed(seed)
        if threads != before:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if threads != before:
                torch.set_num_threads(before)
