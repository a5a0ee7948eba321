"""Reports as one file for a browser: tables that sort, charts that answer the pointer, no network."""

from fda_flower.reporting.html.page import Chart, Code, Page, Section, render
from fda_flower.reporting.html.runs import results_page, run_page

__all__ = ["Chart", "Code", "Page", "Section", "render", "results_page", "run_page"]
