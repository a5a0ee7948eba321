"""Summaries, tables and figures of runs, made from their records."""

from typing import TYPE_CHECKING

from fda_flower.names import lazy_exports

if TYPE_CHECKING:
    from fda_flower.reporting.experiment_plots import FIGURES, check_figures, save_figures
    from fda_flower.reporting.figures import save_figure
    from fda_flower.reporting.plots import plot_runs
    from fda_flower.reporting.reports import REPORTS
    from fda_flower.reporting.results import CellResult, Results, about
    from fda_flower.reporting.summary import summarise, summarise_run, write_summary
    from fda_flower.reporting.tables import (
        Row,
        Table,
        caption,
        comparison_numbers,
        comparison_table,
        make_rows,
        markdown,
        mean_std,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "FIGURES": "experiment_plots",
            "REPORTS": "reports",
            "CellResult": "results",
            "Results": "results",
            "Row": "tables",
            "Table": "tables",
            "about": "results",
            "caption": "tables",
            "check_figures": "experiment_plots",
            "comparison_numbers": "tables",
            "comparison_table": "tables",
            "make_rows": "tables",
            "markdown": "tables",
            "mean_std": "tables",
            "plot_runs": "plots",
            "save_figure": "figures",
            "save_figures": "experiment_plots",
            "summarise": "summary",
            "summarise_run": "summary",
            "write_summary": "summary",
        },
    )

__all__ = [
    "FIGURES",
    "REPORTS",
    "CellResult",
    "Results",
    "Row",
    "Table",
    "about",
    "caption",
    "check_figures",
    "comparison_numbers",
    "comparison_table",
    "make_rows",
    "markdown",
    "mean_std",
    "plot_runs",
    "save_figure",
    "save_figures",
    "summarise",
    "summarise_run",
    "write_summary",
]
