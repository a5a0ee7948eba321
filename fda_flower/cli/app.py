"""All commands together."""

import json
from typing import Annotated

import typer

import fda_flower.cli.data
import fda_flower.cli.deploy
import fda_flower.cli.models
import fda_flower.cli.runs
import fda_flower.cli.tune
from fda_flower.cli.console import Json, say, show_markup
from fda_flower.cli.options import ShortHelp
from fda_flower.errors import unknown

app = typer.Typer(
    no_args_is_help=True,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated domain adaptation on Flower: a target with few labels learns from shifted sources."
    "\n\nExample: `fda compare --dataset digits --shift rotate --seeds 3`",
)
app.command(
    cls=ShortHelp,
    epilog="Example: `fda run --dataset digits --shift rotate --method fedgp-auto --rounds 30 --seed 0`",
)(fda_flower.cli.runs.run)
app.command(epilog="Example: `fda compare --methods fedavg,target-only,fedgp-auto --seeds 3 --rounds 30`")(
    fda_flower.cli.runs.compare
)
app.command(epilog="Example: `fda experiment experiments/fashion_mnist_noise.toml --only 0.4 --seeds 1`")(
    fda_flower.cli.runs.experiment
)
app.command(epilog="Example: `fda predict runs/mine --csv patients.csv --output predictions.csv`")(
    fda_flower.cli.models.predict
)
app.command(epilog="Example: `fda evaluate runs/mine --csv patients.csv`")(fda_flower.cli.models.evaluate)
app.command(epilog="Example: `fda export runs/mine --format onnx --output model.onnx`")(
    fda_flower.cli.models.export
)
app.command(epilog="Example: `fda verify runs/mine`")(fda_flower.cli.models.verify)
app.add_typer(fda_flower.cli.data.app, name="data")
app.command(epilog="Example: `fda report --html runs/compare --output compare.html`")(
    fda_flower.cli.runs.report
)
app.command(epilog="Example: `fda tune --search learning-rate=log:1e-4..1e-2 --trials 20 --rounds 10`")(
    fda_flower.cli.tune.tune
)
app.add_typer(fda_flower.cli.deploy.app, name="deploy")


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"fda-flower {version('fda-flower')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


@app.command("list", epilog="Example: `fda list methods`")
def list_names(
    kind: Annotated[
        list[str], typer.Argument(help="One kind alone, such as methods.", show_default="all")
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Show the methods, data sets, shifts and models, with a line each."""
    from fda_flower.datasets.registry import DATASETS
    from fda_flower.datasets.shifts import PARTITIONS, SHIFTS, summary
    from fda_flower.engines import ENGINES
    from fda_flower.models import MODELS
    from fda_flower.reporting.trackers import TRACKERS
    from fda_flower.runs.methods import CENTRAL, FLOWER, METHODS, OF_FLOWER, PREFIX

    kinds = {
        "Methods": {name: f"{method.label}: {method.summary}" for name, method in METHODS.items()},
        "Centralised references (--engine local only)": {
            f"{PREFIX}{name}": f"{method.label}: {method.summary}" for name, method in CENTRAL.items()
        },
        "Strategies of Flower": {f"{OF_FLOWER}{name}": method.summary for name, method in FLOWER.items()},
        "Data sets": {name: dataset.summary for name, dataset in DATASETS.items()},
        "Shifts": {name: summary(shift) for name, shift in SHIFTS.items()},
        "Partitions": {name: summary(partition) for name, partition in PARTITIONS.items()},
        "Models (networks)": {name: model.summary for name, model in MODELS.items()},
        "Engines": {
            **{name: engine.summary for name, engine in ENGINES.items()},
            "deploy": "on the SuperLink of a connection, with real SuperNodes",
        },
        "Trackers": {name: tracker.summary for name, tracker in TRACKERS.items()},
    }
    keys = {title: title.partition(" (")[0].lower().replace(" ", "-") for title in kinds}
    asked = _letters("".join(kind)).removesuffix("s")
    if not (titles := [title for title in kinds if asked in _letters(title)]):
        raise unknown("kind", " ".join(kind), keys.values())
    if as_json:
        print(json.dumps({keys[title]: list(kinds[title]) for title in titles}))
        return
    for title in titles:
        show_markup(f"[bold]{title}[/bold]")
        for name, text in kinds[title].items():
            say(f"  {name:<16} {text}")


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.lower()))
