"""The `fda` command line: all its commands."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast

import click
import typer
from typer.core import TyperGroup, TyperOption

from fda_flower.cli import data, deploy, models, report, runs, tune
from fda_flower.cli.options import ShortHelp
from fda_flower.cli.output import out, saying
from fda_flower.cli.weights import weights
from fda_flower.errors import ConfigError, unknown

OUTPUT = {
    ("--quiet", "-q"): "Print only the result; warnings and errors go to standard error.",
    (
        "--json",
        "as_json",
    ): "Print the result, or an error, as a JSON object; the rest goes to standard error.",
}


class Group(TyperGroup):
    """A group whose commands all have the options of `OUTPUT`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            if not isinstance(command, click.Group):
                command.params += [
                    TyperOption(param_decls=[*names], is_flag=True, default=False, help=text)
                    for names, text in OUTPUT.items()
                ]
                command.callback = partial(_called, cast("Callable[..., Any]", command.callback))

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke a command; with ``--json``, an error in the command line is an object, too."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if ctx.parent is None:
                remedy = f"see {error.ctx.command_path if error.ctx else 'fda'} --help"
                out.error_object(
                    ConfigError(error.format_message().rstrip("."), thing="command line", remedy=remedy)
                )
            raise


def _called(command: Callable[..., Any], *, quiet: bool, as_json: bool, **values: Any) -> Any:
    out.begin(quiet=quiet, as_json=as_json)
    return command(**values)


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated domain adaptation on Flower: a target with few labels learns from shifted sources."
    "\n\nExample: `fda compare --dataset digits --shift rotate --seeds 3`",
)
EXAMPLES: dict[Callable[..., None], str] = {
    runs.run: "run --dataset digits --shift rotate --seed 0",
    runs.compare: "compare --methods fedavg,target-only,fedgp-auto --seeds 3 --rounds 30",
    runs.experiment: "experiment fashion_mnist_noise --only 0.4 --seeds 1",
    models.predict: "predict runs/mine --csv patients.csv --output predictions.csv",
    models.evaluate: "evaluate runs/mine --csv patients.csv",
    models.export: "export runs/mine --output model.onnx",
    models.verify: "verify runs/mine",
    report.report: "report --html runs/compare --output compare.html",
    weights: "weights resnet50.pth --model timm:resnet50",
    tune.tune: "tune --search learning-rate=log:1e-4..1e-2 --trials 20 --rounds 10",
}
WITH_ALL_SETTINGS = (runs.run, runs.compare, tune.tune)
for command, example in EXAMPLES.items():
    cls = ShortHelp if command in WITH_ALL_SETTINGS else None
    app.command(cls=cls, epilog=f"Example: `fda {example}`")(command)
app.add_typer(data.app, name="data", cls=Group)
app.add_typer(deploy.app, name="deploy", cls=Group)


def _show_version(value: bool) -> None:
    if value:
        from fda_flower.files import version

        typer.echo(f"fda-flower {version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Read the options before a command."""


@app.command("list", epilog="Example: `fda list methods`")
def list_names(
    kind: Annotated[
        list[str], typer.Argument(help="Show one kind only, such as methods.", show_default="all")
    ] = [],  # noqa: B006
) -> None:
    """List methods, data sets, shifts and models, one per line."""
    from fda_flower.datasets.registry import DATASETS
    from fda_flower.datasets.shifts import PARTITIONS, SHIFTS, summary
    from fda_flower.engines import ENGINES
    from fda_flower.models import FORMS, MODELS
    from fda_flower.names.notes import logger
    from fda_flower.reporting.trackers import TRACKERS
    from fda_flower.runs.methods import CENTRAL, FLOWER, METHODS, OF_FLOWER, PREFIX, SURVEYS

    with saying(logger, out.warning):
        methods, references = METHODS.usable(), CENTRAL.usable()
        datasets, models = DATASETS.usable(), MODELS.usable()
    kinds = {
        "Methods": {name: f"{method.label}: {method.summary}" for name, method in methods.items()},
        "Centralised references (methods; --engine local only)": {
            f"{PREFIX}{name}": f"{method.label}: {method.summary}" for name, method in references.items()
        },
        "Strategies of Flower (methods)": {
            f"{OF_FLOWER}{name}": method.summary for name, method in FLOWER.items()
        },
        "Statistics (methods)": {name: f"{each.label}: {each.summary}" for name, each in SURVEYS.items()},
        "Data sets": {name: dataset.summary for name, dataset in datasets.items()},
        "Shifts": {name: summary(shift) for name, shift in SHIFTS.items()},
        "Partitions": {name: summary(partition) for name, partition in PARTITIONS.items()},
        "Models (networks)": {name: model.summary for name, model in models.items()} | FORMS,
        "Engines": {
            **{name: engine.summary for name, engine in ENGINES.items()},
            "deploy": "on the SuperLink of a connection, with real SuperNodes",
        },
        "Trackers": {name: tracker.summary for name, tracker in TRACKERS.items()},
    }
    keys = {title: title.partition(" (")[0].lower().replace(" ", "-") for title in kinds}
    word = _letters("".join(kind)).removesuffix("s")
    if not (titles := [title for title in kinds if word in _letters(title.partition(";")[0])]):
        raise unknown("kind", " ".join(kind), keys.values())
    for title in titles:
        out.text(title, "bold")
        out.entries(kinds[title])
    names = [name for title in titles for name in kinds[title]]
    out.result({keys[title]: kinds[title] for title in titles}, *(names if out.quiet else ()))


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.lower()))
