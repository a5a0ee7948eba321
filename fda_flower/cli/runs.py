"""The commands for a run and a comparison of runs."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fda_flower.cli.console import console, progress_bar
from fda_flower.cli.options import (
    BatchSize,
    Beta,
    Connection,
    Cpus,
    DataDir,
    Dataset,
    DatasetOption,
    Device,
    Engine,
    Epochs,
    MaxHeldRounds,
    MaxUpdateNorm,
    MethodOption,
    MinSources,
    Model,
    ModelOption,
    OnLargeUpdate,
    OnlySources,
    Optimizer,
    Partition,
    PartitionOption,
    Rate,
    RateFactor,
    Resume,
    Rounds,
    RoundTimeout,
    Shift,
    ShiftOption,
    Sources,
    SourceSamples,
    Target,
    TargetBatchSize,
    TargetRate,
    TargetSamples,
    Variant,
    Verbose,
    WaitSeconds,
    WarmupRounds,
    settings_of,
)
from fda_flower.client_app import find_device
from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError
from fda_flower.experiments import compare as run_comparison
from fda_flower.experiments import run_config
from fda_flower.methods import METHODS
from fda_flower.records import Record

COMPARED = "source-only,fedavg,target-only,fedda,fedgp,fedda-auto,fedgp-auto"
"""Methods that train on the same samples for the same rounds."""


def run(
    dataset: Dataset = "digits",
    shift: Shift = None,
    method: Annotated[str, typer.Option(help="Method; `fda list` shows them.")] = "fedgp-auto",
    rounds: Rounds = 30,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    beta: Beta = None,
    dataset_option: DatasetOption = [],  # noqa: B006
    shift_option: ShiftOption = [],  # noqa: B006
    partition: Partition = "even",
    partition_option: PartitionOption = [],  # noqa: B006
    method_option: MethodOption = [],  # noqa: B006
    variant: Variant = None,
    warmup_rounds: WarmupRounds = None,
    learning_rate_factor: RateFactor = 1.0,
    sources: Sources = None,
    target: Target = None,
    only_sources: OnlySources = None,
    target_samples: TargetSamples = "50",
    source_samples: SourceSamples = "all",
    model: Model = "cnn",
    model_option: ModelOption = [],  # noqa: B006
    optimizer: Optimizer = "adam",
    learning_rate: Rate = 0.003,
    target_learning_rate: TargetRate = None,
    batch_size: BatchSize = 16,
    target_batch_size: TargetBatchSize = 4,
    epochs: Epochs = 1,
    min_sources: MinSources = 1,
    max_held_rounds: MaxHeldRounds = 3,
    max_update_norm: MaxUpdateNorm = None,
    on_large_update: OnLargeUpdate = "clip",
    wait_seconds: WaitSeconds = 60.0,
    round_timeout: RoundTimeout = 3600.0,
    engine: Engine = "local",
    connection: Connection = None,
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
    config = RunConfig(**settings_of(locals()))
    name = "-".join(filter(None, [dataset, config.shift, method, f"seed{seed}"]))
    folder = output or Path("runs") / name
    with progress_bar() as progress:
        task = progress.add_task(METHODS[method].label, total=config.all_rounds, shown="")

        def on_round(record: Record) -> None:
            accuracy = record.get("accuracy")
            shown = "" if accuracy is None else f"target accuracy {100 * accuracy:.1f}%"
            progress.update(task, completed=record["round"], shown=shown)

        result = run_config(
            config,
            engine=engine,
            output=folder,
            resume=resume,
            gpus_per_client=_gpu_share(config, engine, gpus_per_client),
            workers=workers,
            connection=connection,
            on_round=on_round,
        )
    last5, best = (_percent(result.summary[key]) for key in ("last5", "best"))
    console.print(f"{METHODS[method].label}: last5 {last5}, best {best}. Written to {escape(str(folder))}")
    if faults := _faults(config, result.history):
        console.print(f"[yellow]Not complete:[/yellow] {faults} (rounds.jsonl says why)", soft_wrap=True)


def compare(
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; `fda list` shows them.")
    ] = COMPARED,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 3,
    dataset: Dataset = "digits",
    shift: Shift = None,
    rounds: Rounds = 30,
    beta: Beta = None,
    dataset_option: DatasetOption = [],  # noqa: B006
    shift_option: ShiftOption = [],  # noqa: B006
    partition: Partition = "even",
    partition_option: PartitionOption = [],  # noqa: B006
    method_option: MethodOption = [],  # noqa: B006
    variant: Variant = None,
    warmup_rounds: WarmupRounds = None,
    learning_rate_factor: RateFactor = 1.0,
    sources: Sources = None,
    target: Target = None,
    only_sources: OnlySources = None,
    target_samples: TargetSamples = "50",
    source_samples: SourceSamples = "all",
    model: Model = "cnn",
    model_option: ModelOption = [],  # noqa: B006
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
    settings = settings_of(locals())
    with progress_bar() as progress:
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
    what = ", ".join(filter(None, (dataset, shift)))
    table = Table(title=f"{what}: target test accuracy (%), mean (std) over seeds")
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


def _set_log(verbose: bool) -> None:
    logging.getLogger("flwr").setLevel(logging.INFO if verbose else logging.WARNING)


def _faults(config: RunConfig, history: Sequence[Record]) -> str:
    """What was missing in a run; empty if nothing was."""
    asked = [record for record in history if record["sources"]]
    counts = {
        "rounds without a new model": sum(record["held"] is not None for record in history),
        "rounds without all sources": sum(len(r["sources"]) < len(config.data.source_names) for r in asked),
        "dropped replies": sum(len(record["dropped"]) for record in history),
    }
    return ", ".join(f"{what}: {count}" for what, count in counts.items() if count)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}%"


def _gpu_share(config: RunConfig, engine: str, share: float | None) -> float:
    """An even share of one GPU for each client, unless another is asked for or none is used."""
    if share is not None:
        return share
    uses_gpu = engine == "ray" and find_device(config.device).type == "cuda"
    return 1 / len(config.data.domain_names) if uses_gpu else 0.0
