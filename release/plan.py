"""What is typed where only the wheel is installed: README's commands, and one for each extra."""

import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from release.readme import Block, blocks, commands

DATA = Path(__file__).resolve().with_name("data.py")
ONE_ROUND = "--sources 1 --rounds 1 --method fedavg"
USES: dict[str, tuple[str, ...]] = {
    "simulation": (f"fda run --engine ray {ONE_ROUND} --output runs/ray",),
    "deploy": ("fda deploy rehearse --sources 1 --output runs/rehearsal",),
    "timm": (
        "fda run --dataset images --data-dir photos --model timm:test_resnet --rounds 1 --output runs/timm",
    ),
    "text": ("fda run --dataset table --data-dir notes --dataset-option text=note --output runs/notes",),
    "adapters": (
        "fda run --dataset images --data-dir photos --train adapters:4 --rounds 1 --output runs/adapters",
    ),
    "patients": (
        f"fda run {ONE_ROUND} --model logistic --dp-unit patient --dp-group row --max-epsilon 8"
        " --output runs/patients",
    ),
    "tensorboard": (f"fda run {ONE_ROUND} --track tensorboard --output runs/tensorboard",),
    "mlflow": (f"fda run {ONE_ROUND} --track mlflow --output runs/mlflow",),
    "wandb": (f"fda run {ONE_ROUND} --track wandb --output runs/wandb",),
    "export": ("fda export runs/photos",),
    "hf": ("fda data check together --dataset hf --dataset-option domain=site",),
    "dicom": ("fda data check scans --dataset-option window=1200,2400",),
    "nifti": (
        "fda data check volumes --dataset-option slice=axial:middle --dataset-option window=1200,2400",
    ),
    "heic": ("fda data check phone",),
    "tune": (f"fda tune --search learning-rate=0.001,0.01 --trials 2 {ONE_ROUND} --output runs/tune",),
    "all": ("fda list", "pip check"),
    "dev": (),
}
"""By extra, the commands that use it. They are installed one after another into an environment with `cli`."""
OF_TABLES: dict[str, tuple[str, ...]] = {
    "excel": ("fda data check hospitals.xlsx",),
    "parquet": ("fda data check parquet",),
    "statistics": ("fda data check statistics",),
}
"""The same, in an environment with `tables`."""
RESOLVED = ("dev",)
"""Extras for a checkout, with `docs`: pip says what it would install, and installs nothing."""
NEEDS_DATA = {"excel", "parquet", "statistics", "text", "hf", "dicom", "nifti", "heic"}
"""The extras for which `release/data.py` makes data."""

SUPERLINK = """\
PORT=$FLWR_LOCAL_SUPERLINK_HTTP_API_PORT  # flwr run would start it, and waits 15 s, too few on a busy machine
FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flower-superlink --insecure --simulation \\
    --isolation subprocess --host 127.0.0.1 --port $PORT > superlink.log 2>&1 &
until (echo > /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do kill -0 $! || exit 1; sleep 1; done"""


class Stage(NamedTuple):
    """Commands that are typed in a folder, of an extra or a section of the README."""

    name: str
    commands: list[str]
    folder: str = "."


def environments(
    page: str, torch_index: str = "", chosen: Collection[str] = (*OF_TABLES, *USES)
) -> list[list[Stage]]:
    """Return by environment, which is empty at first, its stages of commands.

    Parameters
    ----------
    page
        The README as an index shows it. All that it prints is typed.
    torch_index
        The address of an index with a smaller PyTorch, tried before the extra ``torch``; or none.
    chosen
        The further extras that are tried.
    """
    demo, tables, photos, python, _, flower = typed(page)
    smaller = (
        [f"pip install --no-deps --index-url {torch_index} torch torchvision || true"] if torch_index else []
    )
    without_torch = "! python -c 'import torch' 2> /dev/null"
    return [
        [
            Stage("none", [install(""), "python -c 'import fda_flower.strategies, fda_flower.legacy'"]),
            Stage("none", ["fda list", "(fda run 2>&1 || true) | grep --fixed-strings 'fda-flower['"]),
            Stage("simulation", [install("simulation"), SUPERLINK]),
            Stage("README: plug-in", commands(flower.code), "project"),
            Stage("simulation", ["flwr list --format json | grep finished:completed"], "project"),
            Stage("simulation", [without_torch, "pip check"]),
        ],
        [
            Stage("README: tables", with_data(commands(tables.code), "hospitals")),
            Stage("tables", [without_torch]),
            *extras(OF_TABLES, chosen),
            Stage("tables", ["pip check"]),
        ],
        [
            Stage(
                "torch",
                [*smaller, install("torch"), "python -c 'import fda_flower; fda_flower.run(rounds=1)'"],
            ),
            Stage("README: demo", commands(demo.code)),
            Stage("README: Python", [f"python - <<'END'\n{python.code}END"]),
            Stage("README: photos", with_data(commands(photos.code), "photos")),
            *extras(USES, chosen),
        ],
    ]


