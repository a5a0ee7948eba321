"""Reports: the tables and figures of experiments, in files."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from fda_flower.errors import ConfigError
from fda_flower.files import write_atomically
from fda_flower.reporting import Results, experiment_csv, experiment_markdown, save_figures


def write_report(results: Sequence[Results], output: str | Path) -> list[Path]:
    """Write the tables and figures of experiments.

    Parameters
    ----------
    results : sequence of Results
        From `load_results`, in the order of the report.
    output : str or Path
        The Markdown file. A folder with its name, without the extension, receives a CSV file for each
        experiment, and its figures as PNG and PDF.

    Returns
    -------
    list[Path]
        The files written.

    Raises
    ------
    ConfigError
        If the files cannot be written.
    """
    output = Path(output)
    beside = output.with_suffix("")
    paths, sections = [], []
    try:
        beside.mkdir(parents=True, exist_ok=True)
        for one in results:
            table = beside / f"{one.name}.csv"
            write_atomically(table, experiment_csv(one).encode())
            figures = save_figures(one, beside) if one.cells else []
            pictures = [
                f"![{one.title}]({quote(f'{beside.name}/{path.name}')})"
                for path in figures
                if path.suffix == ".png"
            ]
            sections.append("\n\n".join([experiment_markdown(one).strip(), *pictures]))
            paths += [table, *figures]
        write_atomically(output, ("\n\n".join(sections) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"the report '{output}' cannot be written: {error}") from error
    return [output, *paths]
