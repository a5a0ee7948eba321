"""The resources that a simulated client may use."""

import logging
from dataclasses import dataclass

from fda_flower.errors import invalid

LOG = logging.getLogger("flwr.engines")


@dataclass(frozen=True)
class Resources:
    """Resources of a simulation.

    Attributes
    ----------
    cpus_per_client : int
        Cores, which are also torch's threads.
    gpus_per_client : float
        Share of a GPU (Ray only: 0.25 lets four clients share one).
    workers : int, optional
        Processes that run clients. Default: for the local engine none but this one; for Ray as many as the
        cores allow.
    """

    cpus_per_client: int = 1
    gpus_per_client: float = 0.0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.cpus_per_client < 1:
            raise invalid("cpus-per-client", self.cpus_per_client, "at least 1 is needed")
        if self.gpus_per_client < 0:
            raise invalid("gpus-per-client", self.gpus_per_client, "it must not be negative")
        if self.workers is not None and self.workers < 1:
            raise invalid("workers", self.workers, "at least 1 is needed")

    def cores(self, available: int) -> int | None:
        """Return the cores of all workers, as far as there are any; None if their number is not given."""
        if self.workers is None:
            return None
        fitting = max(available // self.cpus_per_client, 1)
        if self.workers > fitting:
            LOG.warning(
                "workers is %d, but %d of them fill the machine's %d cores: %d run",
                *(self.workers, fitting, available, fitting),
            )
        return min(self.workers, fitting) * self.cpus_per_client
