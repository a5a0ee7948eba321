"""FedAvg on Fashion-MNIST by hand and in several frameworks, each as its own documentation has it."""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from frameworks.pairing import Pairing
from frameworks.task import Task


class Run(Protocol):
    """Trains all rounds of a task, and calls `Pairing.round_done` after each."""

    def __call__(self, task: Task, pairing: Pairing) -> None:
        """Run it."""


@dataclass(frozen=True)
class Framework:
    """A column of the table.

    Attributes
    ----------
    title : str
        Its heading.
    run : str
        ``"module:function"``, a `Run`; imported only in the process that runs it.
    packages : tuple of str
        The distributions that it needs.
    """

    title: str
    run: str
    packages: tuple[str, ...]

    def function(self) -> Run:
        """Import what runs it."""
        module, name = self.run.split(":")
        found: Run = getattr(import_module(f"frameworks.{module}"), name)
        return found


FRAMEWORKS = {
    "bare": Framework("bare", "bare:run", ("torch",)),
    "pfl": Framework("pfl-research", "pfl_research:run", ("pfl",)),
    "fluke": Framework("fluke", "fluke_app:run", ("fluke-fl",)),
    "fda-local": Framework("fda local", "fda:run_local", ("fda-flower",)),
    "fda-workers": Framework("fda local, 2 workers", "fda:run_workers", ("fda-flower",)),
    "flower-ray": Framework("Flower on Ray, 2 cores", "flower_app:run", ("flwr", "ray")),
    "fda-ray": Framework("fda ray, 2 cores", "fda:run_ray", ("fda-flower", "ray")),
}
"""The columns by name."""
