"""Checks of a run: its rounds and initial model before it starts, and what a method returns."""

from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, find_buffers, is_finite
from fda_flower.errors import ConfigError, RunError, invalid, unknown
from fda_flower.names.words import listed
from fda_flower.records.folder import RunFolder
from fda_flower.strategies.method import Aggregated
from fda_flower.strategies.replies import NotFiniteError


def check_objects(strategy: Any) -> None:
    """Raise a `ConfigError` if one of a strategy's options that are objects is of another kind."""
    if strategy.output is not None and not isinstance(strategy.output, RunFolder):
        raise invalid("output", strategy.output, "give RunFolder(path, settings)")
    if strategy.on_round is not None and not callable(strategy.on_round):
        raise invalid("on_round", strategy.on_round, "give a function of a round's record")
    if strategy.validation is not None and not isinstance(strategy.validation, Mapping):
        raise invalid("validation", strategy.validation, "give a metric of each round, such as {1: 0.8}")


PARTS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("state", "record", "clients"), (Mapping, "dictionary")),
    "warnings": ((list, tuple), "list of texts"),
}
"""What `Aggregated` has besides the model, with its types and their name."""


def check_aggregated(strategy: str, aggregated: object, model: Layers) -> None:
    """Raise a `RunError` unless `aggregate` returned a model with the names, shapes and types of `model`."""
    if not isinstance(aggregated, Aggregated):
        raise _wrong(strategy, type(aggregated).__name__, "return Aggregated(model)")
    for name, (types, kind) in PARTS.items():
        if not isinstance(getattr(aggregated, name), types):
            raise _wrong(strategy, f"{name} that is no {kind}", f"leave it out, or return a {kind}")
    for name, layers in {"model": aggregated.model, **aggregated.state}.items():
        arrays = layers.values() if isinstance(layers, Mapping) else [None]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise _wrong(strategy, f"a {name} that is no dictionary of NumPy arrays", "return arrays by name")
    for name in sorted({*aggregated.model, *model}):
        there, here = (_described(layers.get(name)) for layers in (aggregated.model, model))
        if there != here:
            what = f"array '{name}' as {there}, but it is {here} in the model"
            raise _wrong(strategy, what, "keep the names, shapes and types of round.model")


def _described(array: NDArray[Any] | None) -> str:
    return "nothing" if array is None else f"{array.dtype} of shape {array.shape}"


def _wrong(strategy: str, value: str, remedy: str) -> RunError:
    what = f"the aggregate of {strategy} returned {value}"
    return RunError(what, thing="aggregate", value=value, remedy=remedy)


def check_initial(model: Layers, buffers: Collection[str] | None = None) -> None:
    """Raise a `ConfigError` if the initial model has no parameters, or an array that no reply could have.

    `buffers` names its buffers; `find_buffers` finds them by default.
    """
    for name, array in model.items():
        if array.dtype.kind not in "fiub":
            fault, remedy = f"is of type {array.dtype}", "send it as floats, integers or truth values"
        elif not is_finite(array):
            fault = "holds NaN or infinity"
            remedy = "send finite values; leave out a constant, such as a mask (persistent=False)"
        else:
            continue
        what = f"array '{name}' of the initial model {fault}"
        raise ConfigError(what, thing="initial_arrays", value=name, remedy=remedy)
    if model.keys() <= {*(find_buffers(model) if buffers is None else buffers)}:
        why = f"all its arrays, {listed([*model])}, are integers or buffers" if model else "it is empty"
        what = f"the initial model has no parameters: {why}"
        remedy = "send its parameters as floats; for trees Flower has FedXgbBagging"
        raise ConfigError(what, thing="initial_arrays", value=[*model], remedy=remedy)


def check_finite(model: Layers) -> None:
    """Raise a `NotFiniteError` if a new model is not finite."""
    for name, array in model.items():
        if not is_finite(array):
            raise NotFiniteError(
                f"array '{name}' of the new model would hold NaN or infinity: a client's update, steps "
                "or learning rate are out of range; max_update_norm limits updates"
            )


def is_same(one: Layers, other: Layers) -> bool:
    """Return whether two models have the same arrays, of the same types.

    Examples
    --------
    >>> is_same({"w": np.ones(2)}, {"w": np.ones(2)}), is_same({"w": np.ones(2)}, {"w": np.ones(2, int)})
    (True, False)
    """
    if one.keys() != other.keys():
        return False
    pairs = ((one[name], other[name]) for name in one)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def check_start(strategy: Any, num_rounds: int, should_stop: object, before: int = 0) -> int:
    """Return the number of rounds; raise a `ConfigError` if the strategy cannot run them.

    They follow on the number of rounds `before`.
    """
    if isinstance(num_rounds, bool) or not isinstance(num_rounds, Integral):
        raise invalid("num_rounds", num_rounds, "give a whole number")
    num_rounds, all_rounds = int(num_rounds), before + int(num_rounds)
    if num_rounds < 1 or all_rounds <= strategy.warmup_rounds:
        remedy = f"it must be at least {max(1, strategy.warmup_rounds + 1 - before)}"
        remedy += f" with {strategy.warmup_rounds} warm-up rounds" if strategy.warmup_rounds else ""
        raise invalid("num_rounds", num_rounds, remedy)
    if should_stop is not None and strategy.ends_with_an_evaluation:
        why = f"should_stop is given, but {type(strategy).__name__} evaluates differently in the last round"
        why += ", which must be known beforehand"
        raise ConfigError(why, thing="should_stop", value=should_stop, remedy="leave it out")
    strategy.model_average.check(all_rounds - strategy.warmup_rounds)
    return num_rounds


def check_begin(strategy: Any, arrays: Collection[str]) -> None:
    """Raise a `ConfigError` for an unknown buffer, or if the rounds so far had another target.

    A target without a name of its own is called by its node's id, which changes with each start.
    """
    for name in strategy.buffer_names or ():
        if name not in arrays:
            raise unknown("buffer", name, arrays)
    target = strategy.nodes.target
    domains = [record["target"]["domain"] for record in strategy.history if record.get("target")]
    if domains and target is not None and target.domain not in (domains[-1], str(target.id)):
        why = f"but the rounds so far had the target '{domains[-1]}'"
        raise invalid("target", target.domain, "keep it, or give another output folder", why)


def check_driven(strategy: Any, done: int) -> None:
    """Raise a `ConfigError` if another loop than the strategy's start cannot run its rounds.

    `done` is the number of rounds in its folder.
    """
    name = type(strategy).__name__
    if strategy.patience is not None:
        why = f"but the rounds are not run by the start of {name}, which alone can end them early"
        raise invalid("patience", strategy.patience, "leave it out", why)
    if strategy.needs_num_rounds and not strategy.num_rounds:
        why = f"{name} does not know which round is the last, since its own start does not run them"
        remedy = "set it before the first round, as in strategy.num_rounds = 30"
        raise ConfigError(why, thing="num_rounds", value=0, remedy=remedy)
    if strategy.num_rounds:
        check_start(strategy, strategy.num_rounds, None)
    if done:
        path = strategy.output.path
        why = f"the run in '{path}' cannot be resumed, since its rounds are not run by the start of {name}"
        raise ConfigError(why, thing="output", value=path, remedy="give another folder")
