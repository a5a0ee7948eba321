"""Engines run a federation. They know neither strategies nor data."""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from fda_flower.names.options import Count, NotNegative, built_from, read_fields
from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from fda_flower.engines.folders import Folders
    from fda_flower.engines.local import LocalGrid
    from fda_flower.engines.ray import run_ray
    from fda_flower.engines.superlink import PollingGrid
    from fda_flower.engines.workers import run_local
else:
    __getattr__, __dir__ = lazy_exports(__name__)


@built_from(read_fields)
@dataclass(frozen=True)
class Resources:
    """Resources of a simulation.

    Attributes
    ----------
    threads : int
        Cores per client, also torch's number of threads.
    gpus_per_client : float
        Share of a GPU per client (Ray only): 0.25 lets four clients share one.
    gpus_for_target : float, optional
        Share of the client with the number `target_number`, which then has a process of its own. Default:
        `gpus_per_client`.
    workers : int, optional
        Processes that run clients. Default: none but this one for the local engine; as many as there is
        room for on Ray.
    target_number : int, optional
        The target's number among the clients.
    """

    threads: Count = 1
    gpus_per_client: NotNegative = 0.0
    workers: Count | None = None
    gpus_for_target: NotNegative | None = None
    target_number: int | None = None

    @property
    def own_share(self) -> float | None:
        """The target's share of a GPU, if it differs from the other clients'."""
        return None if self.gpus_for_target == self.gpus_per_client else self.gpus_for_target

    def gpus_of(self, client: int) -> float:
        """Return a client's share of a GPU, by its number."""
        own = self.own_share
        return self.gpus_per_client if own is None or client != self.target_number else own


@dataclass(frozen=True)
class Engine:
    """An entry of the table of engines; its module is imported on first use.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    function : str
        ``"module:function"``, which does what a call does.
    parallel : bool
        Whether clients always run in their own processes, which can share a GPU.
    """

    summary: str
    function: str
    parallel: bool = False

    def __call__(
        self,
        server: "Callable[[Grid], None]",
        make_app: "Callable[[], ClientApp]",
        num_clients: int,
        resources: Resources,
        folders: "Folders | None" = None,
    ) -> None:
        """Run the server function and the clients until the server function returns.

        `make_app` is called once, so that the engine alone holds the client app and its data. The context of
        each client names the folder of `folders` in which it keeps files.
        """
        resolve_name(self.function)(server, make_app, num_clients, resources, folders)


ENGINES: dict[str, Engine] = {
    "local": Engine(
        "on this machine, starts at once; one client after the other, or --workers in parallel",
        "fda_flower.engines.workers:run_local",
    ),
    "ray": Engine(
        "on a Ray cluster, or with Ray on this machine; clients in parallel processes",
        "fda_flower.engines.ray:run_ray",
        parallel=True,
    ),
}
"""The engines by name. To add one, write a file and add a line here."""

__all__ = ["ENGINES", "Engine", "Folders", "LocalGrid", "PollingGrid", "Resources", "run_local", "run_ray"]
