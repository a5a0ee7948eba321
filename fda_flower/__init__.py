"""Federated domain adaptation for Flower: FedDA, FedGP and auto-weighting."""

from importlib.metadata import version

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, FdaError, RunError
from fda_flower.experiments import Comparison, RunResult, compare, run

__version__ = version("fda-flower")

__all__ = [
    "Comparison",
    "ConfigError",
    "FdaError",
    "RunConfig",
    "RunError",
    "RunResult",
    "compare",
    "run",
]
