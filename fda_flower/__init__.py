"""Federated domain adaptation for Flower: Mixture, which needs no knowledge of the shift, FedDA and FedGP."""

from typing import TYPE_CHECKING

# Nothing of the package is imported here: Flower's simulation imports the server's app and the clients'
# app in two threads, which would wait for each other.
if TYPE_CHECKING:
    from fda_flower.errors import ConfigError, FdaError, RunError
    from fda_flower.experiments.comparison import Comparison, compare
    from fda_flower.prediction.model import load
    from fda_flower.running.run import RunResult, run
    from fda_flower.runs.config import RunConfig

    __version__: str
else:

    def __getattr__(name):
        if name == "__version__":
            from fda_flower.files import version

            return version()
        if name.startswith("__"):
            raise AttributeError(name)
        from fda_flower.names.packages import lazy_exports

        get, _ = lazy_exports(__name__)
        return get(name)

    def __dir__():
        from fda_flower.names.packages import exports

        return sorted({*exports(__name__)(), "__version__"})


__all__ = [
    "Comparison",
    "ConfigError",
    "FdaError",
    "RunConfig",
    "RunError",
    "RunResult",
    "compare",
    "load",
    "run",
]
