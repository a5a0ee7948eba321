"""What is made of runs' records: summaries, tables and pictures."""

from fda_flower.reporting.plots import plot_runs, save_figure
from fda_flower.reporting.summary import accuracies, summarise, write_summary
from fda_flower.reporting.tables import Row, make_rows, mean_std, to_csv, to_markdown

__all__ = [
    "Row",
    "accuracies",
    "make_rows",
    "mean_std",
    "plot_runs",
    "save_figure",
    "summarise",
    "to_csv",
    "to_markdown",
    "write_summary",
]
