"""Sites of a consortium in one process, each with a node configuration and a folder of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fda_flower import RunConfig
from fda_flower.client_app import make_client_app
from fda_flower.engines import LocalGrid
from fda_flower.records.record import Record
from fda_flower.server_app import run_server
from fda_flower.wire.internals import task_identity

Site = Mapping[str, str | int | float]


def run_sites(config: RunConfig, nodes: Sequence[Site]) -> tuple[dict[str, Any], list[Record]]:
    """The last model and the records of a run over nodes of these configurations."""
    with task_identity():
        grid = LocalGrid(make_client_app(config), len(nodes))
        for context, node in zip(grid._contexts.values(), nodes, strict=True):
            context.node_config = dict(node)
        result, history = run_server(grid, config)
    return {name: array.numpy() for name, array in result.arrays.items()}, history


def write_table(path: Path, seed: int, rows: int = 40, columns: Sequence[str] = ("age", "height")) -> None:
    """A table whose label is whether the columns' sum is positive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    lines = [",".join([*map(str, row), str(int(row.sum() > 0))]) for row in x]
    path.write_text("\n".join([",".join([*columns, "label"]), *lines]))


def write_texts(path: Path, seed: int, rows: int = 40, repeated: int = 1) -> None:
    """A table of an age and a note, which says whether something was good; one note is `repeated`."""
    words = [("awful", "dull", "a bore", "too bad"), ("lovely", "a joy", "great", "so good")]
    drawn = np.random.default_rng(seed)
    lines = ["age,note,label"]
    for number in range(rows):
        label = number % 2
        note = f"The {drawn.choice(['film', 'book', 'day'])} of {seed} was {drawn.choice(words[label])}. "
        lines.append(f"{drawn.integers(90)},{(note * (repeated if number == 3 else 1)).strip()},{label}")
    path.write_text("\n".join(lines))


def write_images(folder: Path, seed: int, classes: Sequence[str] = ("ant", "bee"), count: int = 10) -> None:
    """A domain's images of noise, in a folder for each class."""
    generator = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def write_sites(
    write: Callable[..., None], folder: Path, names: Iterable[str], *settings: Any, **more: Any
) -> None:
    """What one of these functions writes, for each name and by a seed of its own."""
    for seed, name in enumerate(names):
        write(folder / (name if write is write_images else f"{name}.csv"), seed, *settings, **more)
