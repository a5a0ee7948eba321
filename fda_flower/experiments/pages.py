"""Pages, cards and pictures of runs, comparisons and experiments, from their folders."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError
from fda_flower.experiments.folders import DEFINITION, conclusion_of, kind_of, read_mark, read_run, read_runs
from fda_flower.experiments.results import load_results
from fda_flower.files import DESCRIPTION, versions, write_atomically, writing
from fda_flower.records.folder import CONFIG
from fda_flower.records.record import Record
from fda_flower.records.verification import verify
from fda_flower.reporting import REPORTS, markdown
from fda_flower.reporting.card import Model, card, card_parts
from fda_flower.reporting.html import Page, render, results_page, run_page
from fda_flower.reporting.results import RecordedRun, file_name
from fda_flower.reporting.tables import escaped
from fda_flower.runs.settings import as_flower


def single_page(folder: Path) -> Page:
    """Return the page of a run."""
    run = read_run(folder)
    if run.commands:
        first, *others = run.commands
        run = replace(run, commands=[_into(first, _again(folder)), *others])
    model = _model(folder, run)
    return run_page(run, folder.resolve().name, card_parts(run, model), model.conclusion)


def _model(folder: Path, run: RecordedRun, states: Sequence[Path] = ()) -> Model:
    """Return the text of a run's model card, with the logs in the ``state-dir`` of sites."""
    described = folder / DESCRIPTION
    verified = verify(folder) if run.history else None
    return Model(
        description=json.loads(described.read_text()) if described.exists() else {},
        verified="" if verified is None or verified.problems else verified.last,
        conclusion=conclusion_of(run),
        sent=[line for state in states for line in _sent(state)],
        path=folder.resolve().name,
    )


def _sent(state: Path) -> list[Record]:
    from fda_flower.site.log import read_log  # loads Flower

    return read_log(state)


def write_card(folder: str | Path, output: str | Path | None = None, states: Sequence[Path] = ()) -> Path:
    """Write the model card of a run, in Markdown; by default ``README.md`` in its folder.

    Raise a `ConfigError` if the folder holds no run, `states` hold no logs, or the file cannot be written.
    """
    folder, path = Path(folder), Path(output or Path(folder) / "README.md")
    if not (folder / CONFIG).exists():
        raise ConfigError(f"'{folder}' holds no run: give the folder of a run", thing=str(folder))
    run = read_run(folder)
    with writing("card", path):
        write_atomically(path, card(run, _model(folder, run, states)).encode())
    return path


def table_page(folder: Path) -> Page:
    """Return the page of an experiment, a comparison or any folder of runs, with the runs so far."""
    results, runs = load_results(folder), read_runs(folder)
    report, commands = REPORTS[results.design.report], list[str]()
    if kind_of(folder) == "experiment":
        commands += _experiment_commands(folder, runs.values())
        labels = {file_name(place): place[1] for place in results.places}
        for name, run in runs.items():
            runs[name] = replace(run, label=labels.get(name.rpartition("-seed")[0], run.label))
    else:
        again = {name: run.commands[0] for name, run in runs.items() if run.commands}
        commands += [_into(command, _again(folder) / name) for name, command in again.items()]
    numbers = {
        f"All numbers{ending}": table(results) for ending, table in report.tables.items() if results.rows
    }
    commands.append(shlex.join(["fda", "report", "--html", str(folder)]))
    done = sum(run.done for run in runs.values())
    state = f"{done} of {len(runs)} runs are done." if runs else "No run has begun."
    return results_page(results, report.parts(results), numbers, runs, commands, state)


def draw(folder: Path, figures: str = "png") -> Path:
    """Draw a run so far; return the picture's file.

    For a run in which every site is a target, also write the table in Markdown. `figures` is a format of
    `fda_flower.reporting.figures.FORMATS`. Raise a `ConfigError` if there is nothing to draw, or the picture
    cannot be written.
    """
    from fda_flower.reporting import (
        check_format,
        plot_runs,
        plot_sites,
        save_figure,
        sites_in,
        sites_note,
        sites_table,
    )

    check_format(figures)
    results = load_results(folder)
    if not results.runs:
        raise ConfigError(f"'{folder}' has no run to draw yet: go on with it by --resume", thing=str(folder))
    (run,) = results.all_runs
    sites = bool(sites_in(run.history))
    path = folder / f"{'sites' if sites else 'accuracy'}.{figures}"
    with writing("picture", path):
        if sites:
            save_figure(path, plot_sites(run.history, results.about()))
            text = markdown([sites_table(run.history), *filter(None, [escaped(sites_note(run.history))])])
            write_atomically(path.with_suffix(".md"), text.encode())
        else:
            save_figure(path, plot_runs(results))
    return path


def _experiment_commands(folder: Path, runs: Iterable[RecordedRun]) -> list[str]:
    """Return a command for each recorded call of the experiment, with the folder of its runs' data."""
    mark = read_mark(folder)
    data = dict.fromkeys(str(each) for run in runs if (each := run.settings.get("data_dir")))
    where = ["--data-dir", next(iter(data))] if data else []
    values = {key.replace("_", "-"): _text(value) for key, value in mark["settings"].items()}
    changes = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    commands = []
    for call in mark["calls"] or [{}]:
        parts = [word for label in call.get("only", ()) for word in ("--only", label)]
        if call.get("seeds"):
            parts += ["--seeds", _seeds(call["seeds"])]
        if call.get("rounds") is not None:
            parts += ["--rounds", str(call["rounds"])]
        experiment = ["fda", "experiment", str(folder / DEFINITION), *parts, *changes, *where]
        commands.append(shlex.join([*experiment, "--output", str(folder)]))
    return [*commands, shlex.join(["fda", "report", str(folder)])]


def _text(value: Any) -> str:
    """Return a setting's JSON value as text, as commands take it."""
    match value:
        case None:
            return "all"
        case bool():
            return str(value).lower()
        case dict():
            return str(as_flower(tuple((name, _text(one)) for name, one in value.items())))
        case list():
            return str(as_flower(tuple(map(_text, value))))
    return str(value)


def _again(folder: Path) -> Path:
    """Return a folder for the repetition of what a folder holds."""
    whole = folder.absolute() if folder.name in ("", "..") else folder
    return whole.with_name(f"{whole.name}-again")


def _into(command: str, folder: Path) -> str:
    return f"{command} --output {shlex.quote(str(folder))}"


def _seeds(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}-{seeds[0]}" if len(seeds) == 1 else ",".join(map(str, seeds))


def _from_here(folder: Path) -> Path:
    """Return a folder below the working folder as relative to it: pages are read on other machines, too."""
    place, here = folder.absolute(), Path.cwd()
    return place.relative_to(here) if place.is_relative_to(here) else folder


def write_html(folders: Sequence[str | Path], output: str | Path) -> None:
    """Write one HTML page of the runs, comparisons and experiments in folders.

    Raise a `ConfigError` if a folder holds none of them, or the file cannot be written.
    """
    paths = [_from_here(Path(folder)) for folder in folders]
    pages = [single_page(path) if kind_of(path) == "run" else table_page(path) for path in paths]
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    text = render(pages, f"Made by fda-flower {versions()['fda-flower']}, {now}")
    with writing("report", Path(output)):
        write_atomically(Path(output), text.encode())
