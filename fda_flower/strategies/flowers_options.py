"""Options of Flower's FedAvg, which a project may still give to a strategy of this package."""

import inspect
from abc import ABCMeta
from logging import WARNING
from typing import Any

from flwr.common import log

from fda_flower.errors import invalid

ALL, TARGET, WAIT = (
    "all nodes train",
    "only the target evaluates",
    "wait_for is the number of nodes to wait for",
)
SOURCES = "min_sources is the number of sources that a round needs"
MEANS, FIGURES = "numbers in train replies are averaged by num-examples", "the figures are the target's"

OF_FEDAVG = {
    "fraction_train": ALL,
    "fraction_evaluate": TARGET,
    "min_train_nodes": SOURCES,
    "min_evaluate_nodes": TARGET,
    "min_available_nodes": WAIT,
    "weighted_by_key": "the weight is num-examples",
    "train_metrics_aggr_fn": MEANS,
    "evaluate_metrics_aggr_fn": FIGURES,
    "fraction_fit": ALL,
    "min_fit_clients": SOURCES,
    "min_evaluate_clients": TARGET,
    "min_available_clients": WAIT,
    "accept_failures": "a round goes on without clients that fail",
    "fit_metrics_aggregation_fn": MEANS,
    "evaluate_metrics_aggregation_fn": FIGURES,
    "inplace": "updates are summed exactly",
}
"""By option of Flower's FedAvg, also the older one, that the strategies lack, what serves instead."""

ALIKE = {"fraction_train": 1, "fraction_fit": 1, "weighted_by_key": "num-examples", "accept_failures": True}
"""By option that would change the result, the only value that does not."""


class FlowersOptions(ABCMeta):
    """A class of strategies that leaves out Flower's options without effect, with one warning for all.

    Options that a subclass takes itself are its own. Raises a `ConfigError` for one that would change the
    result.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the class's own ``__init__``: its own options first, then its bases' options."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        parameters = sorted([*signature.parameters.values()][1:], key=lambda each: cls._depth(each.name))
        return signature.replace(parameters=parameters, return_annotation=signature.empty)

    def _depth(cls, option: str) -> int:
        """Return how many bases away an option is declared; 0 for a parameter of an ``__init__``."""
        declared = (i for i, base in enumerate(cls.__mro__) if option in inspect.get_annotations(base))
        return next(declared, 0)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Make a strategy."""
        own = cls.__signature__.parameters
        flowers = {name: options.pop(name) for name in OF_FEDAVG if name in options and name not in own}
        for name, value in flowers.items():
            if value != ALIKE.get(name, value):
                raise invalid(name, value, "leave it out", f"but {OF_FEDAVG[name]}")
        if flowers:
            instead = ", ".join(f"{name} ({OF_FEDAVG[name]})" for name in flowers)
            log(WARNING, "%s: options of Flower's FedAvg without effect: %s", cls.__name__, instead)
        return super().__call__(*args, **options)
