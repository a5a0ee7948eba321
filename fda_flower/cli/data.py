"""The command `fda data`, for the user's own data."""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.options import with_settings
from fda_flower.cli.output import out
from fda_flower.errors import LAST, ConfigError, some
from fda_flower.names.registry import known_name
from fda_flower.names.words import counted
from fda_flower.runs.settings import SETTINGS, command_options

if TYPE_CHECKING:
    from fda_flower.datasets import DataSpec
    from fda_flower.datasets.problems import Problem
    from fda_flower.own_data.check import DomainCheck

app = typer.Typer(no_args_is_help=True, help="Check your own data before a run.")

MAX_CLASS_COLUMNS = 4
"""The most classes shown as columns of the table of domains; more get a table of their own."""

MAX_ROWS = 12
"""The most rows of a table, of domains, classes or columns."""

MAX_FILES = 10
"""The most files that are listed with a problem."""

TAKEN = ("dataset", "dataset_options", "target", "target_samples", "source_samples", "test_samples")


@app.command(epilog="Example: `fda data check hospitals --dataset-option label=diagnosis`")
@with_settings(TAKEN, dataset="", shown={"dataset": "found by the folder's content"})
def check(
    settings: dict[str, Any],
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder with the data: a table for each domain, DOMAIN/CLASS/, or a data set of Hugging "
            "Face, which may be on the hub instead; or one table or workbook with all domains.",
            show_default="the current one",
        ),
    ] = Path(),
) -> None:
    """Show rows, classes and missing values of each domain, and every problem that would stop a run.

    The exit code is 1 if there is one.
    """
    from fda_flower.datasets import DataSpec

    dataset = _own_dataset(settings.pop("dataset"), folder)
    settings |= {"dataset": dataset, "data_dir": str(folder)}
    settings["dataset_options"] = tuple(settings.get("dataset_options", {}).items())
    spec = DataSpec(**settings)
    result = show_data(
        spec,
        needs=lambda sizes: check_default(settings | {"dataset_options": spec.dataset_options}, spec, sizes),
        passing=lambda options: passing_command(settings, spec, options),
    )
    command = command_of(settings, spec, "Run it")
    out.result(result | {"command": command}, command)


def _own_dataset(name: str, folder: Path) -> str:
    """Return the data set of one's own in a folder, which may be named."""
    from fda_flower.errors import unknown
    from fda_flower.own_data.check import OWN, find_dataset

    dataset = known_name(name, OWN) or find_dataset(folder)
    if dataset not in OWN:
        raise unknown("data set of one's own", dataset, OWN)
    return dataset


Sizes = Mapping[str, Mapping[str, int]]
"""By domain, what `fda_flower.own_data.check.sizes_of` counts."""


COUNTED = "train", "train-patients", "train-events"
"""The sizes that a method may refuse."""


def command_of(settings: dict[str, Any], spec: "DataSpec", what: str) -> str:
    """Return the command that runs the default method on data, and say `what` it is."""
    from fda_flower.runs.completion import fitting_method

    method, why = fitting_method(spec)
    chosen = {**settings, "method": method}
    out.text(f"{what} ({method}, since {why}):")
    return shlex.join(["fda", "run", *command_options([s for s in SETTINGS if s.name in chosen], chosen)])


def passing_command(settings: dict[str, Any], spec: "DataSpec", options: Mapping[str, str]) -> str:
    """Return the command that runs refused data with further options; else show why there is none.

    Data that a run would refuse with the options are tried again with the options that those problems need.
    """
    from fda_flower.datasets import DataSpec
    from fda_flower.own_data.check import check as own_data

    before = dict(spec.dataset_options)
    wanted = {**dict(settings["dataset_options"]), **options}
    if "ignore" in options and before.get("ignore"):
        wanted["ignore"] = f"{before['ignore']},{options['ignore']}"
    if not options or {**before, **wanted} == before:
        return ""
    changed = settings | {"dataset_options": tuple(wanted.items())}
    trial = DataSpec(**changed)
    report = own_data(trial)
    if not report.problems:
        with report.problems.caught():
            check_default(changed, trial, report.sizes)
    for note in report.notes:
        out.warning(note)
    if not report.problems:
        return command_of(changed, trial, "Run it with the options that it needs")
    if report.problems.options:
        return passing_command(changed, trial, report.problems.options)
    given = " ".join(f"--dataset-option {shlex.quote(f'{name}={value}')}" for name, value in wanted.items())
    out.text(f"With {given}, a run would still refuse:")
    show_problems(report.problems.by_kind())
    return ""


