"""Mixture in a PyTorch project: a target mixes the sources' model with models that it trains."""

import copy
from collections.abc import Callable, Sequence
from logging import WARNING
from typing import Any

import torch
from flwr.common import log
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients.mixture_members import (
    Learner,
    Positions,
    TrainedMixture,
    classes_alone,
    train_mixture,
)
from fda_flower.clients.project_network import labels_of, logits_in, outputs_for, with_logits
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
from fda_flower.models.devices import forked
from fda_flower.models.parts import to_train

Loader = DataLoader[Any]


class MixedModel(nn.Module):
    """A mixture as a module: it takes the inputs of its models, and returns log-probabilities.

    Cross entropy and ``argmax`` thus work as with logits. For a regression it returns the predicted numbers.
    If its models return more than logits, so does the mixture, with None for the rest, but for the ``loss``
    of ``labels`` that it is given. It propagates no gradients. ``trained.mixture.weights`` are the weights of
    its models.
    """

    def __init__(self, trained: TrainedMixture[nn.Module]) -> None:
        super().__init__()
        self.trained = trained
        self.models = nn.ModuleList(model for models in trained.models.values() for model in models)
        self.eval()

    @torch.no_grad()
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the mixture's outputs, in the form, shape and device of the models' outputs."""
        outputs: list[Any] = []

        def predict(model: nn.Module) -> NDArray[Any]:
            outputs.append(model(*inputs, **named))
            return _to_numpy(logits_in(outputs[-1]))

        mixed = torch.from_numpy(self.trained.predict(predict))
        regression, like = self.trained.mixture.regression, logits_in(outputs[0])
        if not regression:
            mixed = mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()
        mixed = mixed.to(like).view_as(like)
        return with_logits(outputs[0], mixed, _loss_of(mixed, named.get("labels"), regression))


def _loss_of(mixed: Tensor, labels: Tensor | None, regression: bool) -> Tensor | None:
    """Return the loss of a mixture's outputs, if the network is given labels that it fits."""
    if labels is None or labels.is_floating_point() is not regression:
        return None
    if regression:
        return nn.functional.mse_loss(mixed, labels.view_as(mixed))
    return nn.functional.nll_loss(mixed, labels.view(-1))


