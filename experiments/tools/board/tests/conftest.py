"""The histories and results by hand of the package's own tests."""

from reporting.conftest import history, record, results, runs_of

__all__ = ["history", "record", "results", "runs_of"]
