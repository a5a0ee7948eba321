"""The kinds of report and the figures that an experiment's file can name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fda_flower.errors import unknown
from fda_flower.names.registry import Registry
from fda_flower.reporting import experiment_tables, plots
from fda_flower.reporting.figures import FORMATS, save_figure
from fda_flower.reporting.results import Results
from fda_flower.reporting.tables import Heading, Part, Table, latex, markdown


@dataclass(frozen=True)
class Report:
    """A kind of report: the functions of its text and, by the suffix of their file, of its numbers."""

    sections: Sequence[Callable[[Results], list[Part]]]
    tables: Mapping[str, Callable[[Results], Table]]

    def parts(self, results: Results) -> list[Part]:
        """Return the text without its title."""
        return [part for section in self.sections for part in section(results)]

    def markdown(self, results: Results) -> str:
        """Return the whole text."""
        return markdown([Heading(results.design.title, 1), *self.parts(results)])

    def latex(self, results: Results) -> str:
        """Return the tables in LaTeX."""
        return latex([Heading(results.design.title, 1), *self.parts(results)])


REPORTS: Registry[Report] = Registry(
    "reports", Report, {"table": Report([experiment_tables.report], {"": experiment_tables.numbers})}
)
"""The reports of an experiment, by the name that its file gives; a package may add its own."""

FIGURES: Registry[Callable[[Results], Figure]] = Registry(
    "figures",
    Callable,  # type: ignore[arg-type]
    {
        "runs": plots.plot_runs,
        "columns": plots.plot_columns,
        "rounds": plots.plot_rounds,
        "betas": plots.plot_betas,
    },
)
"""The figures of an experiment, by the name that its file gives; a package may add its own."""


def check_figures(names: Iterable[str]) -> None:
    """Raise a `ConfigError` if a name is not in `FIGURES`."""
    for name in names:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)


def check_format(name: str) -> None:
    """Raise a `ConfigError` if figures have no such format."""
    if name not in FORMATS:
        raise unknown("figure format", name, FORMATS)


def save_figures(results: Results, folder: Path, kind: str = "png") -> list[Path]:
    """Write each of the experiment's figures in a format of `FORMATS`; return their paths."""
    check_figures(results.design.figures)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{results.design.name}-{name}.{kind}" for name in results.design.figures]
    for path, name in zip(paths, results.design.figures, strict=True):
        save_figure(path, FIGURES[name](results))
    return paths
