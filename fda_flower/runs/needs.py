"""Requirements of methods on the data and the network, checked before training."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fda_flower.errors import ConfigError
from fda_flower.models.structure import Structure
from fda_flower.names.tasks import Task


@dataclass(frozen=True)
class Facts:
    """The facts about a run that are known before training.

    `unlabelled` is None if the target does not report it. `has_backbone` is true if a frozen backbone, which
    is not part of the network, computes features first. `has_rows` is true if samples are rows of a table, or
    features of a pretrained network for images.
    """

    network: Structure
    model_name: str
    sources: int
    unlabelled: int | None
    task: Task
    has_backbone: bool = False
    has_rows: bool = True


@dataclass(frozen=True)
class Need:
    """A requirement: its name, whether a run meets it, and the remedy if not."""

    what: str
    is_met: Callable[[Facts], bool]
    remedy: str


NEEDS: dict[str, Need] = {
    "body": Need(
        "a network with layers before its head",
        lambda facts: facts.has_backbone or facts.network.body,
        "'{model}' has none: choose another model, such as mlp",
    ),
    "trained body": Need(
        "a network that trains layers before its head",
        lambda facts: facts.network.trained_body,
        "all of '{model}' are frozen: train some of them, as with --train last",
    ),
    "frozen body": Need(
        "a network that trains nothing but its head, one linear layer",
        lambda facts: facts.network.head == "linear" and not facts.network.trained_body,
        "'{model}' trains more, or has none: choose --train head, or the model logistic",
    ),
    "head": Need(
        "a network with a linear layer or a module 'head'",
        lambda facts: facts.network.head is not None,
        "'{model}' has neither: give the network an attribute 'head', leave out the member 'head', choose "
        "another model",
    ),
    "batch-norm": Need(
        "a network with BatchNorm that is trained",
        lambda facts: facts.network.batch_norms > 0,
        "'{model}' trains none: train more of it, as with --train last, choose another model, for images "
        "resnet9, or lenet with batch_norm=true",
    ),
    "unlabelled": Need(
        "unlabelled training samples of the target",
        lambda facts: facts.unlabelled is None or facts.unlabelled > 0,
        "all of its samples are labelled: lower target-samples",
    ),
    "classes": Need(
        "classes",
        lambda facts: facts.task == "classes",
        "the task of this data set is {task}: choose another data set",
    ),
    "rows": Need(
        "a table without texts, or images with a pretrained network",
        lambda facts: facts.has_rows,
        "the samples are neither: for images choose a pretrained network, whose features are compared, such "
        "as --model efficientnet-lite0",
    ),
    "no several labels": Need(
        "a single label of each sample",
        lambda facts: facts.task != "multilabel",
        "each sample of this data set has several: choose ridge",
    ),
    "two sources": Need(
        "at least two sources", lambda facts: facts.sources > 1, "there is {sources}: add a source"
    ),
}
"""The requirements by name, for `Method.needs`."""


def check_needs(method: str, needs: Iterable[str], facts: Facts) -> None:
    """Raise a `ConfigError` that names method, need and remedy if a run misses a requirement."""
    for name in needs:
        need = NEEDS[name]
        if not need.is_met(facts):
            remedy = need.remedy.format(model=facts.model_name, sources=facts.sources, task=facts.task)
            message = f"method '{method}' needs {need.what}, but {remedy}, or choose another method"
            raise ConfigError(message, thing="method", value=method)
