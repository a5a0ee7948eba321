"""The `fda` command."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fda_flower.client_app import find_device
from fda_flower.config import RunConfig, parse_beta
from fda_flower.datasets import DATASETS, SHIFTS, summary
from fda_flower.engines import ENGINES
from fda_flower.errors import ConfigError, FdaError
from fda_flower.experiments import compare as run_comparison
from fda_flower.experiments import run_config
from fda_flower.models import MODELS
from fda_flower.options import split_options
from fda_flower.strategies import METHODS
from fda_flower.strategies.run_folder import Record

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated domain adaptation on Flower: a target with few labels learns from shifted sources."
    "\n\nExample: `fda compare --dataset digits --shift rotate --seeds 3`",
)
console = Console()


Dataset = Annotated[str, typer.Option(help="Data set; `fda list` shows them.")]
Shift = Annotated[str, typer.Option(help="How the domains differ; `fda list` shows the shifts.")]
ShiftOption = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Option of the shift, such as angle=45.")
]
MethodOption = Annotated[
    list[str],
    typer.Option(metavar="NAME=VALUE", help="Option of the method, such as magnitude=cosine."),
]
Rounds = Annotated[int, typer.Option(help="Rounds of local training and aggregation.")]
Beta = Annotated[
    str | None,
    typer.Option(help="Weight of the sources against the target in [0, 1]; one, or one each: 0.2,0.3,0.5."),
]
Sources = Annotated[int | None, typer.Option(help="Number of sources.", show_default="the shift's")]
Target = Annotated[str | None, typer.Option(help="The target's domain.", show_default="the shift's")]
TargetSamples = Annotated[int, typer.Option(help="Labelled samples of the target.")]
Model = Annotated[str, typer.Option(help="Network; `fda list` shows them.")]
Optimizer = Annotated[str, typer.Option(help="adam or sgd.")]
Rate = Annotated[float, typer.Option(help="Learning rate of the sources.")]
TargetRate = Annotated[
    float | None, typer.Option(help="Learning rate of the target.", show_default="the sources'")
]
BatchSize = Annotated[int, typer.Option(help="Batch size of the sources.")]
TargetBatchSize = Annotated[int, typer.Option(help="Batch size of the target.")]
Epochs = Annotated[int, typer.Option(help="Passes over a client's samples in a round.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU if there is one.")]
Cpus = Annotated[int, typer.Option(help="Cores of a client, which are torch's threads.")]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FDA_DATA_DIR", help="Folder of data sets; without it they are downloaded."),
]
Engine = Annotated[str, typer.Option(help="local: in this process; ray: Flower's Ray simulation.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the output folder holds.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Flower's log.")]


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of `RunConfig` from a command's options."""
    names = RunConfig.__dataclass_fields__.keys()
    settings = {name: value for name, value in values.items() if name in names}
    settings["shift_options"] = split_options(" ".join(values["shift_option"]))
    settings["method_options"] = split_options(" ".join(values["method_option"]))
    settings["beta"] = None if values["beta"] is None else parse_beta(values["beta"])
    settings["threads"] = values["cpus_per_client"]
    settings["data_dir"] = None if values["data_dir"] is None else str(values["data_dir"])
    return settings


@app.command(
    epilog="Example: `fda run --dataset digits --shift rotate --method fedgp-auto --rounds 30 --seed 0`"
)
def run(
    dataset: Dataset = "digits",
    shift: Shift = "rotate",
    method: Annotated[str, typer.Option(help="Method; `fda list` shows them.")] = "fedgp-auto",
    rounds: Rounds = 30,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    beta: Beta = None,
    shift_option: ShiftOption = [],  # noqa: B006
    method_option: MethodOption = [],  # noqa: B006
    sources: Sources = None,
    target: Target = None,
    target_samples: TargetSamples = 50,
    model: Model = "cnn",
    optimizer: Optimizer = "adam",
    learning_rate: Rate = 0.003,
    target_learning_rate: TargetRate = None,
    batch_size: BatchSize = 16,
    target_batch_size: TargetBatchSize = 4,
    epochs: Epochs = 1,
    engine: Engine = "local",
    device: Device = "auto",
    cpus_per_client: Cpus = 1,
    gpus_per_client: Annotated[
        float | None,
        typer.Option(help="Share of a GPU of each client, on Ray.", show_default="an even share"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Cores to use in all, on Ray.", show_default="all")
    ] = None,
    data_dir: DataDir = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="runs/DATASET-SHIFT-METHOD-seedSEED"),
    ] = None,
    resume: Resume = False,
    verbose: Verbose = False,
) -> None:
    """Run one method on one data set, and write its records, model and picture to a folder."""
    _set_log(verbose)
    config = RunConfig(**_settings(locals()))
    folder = output or Path("runs") / f"{dataset}-{shift}-{method}-seed{seed}"
    with _progress() as progress:
        task = progress.add_task(METHODS[method].label, total=rounds, shown="")

        def on_round(record: Record) -> None:
            accuracy = record.get("accuracy")
            shown = "" if accuracy is None else f"target accuracy {100 * accuracy:.1f}%"
            progress.update(task, completed=record["round"], shown=shown)

        result = run_config(
            config,
            engine=engine,
            output=folder,
            resume=resume,
            gpus_per_client=_gpu_share(config, gpus_per_client),
            workers=workers,
            on_round=on_round,
        )
    last5, best = (_percent(result.summary[key]) for key in ("last5", "best"))
    console.print(f"{METHODS[method].label}: last5 {last5}, best {best}. Written to {escape(str(folder))}")