def mix_on_target(
    sources: nn.Module,
    first: nn.Module,
    loader: Loader,
    train: Callable[[nn.Module, Loader, int], Any],
    predict: Callable[[nn.Module, Loader], Tensor] | None = None,
    *,
    labels: Tensor | None = None,
    groups: Tensor | None = None,
    epochs: int = 30,
    plan: MixturePlan | None = None,
    seed: int = 0,
) -> MixedModel:
    """Train the members of a mixture with a project's training loop, and weigh them on held-out labels.

    With the default plan, `train` is called 15 times, for ``4 (epochs + 30)`` epochs of all labels in total
    (with 500 labels or more ``4 (epochs + 10)``), and a prediction takes 16 models.

    Parameters
    ----------
    sources : Module
        The sources' model. It must not have been trained on the target's labels, which weigh it.
    first : Module
        The initial model of the target's own, such as a new one. Neither model is changed.
    loader : DataLoader
        The target's labelled samples. `train` and `predict` get loaders of subsets, with its batch size and
        ``collate_fn``; those for `train` are shuffled. BatchNorm cannot train on one sample, so they drop a
        last batch of one unless the loader itself has one.
    train : callable
        Trains a model in place on a loader for a number of epochs, with a new optimizer each time.
    predict : callable, optional
        Returns a model's outputs for the samples of a loader, shape ``(n, C)``. Default: ``model(x)`` for
        batches ``x, y``, or ``model(**entries)`` for dictionaries of the network's parameters; of several
        outputs the ``logits``, or the first (`fda_flower.clients.project_network`).
    labels : Tensor, optional
        Classes (whole numbers) of shape ``(n,)``; for a regression real numbers, ``(n,)`` or ``(n, C)``.
        Default: the ``y`` of all batches ``x, y``, or the entry ``label``, ``labels``, ``y`` or ``target``.
    groups : Tensor, optional
        The group of each sample, such as a patient, integers of shape ``(n,)``: a model is weighed by groups
        that it was not trained on, each of which counts as one.
    epochs : int
        Epochs of the target's own model.
    plan : MixturePlan, optional
        The composition of the mixture. The members ``head`` and ``blend`` are not supported.
    seed : int
        Determines the folds, and the random numbers of `train` from torch's global generators.

    Raises
    ------
    ConfigError
        If labels are too few or do not fit the data set or the outputs, the loader has no batch size, a
        sampler of its own or batches of another form, `epochs` is negative, or a member is not supported.
    RunError
        If no member has finite outputs.
    """
    if epochs < 0:
        raise invalid("epochs", epochs, "it must be at least 0")
    if loader.batch_size is None:
        message = "the loader has no batch size, so that its data cannot be divided: give it one"
        raise ConfigError(message, thing="batch size")
    if not isinstance(loader.sampler, SequentialSampler | RandomSampler):
        raise ConfigError(
            f"the loader has the sampler {type(loader.sampler).__name__}, which a mixture cannot follow",
            thing="sampler",
            value=type(loader.sampler).__name__,
            remedy="give a loader without one; for some of the samples, one of torch.utils.data.Subset",
        )
    device, size = next(sources.parameters()).device, len(loader.dataset)  # type: ignore[arg-type]

    def train_on(model: nn.Module, positions: Positions, numbers: Sequence[int], stream: str) -> nn.Module:
        model = copy.deepcopy(model)
        to_train(model)
        torch.manual_seed(derive_seed(seed, stream, numbers[0]))
        train(model, _part(loader, positions.tolist(), shuffle=True), len(numbers))
        return model

    def predict_on(model: nn.Module, positions: Positions) -> NDArray[Any]:
        with torch.no_grad():
            outputs = (predict or _outputs_of)(model.eval(), _part(loader, positions.tolist()))
        if outputs.dim() > 2:
            what = f"the network's outputs have the shape {list(outputs.shape)}, not one row for each sample"
            raise ConfigError(what, thing="outputs", value=list(outputs.shape), remedy="give predict")
        return _to_numpy(outputs)

    with forked(device):
        if labels is None:
            labels = torch.cat([_labels_of(batch) for batch in _part(loader, range(size))])
        for what, given in (("labels", labels), ("groups", groups)):
            if given is not None and len(given) != size:
                message = f"there are {len(given)} {what} for a data set of {size} samples"
                raise ConfigError(message, thing=what, value=len(given), remedy="give one for each")
        given_labels = _one_each(labels).detach().cpu().numpy()
        patients = None if groups is None else groups.cpu().numpy()
        if not labels.is_floating_point() and (alone := classes_alone(given_labels, patients)):
            log(WARNING, "Classes with a single label, which a model without it does not know: %s", alone)
        trained = train_mixture(
            Learner(train_on, predict_on),
            given_labels,
            sources=copy.deepcopy(sources),
            first=copy.deepcopy(first),
            rounds=range(1, epochs + 1),
            plan=plan,
            seed=seed,
            groups=patients,
        )
    return MixedModel(trained).to(device)


def _outputs_of(model: nn.Module, loader: Loader) -> Tensor:
    return torch.cat([outputs_for(model, batch, "give predict, or ") for batch in loader])


def _labels_of(batch: Any) -> Tensor:
    return _one_each(labels_of(batch, "give labels, or "))


def _one_each(labels: Tensor) -> Tensor:
    """Return labels; raise a `ConfigError` if a sample has several, such as one for each word or pixel."""
    if labels.dim() > 1 + labels.is_floating_point():
        what = f"the labels of {len(labels)} samples have the shape {list(labels.shape)}"
        raise ConfigError(
            what, thing="labels", value=list(labels.shape), remedy="give one class for each sample"
        )
    return labels


def _part(loader: Loader, positions: Sequence[int], *, shuffle: bool = False) -> Loader:
    """Return a loader of some samples; in order, or shuffled for training."""
    size = loader.batch_size or 1
    leaves_one = len(positions) % size == 1 != len(loader.dataset) % size  # type: ignore[arg-type]
    return DataLoader(
        Subset(loader.dataset, positions),
        loader.batch_size,
        shuffle=shuffle,
        collate_fn=loader.collate_fn,
        drop_last=shuffle and len(positions) >= size and (loader.drop_last or leaves_one),
    )


def _to_numpy(outputs: Tensor) -> NDArray[Any]:
    return outputs.detach().cpu().double().numpy()
