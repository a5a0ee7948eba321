"""Options of Flower's FedAvg, which a project may still give to a strategy of this package."""

import inspect
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from logging import WARNING
from typing import Any

from flwr.app import Message, RecordDict
from flwr.common import log

from fda_flower.errors import invalid

TARGET = "only the target evaluates"

OF_FEDAVG = {
    "fraction_evaluate": TARGET,
    "min_evaluate_nodes": TARGET,
    "weighted_by_key": "the weight is num-examples",
    "min_evaluate_clients": TARGET,
    "accept_failures": "a round goes on without clients that fail",
    "inplace": "updates are summed exactly",
}
"""By option of Flower's FedAvg, also the older one, that the strategies lack, what serves instead."""

ALIKE = {"weighted_by_key": "num-examples", "accept_failures": True}
"""By option that would change the result, the only value that does not."""

RENAMED = {
    "fraction_fit": "fraction_train",
    "min_fit_clients": "min_train_nodes",
    "min_available_nodes": "wait_for",
    "min_available_clients": "wait_for",
}
"""By option of Flower's FedAvg, the option of the strategies that does the same."""

OPTIMIZER = "but the method itself updates the model"
OF_OTHERS = {
    "proximal_mu": 'but it is for clients: set "proximal-mu" in train_config (on the older API, '
    '"proximal_mu" in on_fit_config_fn)',
    **dict.fromkeys(("eta", "eta_l", "beta_1", "beta_2", "tau"), OPTIMIZER),
    **dict.fromkeys(("server_learning_rate", "server_momentum"), OPTIMIZER),
}
"""By option of Flower's FedProx, FedAdam and others that no strategy takes over, why."""


class FlowersOptions(ABCMeta):
    """A class of strategies that takes Flower's options; those without effect get one warning for all.

    Options that a subclass takes itself are its own, and it may pass them on to its base. Raises a
    `ConfigError` for one that would change the result, or that is given under two names.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = with_flowers_options(cls.__init__)  # type: ignore[misc]

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the class's own ``__init__``: its own options first, then its bases' options."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        parameters = sorted([*signature.parameters.values()][1:], key=cls._place)
        return signature.replace(parameters=parameters, return_annotation=signature.empty)

    def _place(cls, option: inspect.Parameter) -> tuple[int, int]:
        """Return an option's kind and how many bases away it is declared, 0 for an ``__init__``'s own."""
        if option.kind is not option.KEYWORD_ONLY:
            return option.kind, 0
        declared = (i for i, base in enumerate(cls.__mro__) if option.name in inspect.get_annotations(base))
        return option.kind, next(declared, 0)


def with_flowers_options(build: Callable[..., None]) -> Callable[..., None]:
    """Let an ``__init__`` take the options of Flower's FedAvg, unless it passes on all others itself."""
    own = inspect.signature(build).parameters
    if any(each.kind is each.VAR_KEYWORD for each in own.values()):
        return build

    @wraps(build)
    def init(self: Any, *args: Any, **options: Any) -> None:
        build(self, *args, **_without_flowers(type(self).__name__, own, options))

    return init


def _without_flowers(owner: str, own: Collection[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return options under our names, without the ones of Flower's that have no effect."""
    for name in [name for name in RENAMED if name in options and name not in own]:
        value, same = options.pop(name), RENAMED[name]
        if options.setdefault(same, value) != value:
            raise invalid(name, value, "leave one of them out", f"but {same} is {options[same]}")
    for name, why in OF_OTHERS.items():
        if name in options and name not in own:
            raise invalid(name, options[name], "leave it out", why)
    flowers = {name: options.pop(name) for name in OF_FEDAVG if name in options and name not in own}
    for name, value in flowers.items():
        if value != ALIKE.get(name, value):
            raise invalid(name, value, "leave it out", f"but {OF_FEDAVG[name]}")
    if flowers:
        instead = ", ".join(f"{name} ({OF_FEDAVG[name]})" for name in flowers)
        log(WARNING, "%s: options of Flower's FedAvg without effect: %s", owner, instead)
    return options


class FlowersMembers:
    """What a project's own class may use of Flower's FedAvg, from which it once derived."""

    weighted_by_key = "num-examples"

    def _check_and_log_replies(
        self, replies: Iterable[Message], is_train: bool, validate: bool = True
    ) -> tuple[list[Message], list[Message]]:
        """Return the replies that are no errors, and the errors; `aggregate_train` checks and logs them."""
        every = [*replies]
        return [each for each in every if each.has_content()], [each for each in every if each.has_error()]


def contents_of(replies: Iterable[Message]) -> list[RecordDict]:
    """Return the contents of the replies that are no errors."""
    return [reply.content for reply in replies if reply.has_content()]


def made_by(
    function: Callable[..., Any] | None, read: Callable[[Any], Mapping[str, Any]], *replies: Any
) -> dict[str, Any]:
    """Return the metrics that a project's own function makes of replies, as `read`.

    There are none without a function, without replies, or if it fails: then a warning says why, since a
    single reply that lacks a metric must not end the run.
    """
    if function is None or not replies[0]:
        return {}
    try:
        return dict(read(function(*replies)))
    except Exception as error:
        name = getattr(function, "__name__", repr(function))
        log(WARNING, "Your function %s has failed on the replies: %s: %s", name, type(error).__name__, error)
        return {}
