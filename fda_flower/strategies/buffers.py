"""What becomes of a model's buffers, such as BatchNorm's running statistics: the option `buffers`."""

from dataclasses import replace
from typing import get_args

from fda_flower.errors import ConfigError
from fda_flower.strategies.common_options import Buffers
from fda_flower.strategies.hooks import Aggregated, MethodHooks
from fda_flower.strategies.validation import ClientUpdate

WORDS: tuple[str, ...] = get_args(Buffers)


def check_buffers(strategy: MethodHooks, buffers: str) -> None:
    """Raise a `ConfigError` unless a strategy can do what a word of the option says."""
    silent = {"target": "the server gets no model that the target has trained"}
    refused = {**({} if "target" in strategy.trains else silent), **strategy.refused_buffers}
    if buffers in refused:
        remedy = " or ".join(word for word in WORDS if word not in refused)
        raise ConfigError(
            f"buffers is '{buffers}', but with {type(strategy).__name__} {refused[buffers]}: choose {remedy}"
        )


def with_buffers(buffers: str, aggregated: Aggregated, target: ClientUpdate | None) -> Aggregated:
    """Return what a round comes to, with ``"target"`` with the buffers that the target has replied.

    Parameters
    ----------
    buffers : {"mean", "target", "adabn"}
        The option.
    aggregated : Aggregated
        The new model as the method makes it.
    target : ClientUpdate or None
        The target's update; not None with ``"target"``.
    """
    if buffers != "target":
        return aggregated
    assert target is not None, "a method whose target does not train refuses the word"
    model = {name: target.buffers.get(name, array) for name, array in aggregated.model.items()}
    return replace(aggregated, model=model)
