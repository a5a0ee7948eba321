"""Engines: where a federation runs. An engine knows neither strategies nor data."""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from fda_flower.engines.resources import Resources
from fda_flower.names import lazy_exports

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from fda_flower.engines.local import LocalGrid, run_local
    from fda_flower.engines.ray import run_ray
    from fda_flower.engines.superlink import PromptGrid
else:
    __getattr__, __dir__ = lazy_exports(__name__)


@dataclass(frozen=True)
class Engine:
    """An entry of the table of engines, whose module is imported on first use.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    function : str
        ``"module:function"``: a function that calls a server function with a grid of `num_clients` clients,
        each of which runs the client app.
    parallel : bool
        Whether clients always run in processes of their own, to which shares of a GPU can be assigned.
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
        """Run the server function and the clients to the end."""
        resolve_name(self.function)(server, client_app, num_clients, resources)


ENGINES: dict[str, Engine] = {
    "local": Engine(
        "on this machine: no start-up; one client after the other, or --workers side by side",
        "fda_flower.engines.local:run_local",
    ),
    "ray": Engine(
        "through Flower's Ray simulation, clients in parallel processes",
        "fda_flower.engines.ray:run_ray",
        parallel=True,
    ),
}
"""The engines by name. A new one is a file and one line here."""

__all__ = ["ENGINES", "Engine", "LocalGrid", "PromptGrid", "Resources", "run_local", "run_ray"]
