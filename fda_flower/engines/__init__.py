"""Where a federation runs; an engine knows neither strategies nor data."""

from collections.abc import Callable

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fda_flower.engines.local import LocalGrid, run_local
from fda_flower.engines.ray import run_ray
from fda_flower.engines.resources import Resources

Engine = Callable[[Callable[[Grid], None], ClientApp, int, Resources], None]
"""Calls a server function with a grid of so many clients, each running the client app."""

ENGINES: dict[str, Engine] = {
    "local": run_local,
    "ray": run_ray,
}
"""The engines by name. A new one is a file and one line here."""

__all__ = ["ENGINES", "Engine", "LocalGrid", "Resources", "run_local", "run_ray"]
