"""Ridge's time without the features, and a server's memory, which does not grow with the sources.

Rows of 1,280 features and a 1, seven classes, ten sources of 500 samples and a target of 50 labels. Goals:
0.1 s at the server, 0.05 s at the target, 0.015 s at a source, and as much memory for 100 sources as for 10.
The target fits both paths. With two kinds of rows, 35 labels and 2,000 samples without labels it has 1 s and
300 MB. With the 13 features of a table, 4,000 labels take at most 5 times as long as 1,000, 3 s and 0.8 GB in
all, also with four of each patient. Least processor seconds on one thread.

The fit of all heads by labels and classes is in processes of their own, with FDA_BASE in turns with the same
of another checkout: with 1,000 of each it has 0.55 of that.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy is imported

import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
from common import MIB, Process, cell, printed_with_base, quick_asked, show, show_machine, verdict
from numpy.typing import NDArray

from fda_flower.aggregation import Sums, to_rows, to_targets
from fda_flower.aggregation.ridge_kinds import with_kinds
from fda_flower.clients.ridge_numpy import Labelled, fit_target
from fda_flower.wire.asked.ridge import FitHead

CLASSES = 7
SERVER, TARGET, SOURCE, TWO_KINDS = 0.1, 0.05, 0.015, 1.0
"""Seconds."""
MOST_MIB = 300e6 / MIB
FEW_LABELS, UNLABELLED = 35, 2000
COLUMNS, FEWER, MANY = 13, 1000, 4000
MOST_RATIO, MOST_SECONDS, MOST_GB = 5, 3.0, 0.8
FITS = ((50, 7, 1280), (200, 100, 1280), (1000, 1000, 1280), (3000, 2, 13))
"""Labels, classes, features."""
MOST_OF_BASE = 0.55
PROBE = """
import sys, time
import numpy as np
from fda_flower.aggregation import Sums, fit_ridge, to_rows, to_targets
labels, classes, features = map(int, sys.argv[1:])
rng = np.random.default_rng(0)

def site(rows):
    x = np.maximum(rng.standard_normal((rows, features)), 0)
    return to_rows(x, power=0.5), to_targets(rng.permutation(np.arange(rows) % classes), classes)

x, targets = site(2000)
solution, gram = Sums.of(x, targets).solution(), x.T @ x
own = site(labels)

def seconds():
    begun = time.process_time()
    fit_ridge(*own, solution, gram).head
    return time.process_time() - begun

print(min(seconds() for _ in range(3 if labels < 1000 else 1)))
"""


class Federation:
    """Sources' sums as they travel, and a target's labelled rows."""

    def __init__(self, features: int, samples: int, labels: int) -> None:
        self.rng, self.form = np.random.default_rng(0), (features + 1, CLASSES)
        self.rows, self.labels = self.site(samples)
        self.own_rows, self.own_labels = self.site(labels)
        self.sent = Sums.of(self.rows, to_targets(self.labels, CLASSES)).to_arrays()

    def site(self, samples: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows of a body whose features are never negative, and classes."""
        features = np.maximum(self.rng.standard_normal((samples, self.form[0] - 1)), 0)
        return to_rows(features, power=0.5), self.rng.integers(0, CLASSES, samples)

    def source(self) -> None:
        """What a source does."""
        Sums.of(self.rows, to_targets(self.labels, CLASSES)).to_arrays()

    def received(self, sources: int) -> Iterator[Sums]:
        """The sums of replies, one after another."""
        return (Sums.from_arrays(self.sent, *self.form) for _ in range(sources))

    def server(self, sources: int) -> dict[str, NDArray[np.float64]]:
        """What a server does."""
        return Sums.total(self.received(sources), *self.form).start(gram=True, scaled=False)

    def target(self, start: dict[str, NDArray[np.float64]]) -> None:
        """What a target does with one kind of rows, without unlabelled samples."""
        own = Labelled(self.own_rows, self.own_labels, CLASSES, [self.form[0] - 1])
        fit_target(own, FitHead(paths="both", start=start))

    def with_two_kinds(self, start: dict[str, NDArray[np.float64]]) -> Callable[[], object]:
        """What a target does with two kinds of rows and unlabelled samples."""
        parts = zip(self.site(FEW_LABELS), self.site(FEW_LABELS), strict=True)
        (first, second), (labels, _) = parts
        rest = [self.site(UNLABELLED)[0] for _ in range(2)]
        own = Labelled(
            np.hstack([first[:, :-1], second]),
            labels,
            CLASSES,
            [self.form[0] - 1] * 2,
            unlabelled=np.hstack([rest[0][:, :-1], rest[1]]),
        )
        question = FitHead(paths="both", start=with_kinds([start, start]), unlabelled=True)
        return lambda: fit_target(own, question)


