"""Runs and comparisons of runs."""

from fda_flower.experiments.compare import Comparison, compare
from fda_flower.experiments.run import RunResult, run, run_config

__all__ = ["Comparison", "RunResult", "compare", "run", "run_config"]
