"""Folders of runs, comparisons and experiments as one HTML page, written once or renewed."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from fda_flower.errors import ConfigError
from fda_flower.experiments.folder import MARK
from fda_flower.experiments.views import comparison_page, experiment_page, single_page
from fda_flower.files import write_atomically
from fda_flower.reporting.html import Page, render
from fda_flower.run_folder import CONFIG, ROUNDS
from fda_flower.versions import versions

RENEW = 5
"""Seconds between two renewals of a page that is watched."""

CLOSING = {"run": "summary.json", "comparison": "table.md", "experiment": "report.md"}
"""The file with which a run, a comparison or an experiment ends."""

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


def write_html(folders: Sequence[str | Path], output: str | Path, renew_after: int = 0) -> None:
    """Write one page of what folders hold so far.

    Parameters
    ----------
    folders : sequence of str or Path
        Folders of runs, comparisons and experiments.
    output : str or Path
        The HTML file.
    renew_after : int
        Seconds after which the page loads itself again; 0 for never.

    Raises
    ------
    ConfigError
        If a folder holds none of them, or the file cannot be written.
    """
    pages = [PAGES[kind_of(Path(folder))](Path(folder)) for folder in folders]
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    text = render(pages, f"Made by fda-flower {versions()['fda-flower']}, {now}", renew_after)
    try:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(output), text.encode())
    except OSError as error:
        raise ConfigError(f"the report '{output}' cannot be written: {error}") from error


def is_done(folder: Path) -> bool:
    """Return whether what a folder holds has ended: its closing file is as new as all records."""
    closing = folder / CLOSING[kind_of(folder)]
    if not closing.exists():
        return False
    ended = closing.stat().st_mtime_ns
    records = [path for name in (CONFIG, ROUNDS) for path in folder.rglob(name)]
    return all(path.stat().st_mtime_ns <= ended for path in records)


def watch_html(
    folders: Sequence[str | Path],
    output: str | Path,
    every: float = RENEW,
    on_first: Callable[[], None] = lambda: None,
) -> None:
    """Write a page again and again until all that it shows has ended; the last one no longer renews itself.

    A folder that does not exist yet, or is empty, is waited for. `on_first` is called after the first page.
    """
    paths = [Path(folder) for folder in folders]
    first = True
    while True:
        there = [path for path in paths if _is_there(path)]
        done = len(there) == len(paths) and all(map(is_done, paths))
        if there:
            write_html(there, output, renew_after=0 if done else max(1, round(every)))
            if first:
                on_first()
            first = False
        if done:
            return
        time.sleep(every)


def _is_there(folder: Path) -> bool:
    try:
        kind_of(folder)
    except ConfigError:
        if folder.is_dir() and any(folder.iterdir()):
            raise
        return False
    return True
