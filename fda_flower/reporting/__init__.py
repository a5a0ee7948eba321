"""Summaries, tables and figures of runs, made from their records."""

from fda_flower.reporting.curves import save_both, save_figure
from fda_flower.reporting.experiment_plots import FIGURES, check_figures, save_figures
from fda_flower.reporting.experiment_tables import to_csv as experiment_csv
from fda_flower.reporting.experiment_tables import to_markdown as experiment_markdown
from fda_flower.reporting.plots import plot_runs
from fda_flower.reporting.reports import REPORTS
from fda_flower.reporting.results import CellResult, Results
from fda_flower.reporting.summary import summarise, summarise_run, write_summary
from fda_flower.reporting.tables import Row, caption, columns, make_rows, mean_std, to_csv, to_markdown
from fda_flower.reporting.words import about

__all__ = [
    "FIGURES",
    "REPORTS",
    "CellResult",
    "Results",
    "Row",
    "about",
    "caption",
    "check_figures",
    "columns",
    "experiment_csv",
    "experiment_markdown",
    "make_rows",
    "mean_std",
    "plot_runs",
    "save_both",
    "save_figure",
    "save_figures",
    "summarise",
    "summarise_run",
    "to_csv",
    "to_markdown",
    "write_summary",
]
