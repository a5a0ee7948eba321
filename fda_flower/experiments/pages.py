"""What pages and pictures need of runs, comparisons and experiments, read from their folders."""

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError, FdaError
from fda_flower.experiments.cells import read_cell
from fda_flower.experiments.definition import file_name
from fda_flower.experiments.experiment import DEFINITION, MARK, RESULTS, RUNS, load_results
from fda_flower.files import versions, write_atomically
from fda_flower.models.own import only_read
from fda_flower.records.folder import CONFIG, RunFolder
from fda_flower.records.record import Record, has_ended
from fda_flower.reporting import (
    REPORTS,
    CellResult,
    Results,
    about,
    caption,
    comparison_numbers,
    comparison_table,
    make_rows,
)
from fda_flower.reporting.html import Page, RunView, render, results_page, run_page
from fda_flower.reporting.tables import Part
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import method_names
from fda_flower.runs.settings import SETTINGS, command_options

NOT_SHARED = ("method", "method_options", "seed", "variant", "beta")
"""Settings that the runs of a comparison need not share."""


def single_page(folder: Path) -> Page:
    """Return the page of a run."""
    return run_page(read_view(folder), folder.resolve().name)


def comparison_page(folder: Path) -> Page:
    """Return the page of a comparison, or of any folder of runs."""
    views = _read_runs(folder)
    runs: dict[str, list[CellResult]] = {}
    for view in views.values():
        if view.history:
            result = CellResult(("", view.label, ""), view.seed, view.history, metric=view.metric)
            runs.setdefault(view.label, []).append(result)
    data = list(dict.fromkeys(view.data for view in views.values() if view.data))
    results = Results(
        name=folder.name,
        title=folder.resolve().name,
        source="",
        note="",
        axis="",
        rows=[*runs],
        columns=[""],
        cells=[cell for each in runs.values() for cell in each],
        rounds=max(len(view.history) for view in views.values()),
        data=data,
        metrics={("", ""): next(iter(views.values())).metric},
    )
    rows = make_rows(runs)
    numbers = {"All numbers": comparison_numbers(rows)} if rows else {}
    parts: list[Part] = [comparison_table(rows), caption(rows)] if rows else ["No round is done yet."]
    return results_page(results, parts, numbers, views, _compare_commands(folder, views), _state(views))


def experiment_page(folder: Path) -> Page:
    """Return the page of an experiment, with the runs that are not done yet."""
    results = load_results(folder)
    report = REPORTS[results.report]
    views = {path.stem: _cell_view(path) for path in sorted((folder / RESULTS).glob("*.json"))}
    for path in sorted((folder / RUNS).glob(f"*/{CONFIG}")):
        if path.parent.name not in views:
            views[path.parent.name] = read_view(path.parent)
    labels = {file_name(place): place[1] for place in results.places}
    for name, view in views.items():
        views[name] = replace(view, label=labels.get(name.rpartition("-seed")[0], view.label))
    numbers = {f"All numbers{ending}": table(results) for ending, table in report.tables.items()}
    commands = [
        *_experiment_commands(folder),
        shlex.join(["fda", "report", str(folder)]),
        shlex.join(["fda", "report", "--html", str(folder)]),
    ]
    return results_page(results, report.parts(results), numbers, views, commands, _state(views))


def draw(folder: Path, failed: Collection[str] = ()) -> Path:
    """Draw a run so far, or the runs of a folder that have ended; return the picture's file.

    Runs that have `failed`, by the names of their folders, are left out unread.

    Raises
    ------
    ConfigError
        If there is nothing to draw, or the picture cannot be written.
    """
    from fda_flower.reporting import plot_runs, save_figure

    single = (folder / CONFIG).exists()
    views = [read_view(folder)] if single else [*_read_runs(folder, failed).values()]
    ended = [view for view in views if view.history and (single or view.done)]
    if not ended:
        raise ConfigError(f"'{folder}' has no run to draw yet: go on with it by --resume", thing=str(folder))
    runs: dict[str, list[Sequence[Record]]] = {}
    for view in ended:
        runs.setdefault(view.label, []).append(view.history)
    what = about(list(dict.fromkeys(view.data for view in ended)), sorted({view.seed for view in ended}))
    path = folder / ("accuracy.png" if single else "comparison.png")
    try:
        save_figure(path, plot_runs(runs, ended[0].metric, what))
    except OSError as error:
        raise ConfigError(
            f"the picture '{path}' cannot be written: {error}", thing="picture", value=path
        ) from error
    return path