def check_default(settings: dict[str, Any], spec: "DataSpec", sizes: Sizes) -> None:
    """Raise a `ConfigError` if the default method would refuse domains of these sizes."""
    from fda_flower.models import check_installed
    from fda_flower.runs.completion import fitting_method, fitting_model
    from fda_flower.runs.methods import METHODS

    method = METHODS[fitting_method(spec)[0]]
    check_installed(fitting_model(spec, method, of_patients=False))
    enough = method.enough
    smallest = min(counts[name] for counts in sizes.values() for name in COUNTED if name in counts)
    if enough is not None and smallest >= enough:
        return  # without Flower, whose import takes longer than a small table
    from fda_flower.aggregation import LEAST_EVENTS
    from fda_flower.runs.config import RunConfig
    from fda_flower.strategies.nodes import Node
    from fda_flower.wire.protocol import FEW_EVENTS, GROUPS, LABELLED, TASK

    config, nodes = RunConfig(**settings), list[Node]()
    for name, counts in sizes.items():
        info = {LABELLED: counts["train"], TASK: config.data.task}
        info[FEW_EVENTS] = counts.get("train-events", LEAST_EVENTS) < LEAST_EVENTS
        info |= {GROUPS: counts["train-patients"]} if "train-patients" in counts else {}
        nodes.append(Node(len(nodes), name, name == config.data.target_name, info))
        config.check_samples(nodes[-1].role, f"'{name}'", counts["train"])
    config.strategy.validate_nodes(nodes)


def show_data(
    spec: "DataSpec",
    only: str | None = None,
    needs: Callable[[Sizes], None] | None = None,
    passing: Callable[[Mapping[str, str]], str] | None = None,
) -> dict[str, Any]:
    """Print what is in the folder of a data set of one's own, or in its domain `only`; return that as JSON.

    If a run would refuse the data, also by what it `needs`, print why and, if further options are enough, the
    command that would be `passing` with them, and exit with 1.
    """
    from fda_flower.datasets.folders import OPTIONS_FILE, options_folder
    from fda_flower.own_data.check import check as own_data

    folder, report = Path(str(spec.data_dir)).expanduser(), own_data(spec, only)
    sizes = report.sizes
    if needs and not report.problems:
        with report.problems.caught():
            needs(sizes)
    names = {name: f"{name} (target)" if name == spec.target_name else name for name in report.domains}
    what = "Label" if spec.task == "multilabel" else "Class"
    show_domains(report.domains, sizes, names, f"{spec.dataset} in {folder}", what)
    out.text(f"Inputs: {report.inputs}")
    horizons = str(dict(spec.dataset_options).get("horizons", "")) if spec.task == "survival" else ""
    if horizons:
        out.text(f"Survival is predicted at {horizons.replace(',', ', ')} (horizons)")
    for note in report.notes:
        out.warning(note)
    result: dict[str, Any] = {
        "dataset": spec.dataset,
        "target": spec.target_name,
        "domains": {name: vars(each) | sizes.get(name, {}) for name, each in report.domains.items()},
        "inputs": report.inputs,
        "problems": [
            {
                "message": str(each),
                "file": each.path,
                "line": each.line,
                "column": each.column,
                "count": each.count,
            }
            for each in report.problems.entries.values()
        ],
    }
    if horizons:
        result["horizons"] = [float(each) for each in horizons.split(",")]
    if report.problems:
        kinds = report.problems.by_kind()
        place = options_folder(folder)
        if place is not None and any("--dataset-option" in kind for kind in kinds):
            out.text(f'In {place / OPTIONS_FILE} an option is a line, such as: missing = "mean"')
        show_problems(kinds)
        command = passing(report.problems.options) if passing else ""
        refused = [_refused(kind) for kind in kinds if out.quiet]
        out.result(result, *refused, *([command] if command else []))
        raise typer.Exit(1)
    return result


ALIKE = ("dataset", "dataset_options", "target", "model", "model_options")


@app.command(epilog="Example: `fda data compare hospitals --dataset-option label=diagnosis`")
@with_settings(ALIKE, dataset="", shown={"dataset": "found by the folder's content"})
def compare(
    settings: dict[str, Any],
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder with the data, as for `fda data check`.", show_default="the current one"
        ),
    ] = Path(),
    output: Annotated[Path, typer.Option(help="Folder for describe.json and the picture.")] = Path(
        "sites-alike"
    ),
) -> None:
    """Compare the sites of your own data: who has what, and whether a column is in another unit.

    The same as `fda run --method describe` between sites, on this machine.
    """
    from fda_flower.experiments import Execution, run_config
    from fda_flower.names.options import EVERY_SITE
    from fda_flower.records.alike import DESCRIBED
    from fda_flower.reporting.alike import FILE, alike_notes, write_alike
    from fda_flower.runs.config import RunConfig

    if (output / FILE).exists():
        remedy = "choose another --output, or delete it"
        raise ConfigError(
            f"'{output}' already holds {FILE}", thing="output folder", value=output, remedy=remedy
        )
    dataset = _own_dataset(settings.pop("dataset"), folder)
    settings["target"] = settings.get("target") or EVERY_SITE
    config = RunConfig(**settings, dataset=dataset, data_dir=str(folder), method="describe")
    logging.getLogger("flwr").setLevel(logging.WARNING)
    described = run_config(config, Execution()).history[-1][DESCRIBED]
    write_alike(output, described)
    show_alike(described)
    out.result({"folder": output, **described}, f"Written to {output}", *alike_notes(described))


