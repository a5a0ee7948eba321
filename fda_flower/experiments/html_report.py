"""Folders of runs, comparisons and experiments as one HTML page."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from fda_flower.errors import ConfigError
from fda_flower.experiments.folder import MARK
from fda_flower.experiments.views import comparison_page, experiment_page, single_page
from fda_flower.files import write_atomically
from fda_flower.reporting.html import Page, render
from fda_flower.run_folder import CONFIG
from fda_flower.versions import versions

PAGES: dict[str, Callable[[Path], Page]] = {
    "run": single_page,
    "comparison": comparison_page,
    "experiment": experiment_page,
}


def kind_of(folder: Path) -> str:
    """Return whether a folder is that of a run, a comparison or an experiment.

    Any folder of runs counts as a comparison.

    Raises
    ------
    ConfigError
        If it holds none of them.
    """
    if (folder / MARK).exists():
        return "experiment"
    if (folder / CONFIG).exists():
        return "run"
    if any(folder.glob(f"*/{CONFIG}")):
        return "comparison"
    raise ConfigError(
        f"'{folder}' holds no run, comparison or experiment: give the --output of `fda run`, `fda compare` "
        "or `fda experiment`"
    )


def write_html(folders: Sequence[str | Path], output: str | Path) -> None:
    """Write one page of what folders hold so far.

    Parameters
    ----------
    folders : sequence of str or Path
        Folders of runs, comparisons and experiments.
    output : str or Path
        The HTML file.

    Raises
    ------
    ConfigError
        If a folder holds none of them, or the file cannot be written.
    """
    pages = [PAGES[kind_of(Path(folder))](Path(folder)) for folder in folders]
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    text = render(pages, f"Made by fda-flower {versions()['fda-flower']}, {now}")
    try:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(output), text.encode())
    except OSError as error:
        raise ConfigError(f"the report '{output}' cannot be written: {error}") from error
