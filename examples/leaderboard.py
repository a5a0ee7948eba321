"""Run rows of experiments/leaderboard, and write their figures into their files; see its README.md."""

import os
import sys
from datetime import date
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path

import typer

from fda_flower import ConfigError, FdaError, RunConfig, __version__, run
from fda_flower.datasets.federation import data_digests

FOLDER = Path(__file__).resolve().parents[1] / "experiments" / "leaderboard"
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
TASK = dict(dataset="pacs", dataset_options={"image_size": 96}, target_samples=35, source_samples="25%")
FIXED = {*TASK, "target", "seed", "test_samples", "only_sources", "data_dir", "metric", "evaluate_every"}
SEEDS = [int(sha256(f"{__version__}/{number}".encode()).hexdigest()[:4], 16) for number in range(5)]
MARK = '\nROW["figures"] = '


def read(name):
    """Return a row with its run's configuration; raise a `ConfigError` if it changes the task."""
    row = {"figures": None, **getattr(import_module(name), "ROW", {"ROW": None})}
    for key in sorted({*row} ^ {"label", "by", "run", "figures"} | {*row.get("run", ())} & FIXED):
        what = f"row '{name}': '{key}' is missing, unknown, or part of the task"
        raise ConfigError(what, thing=key, remedy="give label, by, and what TASK leaves open in run")
    return {**row, "config": RunConfig.read({**row["run"], **TASK})}


def measure(name, row, **machine):
    """Do a row's runs, or what an interruption left of them, and write the figures into its file."""
    path, figures = FOLDER / f"{name}.py", {target: {} for target in TARGETS}
    text = path.read_text(encoding="utf-8").partition(MARK)[0]
    folder = Path("runs", "leaderboard", f"{name}-{sha256(text.encode()).hexdigest()[:8]}")
    for seed, target in product(SEEDS, TARGETS):
        place = {"target": target, "seed": seed, "output": folder / f"{target}-{seed}"}
        result = run(**row["run"], **TASK, **place, **machine, resume=True)
        figures[target][seed] = round(result.last5, 4)
    images = sha256(repr(data_digests(result.config.data)).encode()).hexdigest()[:8]
    print(f"{name}: {sum(sum(figures[each].values()) for each in TARGETS) / len(TARGETS) / len(SEEDS):.2f}%")
    figures |= {"release": __version__, "date": str(date.today()), "images": images}
    lines = "".join(f'    "{key}": {value!r},\n' for key, value in figures.items()).replace("'", '"')
    path.write_text(f"{text}{MARK}{{\n{lines}}}\n", encoding="utf-8")


def main(names: list[str], data_dir: str = os.environ.get("FDA_DATA_DIR"), workers: int = 1) -> None:
    """Run rows by their names."""
    sys.path.append(str(FOLDER))
    try:
        for name in names:
            measure(name, read(name), data_dir=data_dir, workers=workers)
    except (FdaError, ImportError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    typer.run(main)
