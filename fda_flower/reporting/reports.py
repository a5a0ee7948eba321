"""The kinds of reports: what is written of an experiment besides its figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fda_flower.reporting import experiment_tables, lost, regret_tables
from fda_flower.reporting.results import Results


@dataclass(frozen=True)
class Report:
    """A kind of report.

    Attributes
    ----------
    sections : sequence of callable
        Each returns a part of the text, in Markdown.
    tables : mapping of str to callable
        Each returns a table in CSV, by what its file's name has after the experiment's.
    """

    sections: Sequence[Callable[[Results], str]]
    tables: Mapping[str, Callable[[Results], str]]

    def markdown(self, results: Results) -> str:
        """Return the whole text."""
        return "\n".join(section(results) for section in self.sections)


SCORES = Report([experiment_tables.to_markdown], {"": experiment_tables.to_csv})
REGRET = Report(
    [*SCORES.sections, regret_tables.to_markdown],
    {
        **SCORES.tables,
        "-regret": regret_tables.cells_to_csv,
        "-regret-methods": regret_tables.rows_to_csv,
    },
)
LOST = Report([*SCORES.sections, lost.to_markdown], {**SCORES.tables, "-lost": lost.to_csv})

REPORTS: dict[str, Report] = {"table": SCORES, "regret": REGRET, "lost": LOST}
"""The kinds by name."""
