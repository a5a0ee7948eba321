"""Federated domain adaptation for Flower: Mixture, which needs no knowledge of the shift, FedDA and FedGP."""

from typing import TYPE_CHECKING

from fda_flower.errors import ConfigError, FdaError, RunError
from fda_flower.files import version
from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.experiments.comparison import Comparison, compare
    from fda_flower.prediction.model import load
    from fda_flower.running.run import RunResult, run
    from fda_flower.runs.config import RunConfig
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__version__ = version()

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
