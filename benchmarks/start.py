"""How long `fda run` and `fda data check` take from the command to their end, against `import torch`.

The default run on scikit-learn's digits, and two rounds of FedGP_Auto, which also draw a picture, each in a
new process, in turns with one that only imports PyTorch. The check is of three tables of 50,000 rows and 12
columns. Least seconds, from bytecode.
Goal: the default run in at most 1.4 times `import torch`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import quick_asked, seconds_of, show, show_machine, verdict

LIMIT = 1.4
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
RUN = "import sys; sys.argv = {words!r}; from fda_flower.cli import main; main()"


def started(code: str, folder: Path) -> None:
    """Run code in a new process."""
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=ENVIRONMENT)


def ran(*options: str) -> None:
    """Run the command in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["fda", "run", *options, "--output", "run"]
        started(RUN.format(words=words), Path(folder))


def write_tables(folder: Path, rows: int) -> None:
    """Three sites' tables of 11 features and a label."""
    for seed, site in enumerate(("north", "south", "west")):
        numbers = np.random.default_rng(seed).normal(50, 10, (rows, 11)).round(2)
        labels = np.arange(rows)[:, None] % 2
        header = ",".join([*(f"x{i}" for i in range(11)), "label"])
        np.savetxt(
            folder / f"{site}.csv", np.hstack([numbers, labels]), "%g", ",", header=header, comments=""
        )


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), 500 if quick else 50_000)
        show_seconds(Path(folder), quick)


def show_seconds(tables: Path, quick: bool) -> None:
    """The one table."""
    functions: dict[str, Callable[[], object]] = {
        "import torch": partial(started, "import torch", Path()),
        "fda run": partial(ran),
        "fda run --method fedgp-auto --rounds 2": partial(ran, "--method", "fedgp-auto", "--rounds", "2"),
        "fda data check": partial(started, RUN.format(words=["fda", "data", "check", "."]), tables),
    }
    seconds = seconds_of(functions, 1 if quick else 7)
    least = seconds["import torch"]
    rows = [[name, f"{value:.2f}", f"{value / least:.2f}"] for name, value in seconds.items()]
    rows[1][2] = verdict(seconds["fda run"] / least, LIMIT)
    show("From the command to its end", ["process", "seconds", "ratio to import torch"], rows)


if __name__ == "__main__":
    main()
