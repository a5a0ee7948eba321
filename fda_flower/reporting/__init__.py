"""Summaries, tables and figures of runs, from their records."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.reporting.figures import save_figure
    from fda_flower.reporting.plots import plot_runs, plot_sites
    from fda_flower.reporting.reports import (
        FIGURES,
        REPORTS,
        check_figures,
        check_format,
        save_figures,
    )
    from fda_flower.reporting.results import Design, RecordedRun, Results
    from fda_flower.reporting.sites import sites_in, sites_note, sites_table
    from fda_flower.reporting.summary import summarise, summarise_run, write_summary
    from fda_flower.reporting.tables import Table, latex, markdown, mean_std
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "FIGURES",
    "REPORTS",
    "Design",
    "RecordedRun",
    "Results",
    "Table",
    "check_figures",
    "check_format",
    "latex",
    "markdown",
    "mean_std",
    "plot_runs",
    "plot_sites",
    "save_figure",
    "save_figures",
    "sites_in",
    "sites_note",
    "sites_table",
    "summarise",
    "summarise_run",
    "write_summary",
]
