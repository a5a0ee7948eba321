"""Engines run a federation. They know neither strategies nor data."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from fda_flower.names import Count, NotNegative, check_fields, lazy_exports

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from fda_flower.engines.local import LocalGrid
    from fda_flower.engines.ray import run_ray
    from fda_flower.engines.superlink import PollingGrid
    from fda_flower.engines.workers import run_local
else:
    __getattr__, __dir__ = lazy_exports(__name__)

LOG = logging.getLogger("flwr.engines")


@dataclass(frozen=True)
class Resources:
    """Resources of a simulation.

    Attributes
    ----------
    threads : int
        Cores per client, also torch's number of threads.
    gpus_per_client : float
        Share of a GPU per client (Ray only): 0.25 lets four clients share one.
    workers : int, optional
        Processes that run clients. Default: none but this one for the local engine; as many as the cores
        allow for Ray.
    """

    threads: Count = 1
    gpus_per_client: NotNegative = 0.0
    workers: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def cores(self, available: int) -> int | None:
        """Return the cores for all workers, at most those available; None if `workers` is None."""
        if self.workers is None:
            return None
        fitting = max(available // self.threads, 1)
        if self.workers > fitting:
            LOG.warning(
                "workers is %d, but %d of them already use the machine's %d cores: running %d",
                *(self.workers, fitting, available, fitting),
            )
        return min(self.workers, fitting) * self.threads


@dataclass(frozen=True)
class Engine:
    """An entry of the table of engines; its module is imported on first use.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    function : str
        ``"module:function"``, which runs a server function over a grid of clients until it returns.
    parallel : bool
        Whether clients always run in their own processes, which can share a GPU.
    """

    summary: str
    function: str
    parallel: bool = False

    def __call__(
        self,
        server: "Callable[[Grid], None]",
        client_app: "ClientApp",
        num_clients: int,
        resources: Resources,
    ) -> None:
        """Run the server function and the clients until the server function returns."""
        resolve_name(self.function)(server, client_app, num_clients, resources)


ENGINES: dict[str, Engine] = {
    "local": Engine(
        "on this machine, starts at once; one client after the other, or --workers in parallel",
        "fda_flower.engines.workers:run_local",
    ),
    "ray": Engine(
        "through Flower's Ray simulation, clients in parallel processes",
        "fda_flower.engines.ray:run_ray",
        parallel=True,
    ),
}
"""The engines by name. To add one, write a file and add a line here."""

__all__ = ["ENGINES", "Engine", "LocalGrid", "PollingGrid", "Resources", "run_local", "run_ray"]