def typed(page: str) -> list[Block]:
    """Return what a person types: the demo, tables, photos, Python, and two blocks of the plug-in.

    Raises
    ------
    ValueError
        If there is another block, which nobody would have typed here, or one is missing.
    """
    printed = [block for block in blocks(page) if block.language in ("bash", "python")]
    starts = [(block.section, block.language) for block in printed]
    data, plug_in = "Your own data", "In your Flower project"
    expected = [("Two commands", "bash"), (data, "bash"), (data, "bash"), (data, "python")]
    expected += [(plug_in, "python"), (plug_in, "bash")]
    if starts != expected:
        raise ValueError(f"the README's blocks are {starts}, and release/plan.py types {expected}")
    return printed


def extras(uses: Mapping[str, tuple[str, ...]], chosen: Collection[str]) -> list[Stage]:
    """Return a stage for each chosen extra: it is installed, its data are made, its commands typed."""
    return [
        Stage(extra, with_data([install(extra), *lines], *({extra} & NEEDS_DATA)))
        for extra, lines in uses.items()
        if extra in chosen
    ]


def install(extra: str) -> str:
    """Return the command that installs the package with an extra."""
    dry = " --dry-run" if extra in RESOLVED else ""
    return f"pip install{dry} 'fda-flower{f'[{extra}]' if extra else ''}'"


def with_data(lines: list[str], *names: str) -> list[str]:
    """Insert what makes data after the first command, which installs what it needs."""
    return [lines[0], *(f"python {DATA} {name}" for name in names), *lines[1:]]


def write_project(folder: Path, block: str) -> None:
    """Write a Flower project without PyTorch: four nodes with a linear model in NumPy, and README's lines."""
    lines = block.strip().splitlines()
    client = [line for line in lines if line.startswith("answer_role_query(")]
    imports = [line for line in lines if line.startswith("from ")]
    server = [line for line in lines if line and line not in client + imports]
    package = folder / "project"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    parts = {"imports": "\n".join(imports), "client": "\n".join(client)}
    parts["server"] = textwrap.indent("\n".join(server), "    ")
    (package / "server_app.py").write_text(SERVER.format_map(parts), encoding="utf-8")
    (package / "client_app.py").write_text(CLIENT.format_map(parts), encoding="utf-8")


PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "project"
version = "1.0.0"
description = "A linear model"
license = "Apache-2.0"
dependencies = ["fda-flower", "flwr[simulation]"]

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "project.server_app:app"
clientapp = "project.client_app:app"

[tool.flwr.app.config]
"""
SERVER = """\
import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
{imports}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord([np.zeros(3)])
{server}
    assert len(result.evaluate_metrics_clientapp) == 30, result
"""
CLIENT = """\
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
{imports}

app = ClientApp()
{client}


def data(context):
    number = context.node_config["partition-id"]
    x = np.random.default_rng(number).normal(size=(100, 3))
    return x, x @ [1.0, -1.0, number / 4]


def reply(message, x, **records):
    records["metrics"] = MetricRecord(dict(records.get("metrics", {{}}), **{{"num-examples": len(x)}}))
    return Message(RecordDict(records), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    (weights,), (x, y) = message.content["arrays"].to_numpy_ndarrays(), data(context)
    for _ in range(10):
        weights = weights - 0.1 * x.T @ (x @ weights - y) / len(x)
    return reply(message, x, arrays=ArrayRecord([weights]))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    (weights,), (x, y) = message.content["arrays"].to_numpy_ndarrays(), data(context)
    return reply(message, x, metrics={{"loss": float(((x @ weights - y) ** 2).mean())}})
"""
