"""Ridge's time without the features, and a server's memory, which does not grow with the sources.

Rows of 1,280 features and a 1, seven classes, ten sources of 500 samples and a target of 50 labels. Asked:
0.1 s at the server, 0.05 s at the target, 0.015 s at a source, and as much memory for 100 sources as for 10.
The target fits both paths. Least processor seconds on one thread.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy is imported

import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
from common import MIB, quick_asked, show, show_machine, verdict
from numpy.typing import NDArray

from fda_flower.aggregation import Sums, to_rows, to_targets
from fda_flower.clients.ridge_numpy import fit_target

CLASSES = 7
SERVER, TARGET, SOURCE = 0.1, 0.05, 0.015
"""Seconds."""


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
        total = Sums.total(self.received(sources), *self.form)
        return {"solution": total.solution(), "gram": total.gram}

    def target(self, sent: dict[str, NDArray[np.float64]]) -> None:
        """What a target does."""
        fit_target(self.own_rows, self.own_labels, sent, "both")


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
    sent = federation.server(10)
    rows = [
        ("a source, 500 samples", seconds(federation.source, repeats), SOURCE),
        ("the server, 10 sources", seconds(lambda: federation.server(10), repeats), SERVER),
        ("the target, 50 labels", seconds(lambda: federation.target(sent), repeats), TARGET),
    ]
    shown = [[who, f"{1000 * took:.1f}", verdict(took / most, 1)] for who, took, most in rows]
    show(f"{features} features", ["who", "ms", "of what was asked"], shown)
    sizes = {sources: peak(lambda n=sources: federation.server(n)) for sources in (10, 100)}  # type: ignore[misc]
    most = 1.05 * sizes[10]
    memory = [[str(n), f"{size:.0f}", verdict(size / most, 1)] for n, size in sizes.items()]
    show("The server's memory, replies aside", ["sources", "MiB", "of what 10 take"], memory)


if __name__ == "__main__":
    main()
