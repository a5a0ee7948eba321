"""Runs, comparisons of runs, and experiments, which are tables of runs defined in files."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.experiments.comparison import Comparison, compare
    from fda_flower.experiments.definition import Experiment, read_experiment
    from fda_flower.experiments.experiment import run_experiment
    from fda_flower.experiments.plan import Plan, plan_experiment
    from fda_flower.experiments.results import load_results, write_report
    from fda_flower.running.run import RUNNERS, Execution, RunResult, run_config
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "RUNNERS",
    "Comparison",
    "Execution",
    "Experiment",
    "Plan",
    "RunResult",
    "compare",
    "load_results",
    "plan_experiment",
    "read_experiment",
    "run_config",
    "run_experiment",
    "write_report",
]
