"""The `fda` command."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from fda_flower.cli.console import console
from fda_flower.cli.deploy import app as deploy_app
from fda_flower.cli.runs import compare, run
from fda_flower.cli.tables import experiment, report
from fda_flower.datasets import DATASETS, PARTITIONS, SHIFTS, summary
from fda_flower.errors import ConfigError, FdaError
from fda_flower.experiments import RUNNERS
from fda_flower.methods import METHODS
from fda_flower.models import MODELS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated domain adaptation on Flower: a target with few labels learns from shifted sources."
    "\n\nExample: `fda compare --dataset digits --shift rotate --seeds 3`",
)
app.command(
    epilog="Example: `fda run --dataset digits --shift rotate --method fedgp-auto --rounds 30 --seed 0`"
)(run)
app.command(epilog="Example: `fda compare --methods fedavg,target-only,fedgp-auto --seeds 3 --rounds 30`")(
    compare
)
app.command(epilog="Example: `fda experiment experiments/fashion_mnist_noise.toml --only 0.4 --seeds 1`")(
    experiment
)
app.command(epilog="Example: `fda report runs/fashion_mnist_noise`")(report)
app.add_typer(deploy_app, name="deploy")


@app.command("list", epilog="Example: `fda list`")
def list_names() -> None:
    """Show the methods, data sets, shifts and models, with a line each."""
    kinds = {
        "Methods": {name: f"{method.label}: {method.summary}" for name, method in METHODS.items()},
        "Data sets": {name: dataset.summary for name, dataset in DATASETS.items()},
        "Shifts": {name: summary(shift) for name, shift in SHIFTS.items()},
        "Partitions": {name: summary(partition) for name, partition in PARTITIONS.items()},
        "Models": {name: model.summary for name, model in MODELS.items()},
        "Engines": {name: (engine.__doc__ or "").splitlines()[0] for name, engine in RUNNERS.items()},
    }
    for kind, names in kinds.items():
        console.print(f"[bold]{kind}[/bold]")
        for name, text in names.items():
            console.print(f"  {name:<16} {text}", soft_wrap=True, highlight=False)


def main() -> None:
    """Run the command; a user's mistake is one line on standard error and exit code 2, a failed run 1."""
    try:
        app()
    except FdaError as error:
        Console(stderr=True).print(f"[red]Error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


__all__ = ["app", "main"]
