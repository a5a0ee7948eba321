"""Options of Flower's FedAvg, which a project may still give to a strategy of this package."""

import inspect
from abc import ABCMeta
from logging import WARNING
from typing import Any

from flwr.common import log

from fda_flower.errors import invalid

TARGET, MEANS = "only the target evaluates", "numbers in train replies are averaged by num-examples"
FIGURES = "the figures are the target's"

OF_FEDAVG = {
    "fraction_evaluate": TARGET,
    "min_evaluate_nodes": TARGET,
    "weighted_by_key": "the weight is num-examples",
    "train_metrics_aggr_fn": MEANS,
    "evaluate_metrics_aggr_fn": FIGURES,
    "min_evaluate_clients": TARGET,
    "accept_failures": "a round goes on without clients that fail",
    "fit_metrics_aggregation_fn": MEANS,
    "evaluate_metrics_aggregation_fn": FIGURES,
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


class FlowersOptions(ABCMeta):
    """A class of strategies that takes Flower's options; those without effect get one warning for all.

    Options that a subclass takes itself are its own. Raises a `ConfigError` for one that would change the
    result, or that is given under two names.
    """

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

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Make a strategy."""
        own = cls.__signature__.parameters
        for name in [name for name in RENAMED if name in options and name not in own]:
            value, same = options.pop(name), RENAMED[name]
            if options.setdefault(same, value) != value:
                raise invalid(name, value, "leave one of them out", f"but {same} is {options[same]}")
        flowers = {name: options.pop(name) for name in OF_FEDAVG if name in options and name not in own}
        for name, value in flowers.items():
            if value != ALIKE.get(name, value):
                raise invalid(name, value, "leave it out", f"but {OF_FEDAVG[name]}")
        if flowers:
            instead = ", ".join(f"{name} ({OF_FEDAVG[name]})" for name in flowers)
            log(WARNING, "%s: options of Flower's FedAvg without effect: %s", cls.__name__, instead)
        return super().__call__(*args, **options)
