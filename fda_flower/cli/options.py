"""The options that commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fda_flower.config import OPTION_FIELDS, RunConfig, parse_beta
from fda_flower.options import split_options

Dataset = Annotated[str, typer.Option(help="Data set; `fda list` shows them.")]
DatasetOption = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Option of the data set, such as image_size=64.")
]
Shift = Annotated[
    str | None,
    typer.Option(
        help="How the domains differ; `fda list` shows the shifts.",
        show_default="the data set's, if its domains are not its own",
    ),
]
ShiftOption = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Option of the shift, such as angle=45.")
]
Partition = Annotated[
    str, typer.Option(help="How samples are dealt to the clients; `fda list` shows the partitions.")
]
PartitionOption = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Option of the partition, such as alpha=0.5.")
]
Variant = Annotated[
    str | None,
    typer.Option(
        help="authors: as the authors' code runs the method; definitions: as the paper defines it.",
        show_default="the method's own defaults",
    ),
]
MethodOption = Annotated[
    list[str],
    typer.Option(metavar="NAME=VALUE", help="Option of the method, such as magnitude=cosine."),
]
Rounds = Annotated[int, typer.Option(help="Rounds of local training and aggregation.")]
WarmupRounds = Annotated[
    int | None,
    typer.Option(help="Rounds before them in which only the sources train.", show_default="the method's"),
]
RateFactor = Annotated[float, typer.Option(help="Factor of both learning rates after the warm-up rounds.")]
Beta = Annotated[
    str | None,
    typer.Option(help="Weight of the sources against the target in [0, 1]; one, or one each: 0.2,0.3,0.5."),
]
Sources = Annotated[int | None, typer.Option(help="Number of sources.", show_default="the shift's")]
Target = Annotated[str | None, typer.Option(help="The target's domain.", show_default="the shift's")]
OnlySources = Annotated[
    str | None, typer.Option(help="Sources that take part, separated by commas.", show_default="all")
]
TargetSamples = Annotated[
    str, typer.Option(help="Labelled samples of the target: a number, a share such as 15%, or all.")
]
SourceSamples = Annotated[str, typer.Option(help="Samples of each source: a number, a share, or all.")]
Model = Annotated[str, typer.Option(help="Network; `fda list` shows them.")]
ModelOption = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Option of the network, such as weights=imagenet.")
]
Optimizer = Annotated[str, typer.Option(help="adam or sgd.")]
Rate = Annotated[float, typer.Option(help="Learning rate of the sources.")]
TargetRate = Annotated[
    float | None, typer.Option(help="Learning rate of the target.", show_default="the sources'")
]
BatchSize = Annotated[int, typer.Option(help="Batch size of the sources.")]
TargetBatchSize = Annotated[int, typer.Option(help="Batch size of the target.")]
Epochs = Annotated[int, typer.Option(help="Passes over a client's samples in a round.")]
MinSources = Annotated[int, typer.Option(help="With fewer replies of sources the model stays as it is.")]
MaxHeldRounds = Annotated[
    int,
    typer.Option(help="Rounds in a row without the target, or too few sources, until the run ends."),
]
MaxUpdateNorm = Annotated[
    float | None, typer.Option(help="Limit for the norm of each client's update.", show_default="none")
]
OnLargeUpdate = Annotated[str, typer.Option(help="What happens to a longer update: clip or drop.")]
WaitSeconds = Annotated[float, typer.Option(help="Seconds to wait for the clients at the start.")]
RoundTimeout = Annotated[float, typer.Option(help="Seconds that a client has for its reply.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU if there is one.")]
Cpus = Annotated[int, typer.Option(help="Cores of a client, which are torch's threads.")]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FDA_DATA_DIR", help="Folder of data sets; without it they are downloaded."),
]
Engine = Annotated[
    str,
    typer.Option(
        help="local: in this process; ray: Flower's Ray simulation; deploy, for `fda run`: over a SuperLink."
    ),
]
Connection = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The SuperLink of --engine deploy, as Flower's config.toml names it.",
        show_default="none",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the output folder holds.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Flower's log.")]


def settings_of(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of `RunConfig` from a command's options."""
    names = RunConfig.__dataclass_fields__.keys()
    settings = {name: value for name, value in values.items() if name in names}
    for field in OPTION_FIELDS:
        settings[field] = split_options(" ".join(values[field.removesuffix("s")]))
    settings["beta"] = None if values["beta"] is None else parse_beta(values["beta"])
    settings["threads"] = values["cpus_per_client"]
    settings["data_dir"] = None if values["data_dir"] is None else str(values["data_dir"])
    return settings
