"""What a method needs of the data and the network, checked before anything is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.names import read_options
from fda_flower.runs.methods import Method
from fda_flower.strategies.adaptive import betas_of, check_beta
from fda_flower.strategies.hooks import COMMON

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Facts:
    """What is known of a run before training; `unlabelled` is None if the target does not say."""

    model: "nn.Module"
    model_name: str
    sources: int
    unlabelled: int | None
    regression: bool


@dataclass(frozen=True)
class Need:
    """Something that a method needs: its name, whether a run has it, and what to do if not."""

    what: str
    is_met: Callable[[Facts], bool]
    remedy: str


def _has_body(facts: Facts, trained: bool = False) -> bool:
    from fda_flower.models.parts import has_body

    return has_body(facts.model, trained=trained)


def _has_head(facts: Facts) -> bool:
    from fda_flower.models.parts import head_of

    try:
        return head_of(facts.model) is not None
    except ConfigError:
        return False


def _has_batch_norm(facts: Facts) -> bool:
    from fda_flower.models.parts import batch_norm_names

    return bool(batch_norm_names(facts.model))


NEEDS: dict[str, Need] = {
    "body": Need(
        "a network with layers before its head",
        _has_body,
        "'{model}' is its own head: choose another model, such as mlp or cnn",
    ),
    "trained body": Need(
        "a network that trains layers before its head",
        partial(_has_body, trained=True),
        "all of '{model}' are frozen: train some of them",
    ),
    "head": Need(
        "a network with a linear layer or a module 'head'",
        _has_head,
        "'{model}' has neither: give the network an attribute 'head', leave out the member 'head', choose "
        "another model",
    ),
    "batch-norm": Need(
        "a network with BatchNorm",
        _has_batch_norm,
        "'{model}' has none: choose another model, such as resnet9, or lenet with batch_norm=true",
    ),
    "unlabelled": Need(
        "unlabelled training samples of the target",
        lambda facts: facts.unlabelled is None or facts.unlabelled > 0,
        "all of its samples are labelled: lower target-samples",
    ),
    "classes": Need(
        "classes",
        lambda facts: not facts.regression,
        "the labels of this data set are numbers: choose another data set",
    ),
    "two sources": Need(
        "at least two sources", lambda facts: facts.sources > 1, "there is {sources}: add a source"
    ),
}
"""The needs by name, as `Method.needs` names them."""


def check_needs(method: str, needs: Iterable[str], facts: Facts) -> None:
    """Raise a `ConfigError` that names method, need and remedy if a run lacks what its method needs."""
    for name in needs:
        need = NEEDS[name]
        if not need.is_met(facts):
            remedy = need.remedy.format(model=facts.model_name, sources=facts.sources)
            message = f"method '{method}' needs {need.what}, but {remedy}, or choose another method"
            raise ConfigError(message, thing="method", value=method)


def read_method(
    method: Method, what: str, options: Mapping[str, Any], variant: str | None
) -> tuple[tuple[str, Any], ...]:
    """Return the options of a method as sorted pairs, after a check of them and of its variant.

    `what` names the method in messages.
    """
    if variant is not None and variant not in method.variants:
        raise unknown("variant", variant, method.variants)
    read = read_options(what, method.strategy_class, dict(options), {*COMMON, "beta", "auto"})
    return tuple(sorted(read.items()))


def read_beta(method: Method, what: str, beta: float | Sequence[float], sources: Sequence[str]) -> Any:
    """Return a method's β, one number or one for each source; a `ConfigError` if it cannot work."""
    read = check_beta(beta)
    if not method.weighted:
        remedy = "leave it out, or choose FedDA or FedGP"
        raise ConfigError(f"{what} has no beta", thing="beta", value=beta, remedy=remedy)
    betas_of(read, sources)
    return read


def check_class_weights(words: str, method: Method, what: str, dataset: str, regression: bool) -> None:
    """Raise a `ConfigError` if classes are to be weighed where there are none, or no local training."""
    why = ""
    if regression:
        why = f"but '{dataset}' is a regression, which has no classes"
    elif method.centralised:
        why = f"but {what} has no local training to weigh them in"
    if why and words != "none":
        raise invalid("class-weights", words, "leave it out", why)
