"""Compare several methods and seeds on one federation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fda_flower.config import RunConfig
from fda_flower.engines import ENGINES, Resources
from fda_flower.errors import ConfigError, unknown
from fda_flower.experiments.cell import Cell, Progress, run_cells
from fda_flower.files import check_writable, only_writer, write_atomically
from fda_flower.methods import OF_FLOWER, check_federated, find_method, method_names
from fda_flower.registry import known_name
from fda_flower.reporting import (
    CellResult,
    Row,
    caption,
    comparison_numbers,
    comparison_table,
    make_rows,
    markdown,
)
from fda_flower.run_folder import RunFolder
from fda_flower.server_app import check_data
from fda_flower.trackers import check_trackers


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes
    ----------
    rows : list[Row]
        The table, with a row for each method.
    failures : dict[str, str]
        The reason for each failure, by the name of the cell.
    path : Path
        Its folder: a folder for each cell, ``table.md`` and ``table.csv``.
    left_out : dict[str, str]
        Of ``"all"`` methods those that cannot work with these settings, each with the reason.
    """

    rows: list[Row]
    failures: dict[str, str]
    path: Path
    left_out: dict[str, str] = field(default_factory=dict)


def compare(
    methods: Sequence[str] | Literal["all"],
    seeds: Sequence[int],
    output: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    jobs: int = 1,
    resume: bool = False,
    track: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Run each method with each seed, each cell in its own process.

    A cell that fails does not stop the others; the result holds the failures. An interrupt (Ctrl-C) leaves
    the table of the cells that are done.

    Parameters
    ----------
    methods : sequence of str or "all"
        The methods; or all that can work with these settings.
    seeds : sequence of int
        The seeds; each method with each seed is a cell.
    output : str or Path
        The folder to write to.
    engine : {"local", "ray"}
        Where each cell runs; with Ray, which uses the whole machine, take one job.
    workers : int, optional
        Processes that run the clients of each cell; see `Resources`.
    jobs : int
        Cells to run at a time.
    resume : bool
        Keep the cells that are done and continue the others.
    track : sequence of str
        Trackers of each cell, as in `fda_flower.run`; local stores are in `output`.
    on_progress : callable, optional
        Called a few times a second.
    **settings
        The fields of `RunConfig` that the cells share. ``beta`` and each of the ``method_options`` go only
        to the methods that take them.

    Raises
    ------
    ConfigError
        If a setting is invalid, or a method cannot work with the data or the network, before anything is
        trained.
    """
    own = [name for name in method_names() if not name.startswith(OF_FLOWER)]
    chosen = own if methods == "all" else [known_name(name, method_names()) for name in methods]
    for name, values in (("method", chosen), ("seed", seeds)):
        if not values:
            raise ConfigError(f"a comparison needs at least one {name}")
        if twice := [value for value in values if list(values).count(value) > 1]:
            raise ConfigError(
                f"{name} {twice[0]!r} is given {list(values).count(twice[0])} times: give it once"
            )
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1")
    Resources(workers=workers)
    check_trackers(track)
    folder = Path(output).absolute()
    check_writable(folder)
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"the output folder '{folder}' already holds a comparison: go on with --resume (resume=True), "
            "or choose another --output"
        )
    left_out = {}
    for method in chosen:
        try:
            if ENGINES[engine].parallel:
                check_federated(method)
            check_data(_config(method, seeds[0], chosen, settings))
        except ConfigError as error:
            if methods != "all":
                raise
            left_out[method] = str(error)
    if len(left_out) == len(chosen):
        raise ConfigError(f"no method can work with these settings: {next(iter(left_out.values()))}")
    cells = [
        Cell(
            ("", method, ""),
            _config(method, seed, chosen, settings),
            folder,
            engine=engine,
            workers=workers,
            resume=resume,
            track=track,
            track_in=folder,
        )
        for seed in seeds
        for method in chosen
        if method not in left_out
    ]
    with only_writer(folder):
        try:
            failures = run_cells(cells, jobs, on_progress)
        except KeyboardInterrupt:
            _write(folder, [cell for cell in cells if cell.has_ended()])
            raise
        rows = _write(folder, [cell for cell in cells if cell.name not in failures])
    return Comparison(rows, failures, folder, left_out)


def _config(method: str, seed: int, methods: Sequence[str], settings: Mapping[str, Any]) -> RunConfig:
    """Return one cell's configuration: the shared settings without those that only other methods take."""

    def kept(option: str) -> bool:
        takers = [name for name in methods if find_method(name).takes(option)]
        return method in takers or not takers

    options = dict(settings.get("method_options", ()))
    own = {name: value for name, value in options.items() if kept(name)}
    shared = {name: value for name, value in settings.items() if name != "beta" or kept("beta")}
    return RunConfig(**{**shared, "method": method, "seed": seed, "method_options": own})


def _write(folder: Path, cells: Sequence[Cell]) -> list[Row]:
    """Write the table from the records of the cells that are done, if there are any."""
    if not cells:
        return []
    runs: dict[str, list[CellResult]] = {}
    for cell in cells:
        history = RunFolder(cell.run_folder).read_rounds()
        result = CellResult(cell.place, cell.config.seed, history, metric=cell.config.headline)
        runs.setdefault(cell.config.entry.title, []).append(result)
    rows = make_rows(runs)
    write_atomically(folder / "table.md", markdown([comparison_table(rows), caption(rows)]).encode())
    write_atomically(folder / "table.csv", comparison_numbers(rows).csv().encode())
    return rows
