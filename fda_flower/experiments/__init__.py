"""Runs, comparisons of runs, and experiments, which are tables of runs defined in files."""

from fda_flower.experiments.compare import Comparison, compare
from fda_flower.experiments.definition import Experiment, read_experiment
from fda_flower.experiments.experiment import run_experiment
from fda_flower.experiments.folder import load_results
from fda_flower.experiments.report import write_report
from fda_flower.experiments.run import RunResult, run, run_config
from fda_flower.experiments.runners import RUNNERS

__all__ = [
    "RUNNERS",
    "Comparison",
    "Experiment",
    "RunResult",
    "compare",
    "load_results",
    "read_experiment",
    "run",
    "run_config",
    "run_experiment",
    "write_report",
]