def show_alike(described: Mapping[str, Any]) -> None:
    """Print who has what, and a sentence on each pair of sites, if the sites say anything."""
    from fda_flower.reporting.alike import alike_lines, alike_table

    if not described:
        return
    out.table(alike_table(described), [*described["sites"]])
    for line in alike_lines(described):
        out.text(line)


def show_domains(
    domains: "Mapping[str, DomainCheck]",
    sizes: Mapping[str, Mapping[str, int]],
    names: Mapping[str, str],
    title: str,
    what: str = "Class",
) -> None:
    """Print each domain's samples, classes and missing values: in one table if it fits the terminal.

    `what` is a class, or one of several labels of a sample.
    """
    from fda_flower.reporting import Table

    classes = list(dict.fromkeys(label for domain in domains.values() for label in domain.classes))
    columns = dict.fromkeys(column for domain in domains.values() for column in domain.missing)
    rows = [
        [names[name], _of(each.samples, each.patients), *_parts(sizes.get(name))]
        for name, each in domains.items()
    ]
    counts = [[each.classes.get(label, 0) for label in classes] for each in domains.values()]
    gaps = [
        [", ".join(f"{name} {count}" for name, count in each.missing.items())] for each in domains.values()
    ]
    last = ["Missing values"] if columns else []
    header = ["Domain", "Samples", "Train", "Test"]
    wide = Table(
        [*header, *classes, *last],
        [[*row, *count, *(gap if last else [])] for row, count, gap in zip(rows, counts, gaps, strict=True)],
        title,
    )
    if len(classes) <= MAX_CLASS_COLUMNS and len(rows) <= MAX_ROWS and out.fits(wide):
        out.table(wide, last)
        return
    out.table(Table(header, _cut(rows), title))
    members = [[label, *(each.classes.get(label, 0) for each in domains.values())] for label in classes]
    missing = [[name, *(each.missing.get(name, 0) for each in domains.values())] for name in columns]
    for kind, about, cells in (
        (what, f"Samples of each {what.lower()}", members),
        ("Column", "Missing values", missing),
    ):
        if cells:
            out.table(Table([kind, *domains], _cut(cells), about))


def _cut(rows: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the rows of a table, of many the first and the last ones and how many are between them."""
    more = len(rows) - MAX_ROWS
    if more <= 0:
        return [*rows]
    gap = [f"... ({more:,} more)", *("..." for _ in rows[0][1:])]
    return [*rows[: MAX_ROWS - LAST], gap, *rows[-LAST:]]


def _parts(sizes: Mapping[str, int] | None) -> tuple[str, str]:
    """Return the numbers of training and test samples as text."""
    if sizes is None:
        return "", ""
    rest = f" + {sizes['unlabelled']} unlabelled" if sizes["unlabelled"] else ""
    train, test = (_of(sizes[part], sizes.get(f"{part}-patients")) for part in ("train", "test"))
    return f"{train}{rest}", test


def _of(samples: int, patients: int | None) -> str:
    """Return a number of samples and, if known, of patients."""
    return f"{samples} of {counted(patients, 'patient')}" if patients else f"{samples}"


def show_problems(kinds: "Mapping[str, Sequence[Problem]]") -> None:
    """Print all places of problems, then each kind with its first place and the number of cells."""
    several = {kind: places for kind, places in kinds.items() if len(places) > 1 and places[0].path}
    if several:
        out.text("All places:")
    for places in several.values():
        out.text(f"  {places[0].what}")
        paths = [path for path in dict.fromkeys(each.path for each in places) if path]
        for path in paths[:MAX_FILES]:
            out.text(f"    {_where(path, [each for each in places if each.path == path])}")
        if len(paths) > MAX_FILES:
            out.text(f"    and {len(paths) - MAX_FILES} more")
    for kind, places in kinds.items():
        out.text(_refused(kind))
        if first := places[0].path:
            cells = sum(each.count for each in places)
            out.text(f"  {_where(first, places[:1])}{f'; {cells} in all' if len(places) > 1 else ''}")
        elif len(places) > 1:
            names = some([each.named_column for each in places[1:]])
            out.text(f"  and so {counted(len(places) - 1, 'more column')}: {names}")


def _refused(kind: str) -> str:
    return f"Refused: {kind}"


def _where(path: Path | None, problems: "Sequence[Problem]") -> str:
    return ": ".join(filter(None, (str(path), some([each.place for each in problems if each.place], "; "))))
