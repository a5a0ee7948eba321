"""Reports: the tables and figures of experiments, in files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from fda_flower.errors import ConfigError
from fda_flower.files import write_atomically
from fda_flower.reporting.results import Results


def write_report(results: Sequence[Results], output: str | Path) -> list[Path]:
    """Write the tables and figures of experiments.

    Parameters
    ----------
    results : sequence of Results
        From `load_results`, in the order of the report; more than one may be of the same experiment.
    output : str or Path
        The Markdown file. A folder with its name, without the extension, receives each experiment's
        tables as CSV files, and its figures as PNG.

    Returns
    -------
    list[Path]
        The files written.

    Raises
    ------
    ConfigError
        If the files cannot be written.
    """
    from fda_flower.reporting import REPORTS, save_figures

    output = Path(output)
    beside = output.with_suffix("")
    paths, sections = [], []
    try:
        beside.mkdir(parents=True, exist_ok=True)
        for one in _named_apart(results):
            report = REPORTS[one.report]
            for ending, table in report.tables.items():
                paths.append(beside / f"{one.name}{ending}.csv")
                write_atomically(paths[-1], table(one).csv().encode())
            figures = save_figures(one, beside) if one.cells else []
            pictures = [f"![{one.title}]({quote(f'{beside.name}/{path.name}')})" for path in figures]
            sections.append("\n\n".join([report.markdown(one).strip(), *pictures]))
            paths += figures
        write_atomically(output, ("\n\n".join(sections) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"the report '{output}' cannot be written: {error}") from error
    return [output, *paths]


def _named_apart(results: Sequence[Results]) -> list[Results]:
    """Number the results of an experiment that has been there before, so that each has files of its own."""
    seen: Counter[str] = Counter()
    named = []
    for one in results:
        seen[one.name] += 1
        number = seen[one.name]
        named.append(one if number == 1 else replace(one, name=f"{one.name}-{number}"))
    return named