@app.command(epilog="Example: `fda compare --methods fedavg,target-only,fedgp-auto --seeds 3 --rounds 30`")
def compare(
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; `fda list` shows them.")
    ] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 3,
    dataset: Dataset = "digits",
    shift: Shift = "rotate",
    rounds: Rounds = 30,
    beta: Beta = None,
    shift_option: ShiftOption = [],  # noqa: B006
    method_option: MethodOption = [],  # noqa: B006
    sources: Sources = None,
    target: Target = None,
    target_samples: TargetSamples = 50,
    model: Model = "cnn",
    optimizer: Optimizer = "adam",
    learning_rate: Rate = 0.003,
    target_learning_rate: TargetRate = None,
    batch_size: BatchSize = 16,
    target_batch_size: TargetBatchSize = 4,
    epochs: Epochs = 1,
    engine: Engine = "local",
    device: Device = "auto",
    cpus_per_client: Cpus = 1,
    jobs: Annotated[
        int, typer.Option(help="Runs at a time.", show_default="the number of cores; 1 on Ray")
    ] = 0,
    data_dir: DataDir = None,
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("runs/compare"),
    resume: Resume = False,
) -> None:
    """Run several methods with several seeds, and end with a table and a picture."""
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, it must be at least 1")
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}, it must be at least 1 (0 for the number of cores)")
    names = [name.strip() for name in methods.split(",")]
    settings = _settings(locals())
    with _progress() as progress:
        task = progress.add_task("Rounds", total=None, shown="")
        comparison = run_comparison(
            names,
            range(seeds),
            output,
            engine=engine,
            jobs=jobs or (1 if engine == "ray" else os.cpu_count() or 1),
            resume=resume,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
            **settings,
        )
    table = Table(title=f"{dataset}, {shift}: target test accuracy (%), mean (std) over seeds")
    for column in ("Method", "last5", "best", "seeds", "rounds"):
        table.add_column(column, justify="left" if column == "Method" else "right")
    for row in comparison.rows:
        table.add_row(row.label, *row.cells, str(len(row.last5)), str(row.rounds))
    console.print(table)
    if comparison.rows:
        console.print(f"Written to {escape(str(output))}: table.md, table.csv, comparison.png")
    for cell, reason in comparison.failures.items():
        console.print(f"[red]Failed:[/red] {cell}: {escape(reason)}", soft_wrap=True)
    if comparison.failures:
        raise typer.Exit(1)


@app.command("list", epilog="Example: `fda list`")
def list_names() -> None:
    """Show the methods, data sets, shifts and models, with a line each."""
    kinds = {
        "Methods": {name: f"{method.label}: {method.summary}" for name, method in METHODS.items()},
        "Data sets": {name: dataset.summary for name, dataset in DATASETS.items()},
        "Shifts": {name: summary(shift) for name, shift in SHIFTS.items()},
        "Models": {name: model.summary for name, model in MODELS.items()},
        "Engines": {name: (engine.__doc__ or "").splitlines()[0] for name, engine in ENGINES.items()},
    }
    for kind, names in kinds.items():
        console.print(f"[bold]{kind}[/bold]")
        for name, text in names.items():
            console.print(f"  {name:<12} {text}", soft_wrap=True, highlight=False)


def main() -> None:
    """Run the command; a user's mistake is one line on standard error and exit code 2, a failed run 1."""
    try:
        app()
    except FdaError as error:
        Console(stderr=True).print(f"[red]Error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
        console=console,
        transient=True,
    )


def _set_log(verbose: bool) -> None:
    logging.getLogger("flwr").setLevel(logging.INFO if verbose else logging.WARNING)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}%"


def _gpu_share(config: RunConfig, share: float | None) -> float:
    """An even share of one GPU for each client, unless another is asked for or none is used."""
    if share is not None:
        return share
    uses_gpu = find_device(config.device).type == "cuda"
    return 1 / len(config.data.domain_names) if uses_gpu else 0.0