def table(labels: int, patients: int | None = None) -> Callable[[], object]:
    """What a target with a table of many labels does, of as many patients or each of another one."""
    rng = np.random.default_rng(0)
    x = np.hstack([rng.normal(size=(labels, COLUMNS)) / COLUMNS**0.5, np.ones((labels, 1))])
    y = (x @ rng.normal(size=COLUMNS + 1) + rng.normal(size=labels) > 0).astype(np.int64)
    start = Sums.of(x, to_targets(y, 2)).start(gram=True, scaled=False)
    own = Labelled(x, y, 2, [COLUMNS], np.arange(labels) % patients if patients else None)
    return lambda: fit_target(own, FitHead(paths="both", start=start))


def show_fits(quick: bool) -> None:
    """The fit by labels and classes."""
    cases = FITS[:1] if quick else FITS
    processes = {case: Process(("-c", PROBE, *map(str, case))) for case in cases}
    names = {f"{n:,} labels, {c:,} classes, {d:,} features": processes[n, c, d] for n, c, d in cases}
    rows = []
    for name, (before, now) in printed_with_base(names, 1 if quick else 2).items():
        ratio = cell(before and now / before)
        if before is not None and "1,000 classes" in name:
            ratio = verdict(now / before, MOST_OF_BASE)
        rows.append([name, cell(before and 1000 * before, ",.1f"), f"{1000 * now:,.1f}", ratio])
    show("The fit, CPU milliseconds", ["what", "base", "now", "now / base"], rows)


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Least processor seconds, which other load changes least."""
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        function()
        found.append(time.process_time() - begun)
    return min(found)


def peak(function: Callable[[], object]) -> float:
    """MiB that a function needs at most."""
    tracemalloc.start()
    function()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / MIB


def main() -> None:
    """Print both tables."""
    quick = quick_asked(__doc__)
    features, repeats = (128, 3) if quick else (1280, 30)
    show_machine()
    federation = Federation(features, samples=500, labels=50)
    start = federation.server(10)
    two_kinds = federation.with_two_kinds(start)
    rows = [
        ("a source, 500 samples", seconds(federation.source, repeats), SOURCE),
        ("the server, 10 sources", seconds(lambda: federation.server(10), repeats), SERVER),
        ("the target, 50 labels", seconds(lambda: federation.target(start), repeats), TARGET),
        ("the target, two kinds, 35 and 2,000 rows", seconds(two_kinds, max(repeats // 10, 1)), TWO_KINDS),
    ]
    shown = [[who, f"{1000 * took:.1f}", verdict(took / most, 1)] for who, took, most in rows]
    show(f"{features} features", ["who", "ms", "of the goal"], shown)
    sizes = {sources: peak(lambda n=sources: federation.server(n)) for sources in (10, 100)}  # type: ignore[misc]
    most = 1.05 * sizes[10]
    memory = [[str(n), f"{size:.0f}", verdict(size / most, 1)] for n, size in sizes.items()]
    show("The server's memory, replies aside", ["sources", "MiB", "of what 10 take"], memory)
    needed = peak(two_kinds)
    row = [f"{needed:.0f}", verdict(needed / MOST_MIB, 1)]
    show("The target's memory with two kinds, rows aside", ["MiB", "of the goal"], [row])
    rows = []
    for name, rows_of_each in (("each of another patient", None), ("four of each patient", 4)):
        few, many = (seconds(table(n, n // rows_of_each if rows_of_each else None), 3) for n in (FEWER, MANY))
        ratios = verdict(many / few, MOST_RATIO), verdict(many / MOST_SECONDS, 1)
        rows.append([f"{MANY:,} labels, {name}", f"{many:.2f}", *ratios])
    show(f"{COLUMNS} columns", ["what", "s", f"of {FEWER:,} labels", "of the goal"], rows)
    show_fits(quick)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    show("All of this", ["GB", "of the goal"], [[f"{gigabytes:.2f}", verdict(gigabytes / MOST_GB, 1)]])


if __name__ == "__main__":
    main()
