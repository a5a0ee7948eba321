"""Run server and clients through Flower's Ray simulation."""

import logging
import os
import pickle
from collections.abc import Callable
from functools import lru_cache

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fda_flower.engines import Resources

QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}

PULL_SECONDS = 0.01
"""Interval at which the server polls for replies; Flower's default is 0.1."""


class PickledOnce(ClientApp):
    """A client app that each Ray process unpickles only once, although Ray pickles it with every message."""

    def __init__(self, app: ClientApp) -> None:
        from ray import cloudpickle

        super().__init__()
        self._pickled: bytes = cloudpickle.dumps(app)  # type: ignore[no-untyped-call]

    def __reduce__(self) -> tuple[Callable[[bytes], ClientApp], tuple[bytes]]:
        return _unpickled, (self._pickled,)


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> ClientApp:
    app: ClientApp = pickle.loads(pickled)
    return app


def run_ray(
    server: Callable[[Grid], None], client_app: ClientApp, num_clients: int, resources: Resources
) -> None:
    """Run server and clients through Flower's Ray simulation, with clients in parallel processes.

    Flower deprecates `run_simulation`, but its replacement, ``flwr run``, does not raise the server's errors.
    """
    import ray  # noqa: F401 - Flower's own error does not say that Ray is missing
    from flwr.simulation import run_simulation

    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        vars(grid)["pull_interval"] = PULL_SECONDS
        server(grid)

    cores = resources.cores(os.cpu_count() or 1)
    workers = {} if cores is None else {"num_cpus": cores}
    logger = logging.getLogger("flwr")
    logger.addFilter(_hide_deprecation)
    try:
        run_simulation(
            app,
            PickledOnce(client_app),
            num_clients,
            backend_config={
                "client_resources": {
                    "num_cpus": resources.threads,
                    "num_gpus": resources.gpus_per_client,
                },
                "init_args": {"include_dashboard": False, **workers},
            },
        )
    finally:
        logger.removeFilter(_hide_deprecation)


def _hide_deprecation(record: logging.LogRecord) -> bool:
    return "run_simulation" not in record.getMessage()
