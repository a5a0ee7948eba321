"""Names that the shell completes, from the registries; nothing heavy is loaded for them."""

from collections.abc import Callable, Iterable

from fda_flower.datasets.partitions import PARTITIONS
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.shifts import SHIFTS
from fda_flower.devices import DEVICES
from fda_flower.methods import method_names
from fda_flower.models import MODELS

Complete = Callable[[str], list[str]]


def among(names: Iterable[str]) -> Complete:
    """Complete one of some names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last of methods that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ("all", *method_names()) if name.startswith(last)]


COMPLETED: dict[str, Complete] = {
    "dataset": among(DATASETS),
    "shift": among(SHIFTS),
    "partition": among(PARTITIONS),
    "method": among(method_names()),
    "model": among(MODELS),
    "device": among(DEVICES),
}
"""By setting."""
