"""The kinds of reports: what is written of an experiment besides its figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fda_flower.reporting import experiment_tables, lost, regret
from fda_flower.reporting.results import Results
from fda_flower.reporting.tables import Heading, Part, Table, markdown


@dataclass(frozen=True)
class Report:
    """A kind of report.

    Attributes
    ----------
    sections : sequence of callable
        Each returns some of the text's parts.
    tables : mapping of str to callable
        Each returns a table of numbers, by what its file's name has after the experiment's.
    """

    sections: Sequence[Callable[[Results], list[Part]]]
    tables: Mapping[str, Callable[[Results], Table]]

    def parts(self, results: Results) -> list[Part]:
        """Return the text without its title."""
        return [part for section in self.sections for part in section(results)]

    def markdown(self, results: Results) -> str:
        """Return the whole text."""
        return markdown([Heading(results.title, 1), *self.parts(results)])


SCORES = Report([experiment_tables.report], {"": experiment_tables.numbers})
REGRET = Report(
    [*SCORES.sections, regret.report],
    {
        **SCORES.tables,
        "-regret": regret.by_cell,
        "-regret-methods": regret.by_row,
    },
)
LOST = Report([*SCORES.sections, lost.report], {**SCORES.tables, "-lost": lost.numbers})

COMPARISON = Report([experiment_tables.comparison], {"": experiment_tables.comparison_numbers})
"""The report of a comparison."""

REPORTS: dict[str, Report] = {"table": SCORES, "regret": REGRET, "lost": LOST}
"""The kinds by name, as an experiment's file has them."""
