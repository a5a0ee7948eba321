"""What records and pages of a long run with many sources take.

FedGP_Auto with 100 sources: (1) the bytes of a line of ``rounds.jsonl`` after the first, against its
numbers as float64; (2) the page of a run of 1,000 such rounds, against plotly's script, which every page
held until 25 November 2026; and the peak memory of the process that writes it, against one that only
imports what it needs, and one that reads all records.
Asked: a line of 3.8 kB, a page of 0.98 MB, 100 MiB.
"""

import json
import multiprocessing
import resource
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from common import MIB, quick_asked, show, show_machine, verdict

PLOTLY = 4.8e6
"""Bytes of plotly's script, version 7.1."""
LINE, PAGE, PEAK = 3800, 0.98e6, 100.0


def write_run(folder: Path, sources: int, rounds: int) -> list[bytes]:
    """Run three rounds; repeat the second one up to a number of rounds. The lines of the three."""
    from fda_flower.running.run import Execution, run_config
    from fda_flower.runs.config import RunConfig

    few: dict[str, Any] = {"source_samples": 6, "target_samples": 6, "target_batch_size": 3, "device": "cpu"}
    config = RunConfig(method="fedgp-auto", model="mlp", sources=sources, rounds=3, **few)
    run_config(config, Execution(output=folder))
    path = folder / "rounds.jsonl"
    first, second, last = (json.loads(line) for line in path.read_bytes().splitlines())
    middle = (second | {"round": number} for number in range(2, rounds))
    lines = [first, *middle, last | {"round": rounds}]
    before = path.read_bytes().splitlines()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return before


def numbers_in(value: object) -> int:
    """The numbers in a JSON value."""
    if isinstance(value, dict | list):
        return sum(map(numbers_in, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def load(folder: Path) -> None:
    """Import what writes the page, and nothing else."""
    import jinja2  # noqa: F401

    import fda_flower.experiments.pages  # noqa: F401


def read(folder: Path) -> None:
    """Read the records, and nothing else."""
    from fda_flower.records.folder import RunFolder

    RunFolder(folder).read_rounds()


def write(folder: Path) -> None:
    """Write the page."""
    from fda_flower.experiments.pages import write_html

    write_html([folder], folder / "page.html")


def peak_of(function: Callable[[Path], None], folder: Path) -> float:
    """The peak memory of a process of its own that does this, in MiB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak, function, folder).result()


def _peak(function: Callable[[Path], None], folder: Path) -> float:
    function(folder)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    sources, rounds = (10, 20) if quick else (100, 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            _, line, _ = pool.submit(write_run, folder, sources, rounds).result()
        bare = 8 * numbers_in(json.loads(line))
        show(
            f"A line of rounds.jsonl, {sources} sources",
            ["bytes", "its numbers as float64", "ratio", "of what was asked"],
            [[f"{len(line):,}", f"{bare:,}", f"{len(line) / bare:.2f}", verdict(len(line) / LINE, 1)]],
        )
        loading, reading, writing = (peak_of(part, folder) for part in (load, read, write))
        size = (folder / "page.html").stat().st_size
    rows = [
        ["page (MB)", f"{size / 1e6:.2f}", f"plotly's script: {size / PLOTLY:.2f}", verdict(size / PAGE, 1)],
        ["MiB", f"{writing:.0f}", f"reading all: {writing / reading:.2f}", verdict(writing / PEAK, 1)],
        ["MiB beyond its imports", f"{writing - loading:.0f}", f"imports: {loading:.0f} MiB", ""],
    ]
    show(f"HTML of {rounds:,} rounds, {sources} sources", ["what", "", "ratio to", "of what was asked"], rows)


if __name__ == "__main__":
    main()
