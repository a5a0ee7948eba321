"""What a round costs in other simulators, side by side: FedAvg on Fashion-MNIST.

    python benchmarks/peers.py --data-dir DIR [--quick] [--only bare,fda-local]

A: LeNet, 10 clients of 600 images. B: a network of one hidden layer, 50 clients of 60 images, so that nearly
all of a round is the framework. Plain SGD, one epoch in batches of 20, the mean weighted by samples, and an
evaluation on all 10,000 test images after each round, in batches of 256; one thread each.

Each framework runs in a process of its own. After each of its rounds, warm-up rounds left out, the process
does a round of a bare PyTorch loop (`frameworks/bare.py`); the ratio is the median over these pairs. The
frameworks run in turns, in another order in each pass; the table has the median over passes, with the least
and the highest. The column `bare` is the loop paired with itself.

The start is the time from the start of the process to the end of its first round in B. The memory is the most
that all processes of a framework hold together in B, before the bare loop is made; memory that several share
counts once. It is sampled in the first pass, from which no start is taken.

What each framework does is told in its module in `frameworks/`: bare, pfl_research, fluke_app, flower_app and
fda. One that is not installed is left out with a message: benchmarks/peers.md tells how to install them.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from statistics import median

from common import show, show_machine
from frameworks import FRAMEWORKS
from frameworks.pairing import Measured
from frameworks.process import FailedError, Outcome, run
from frameworks.task import Task

TASKS = {
    "A": Task("lenet", 10, 600, "", warm_up=2, rounds=8),
    "B": Task("mlp", 50, 60, "", warm_up=5, rounds=25),
}
PASSES = 2
QUICK = ("bare", "pfl", "fluke", "fda-local", "fda-workers")
"""What is quick enough for ``--quick``, which runs B alone."""

Outcomes = dict[tuple[str, str], list[Outcome]]
"""The outcomes of all passes, by the names of framework and task."""


def missing(name: str) -> str:
    """Return the package that a framework lacks, or nothing."""
    for package in FRAMEWORKS[name].packages:
        try:
            version(package)
        except PackageNotFoundError:
            return package
    return ""


def measure(names: list[str], tasks: dict[str, Task], passes: int) -> Outcomes:
    """Run all frameworks on all tasks in turns, until an interrupt; one that fails is not run again."""
    outcomes: Outcomes = {(name, key): [] for name in names for key in tasks}
    generator, failed = random.Random(0), set()
    with suppress(KeyboardInterrupt):
        for number, key in product(range(passes), tasks):
            for name in generator.sample(names, len(names)):
                if name in failed:
                    continue
                try:
                    outcome = run(name, tasks[key], watch_memory=key == "B" and number == 0)
                except FailedError as error:
                    failed.add(name)
                    tell(f"{name} is left out: {error}")
                    continue
                outcomes[name, key].append(outcome)
                tell(f"pass {number + 1}, {key}, {name}: {ratio_of(outcome.measured):.2f}")
    return outcomes


def tell(line: str) -> None:
    """Print what is not part of the table."""
    print(line, file=sys.stderr, flush=True)


def ratio_of(measured: Measured) -> float:
    """Return the median ratio of a process's pairs."""
    return median(ours / bare for ours, bare in zip(measured.rounds, measured.bare, strict=True))


def spread(values: Iterable[float], form: str) -> str:
    """Return the median of the passes, with the least and the highest."""
    found = list(values)
    middle = format(median(found), form)
    return middle if len(found) < 2 else f"{middle} ({min(found):{form}} to {max(found):{form}})"


def show_outcomes(keys: list[str], names: list[str], outcomes: Outcomes) -> None:
    """Print the table: a column for each framework."""

    def row(title: str, cell: Callable[[list[Outcome]], str], key: str) -> list[str]:
        return [title, *(cell(found) if (found := outcomes[name, key]) else "–" for name in names)]

    def ratio(found: list[Outcome]) -> str:
        return spread((ratio_of(each.measured) for each in found), ".2f")

    def round_ms(found: list[Outcome]) -> str:
        return f"{1000 * median(seconds for each in found for seconds in each.measured.rounds):.0f}"

    def start(found: list[Outcome]) -> str:
        unwatched = [each for each in found if each.memory is None]
        return spread((each.measured.start for each in unwatched or found), ".1f")

    def memory(found: list[Outcome]) -> str:
        return f"{max(each.memory or 0 for each in found):,.0f}"

    def accuracy(found: list[Outcome]) -> str:
        return spread((each.measured.accuracy for each in found), ".3f")

    rows = [
        *(row(f"{key}: round / bare round", ratio, key) for key in keys),
        *(row(f"{key}: round (ms)", round_ms, key) for key in keys),
        row("start to the first round's end (s)", start, "B"),
        row("memory (MiB, B)", memory, "B"),
        *(row(f"{key}: accuracy at the end", accuracy, key) for key in keys),
    ]
    show("FedAvg on Fashion-MNIST", ["", *(FRAMEWORKS[name].title for name in names)], rows)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder with FashionMNIST/raw/")
    parser.add_argument("--quick", action="store_true", help="few rounds of B, once, without Ray: it runs")
    parser.add_argument("--passes", type=int, default=PASSES, help=f"default: {PASSES}")
    parser.add_argument("--only", help=f"some of {','.join(FRAMEWORKS)}; default: all")
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else FRAMEWORKS
    arguments.only = list(names) if arguments.only is None else arguments.only.split(",")
    if unknown := [name for name in arguments.only if name not in FRAMEWORKS]:
        parser.error(f"--only names '{unknown[0]}': choose some of {', '.join(FRAMEWORKS)}")
    if not (arguments.data_dir / "FashionMNIST" / "raw").is_dir():
        parser.error(f"--data-dir is '{arguments.data_dir}', where there is no FashionMNIST/raw/")
    if arguments.passes < 1:
        parser.error(f"--passes is {arguments.passes}, at least 1 is needed")
    return arguments


def main() -> None:
    arguments = read_arguments()
    folder = str(arguments.data_dir.expanduser().absolute())
    tasks = {key: replace(task, data_dir=folder) for key, task in TASKS.items()}
    if arguments.quick:
        tasks = {"B": replace(tasks["B"], warm_up=1, rounds=3)}
    names = []
    for name in arguments.only:
        if package := missing(name):
            tell(f"{name} is left out: {package} is not installed, see benchmarks/peers.md")
        else:
            names.append(name)
    begun = time.monotonic()
    outcomes = measure(names, tasks, 1 if arguments.quick else arguments.passes)
    show_machine()
    packages = sorted({package for name in names for package in FRAMEWORKS[name].packages})
    print(", ".join(f"{package} {version(package)}" for package in packages))
    show_outcomes(
        list(tasks), [name for name in names if any(outcomes[name, key] for key in tasks)], outcomes
    )
    print(f"\n{time.monotonic() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