def _read_runs(folder: Path, failed: Collection[str] = ()) -> dict[str, RunView]:
    """Return the runs of a folder in the usual order of methods, labelled by it if it is a comparison."""
    folders = [path.parent for path in sorted(folder.glob(f"*/{CONFIG}"))]
    views = {each.name: read_view(each) for each in folders if each.name not in failed}
    if not _is_comparison(views.values()):
        views = {name: replace(view, label=name) for name, view in views.items()}
    order = {name: number for number, name in enumerate(method_names())}
    by_method = {
        name: order.get(str(view.settings.get("method")), len(order)) for name, view in views.items()
    }
    return {name: views[name] for name in sorted(views, key=by_method.__getitem__)}


def read_view(folder: Path) -> RunView:
    """Return what a page needs of the run in a folder.

    Raises
    ------
    ConfigError
        If its ``config.json`` cannot be read.
    """
    path = folder / CONFIG
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        settings = dict(found.get("settings") or found["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"'{path}' is not the configuration of a run ({error!r})", thing=str(path)
        ) from error
    history = RunFolder(folder).read_rounds()
    config = _config(settings)
    rounds = config.all_rounds if config else int(found.get("rounds", 0))
    output = ["--output", str(folder)]
    commands = [
        *([] if config is None else [shlex.join(["fda", "run", *command_options(SETTINGS, vars(config))])]),
        shlex.join(["fda", "run", "--config", str(path)]),
        shlex.join(["fda", "run", "--config", str(path), "--resume", *output]),
        shlex.join(["fda", "report", "--html", str(folder)]),
    ]
    return RunView(
        label=config.entry.title if config else str(settings.get("method", folder.name)),
        seed=int(settings.get("seed", 0)),
        history=history,
        settings=settings,
        notes={key: value for key, value in found.items() if key not in ("settings", "run")},
        rounds=rounds,
        done=has_ended(history, rounds, config.patience) if config else (folder / "summary.json").exists(),
        commands=commands,
        **({} if config is None else {"metric": config.headline}),
    )


def _cell_view(path: Path) -> RunView:
    """Return the same from the result of an experiment's cell."""
    found = read_cell(path)
    history = found["history"]
    notes: dict[str, Any] = {key: found[key] for key in ("versions", "machine", "parameters") if key in found}
    return RunView(found["row"], found["seed"], history, found["config"], notes, len(history))


@only_read()
def _config(settings: Mapping[str, Any]) -> RunConfig | None:
    """Return the configuration of settings; None if they are of another version or project."""
    try:
        return RunConfig(**settings)
    except (FdaError, TypeError, ValueError, KeyError):
        return None


def _experiment_commands(folder: Path) -> list[str]:
    """Return a command for each way in which the experiment was called."""
    mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    changes = [
        word
        for key, value in mark["settings"].items()
        for word in ("--set", f"{key.replace('_', '-')}={value}")
    ]
    commands = []
    for call in mark.get("calls", [{}]):
        parts = [word for label in call.get("only", ()) for word in ("--only", label)]
        if call.get("seeds"):
            parts += ["--seeds", _seeds(call["seeds"])]
        if call.get("rounds") is not None:
            parts += ["--rounds", str(call["rounds"])]
        experiment = ["fda", "experiment", str(folder / DEFINITION), *parts, *changes]
        commands.append(shlex.join([*experiment, "--output", str(folder)]))
    return commands


def _is_comparison(views: Any) -> bool:
    """Return whether runs are of one federation, each method with each seed once."""
    shared = [{k: v for k, v in view.settings.items() if k not in NOT_SHARED} for view in views]
    runs = [(view.label, view.seed) for view in views]
    return all(each == shared[0] for each in shared) and len(set(runs)) == len(runs)


def _compare_commands(folder: Path, views: Mapping[str, RunView]) -> list[str]:
    """Return the command that repeats a comparison, and else those of its runs."""
    again = shlex.join(["fda", "report", "--html", str(folder)])
    config = _config(next(iter(views.values())).settings)
    if config is None or not _is_comparison(views.values()):
        return [*(view.commands[0] for view in views.values()), again]
    methods = list(dict.fromkeys(str(view.settings["method"]) for view in views.values()))
    seeds = sorted({view.seed for view in views.values()})
    shared = [each for each in SETTINGS if each.name not in NOT_SHARED]
    options = command_options(shared, vars(config))
    chosen = ["--methods", ",".join(methods), "--seeds", _seeds(seeds)]
    compare = ["fda", "compare", *chosen, *options, "--output", str(folder)]
    return [shlex.join(compare), shlex.join([*compare, "--resume"]), again]


def _seeds(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}-{seeds[0]}" if len(seeds) == 1 else ",".join(map(str, seeds))


def _state(views: Mapping[str, RunView]) -> str:
    done = sum(view.done for view in views.values())
    return f"{done} of {len(views)} runs are done." if views else "No run has begun."


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
        "or `fda experiment`",
        thing=str(folder),
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
        raise ConfigError(
            f"the report '{output}' cannot be written: {error}", thing="report", value=output
        ) from error
