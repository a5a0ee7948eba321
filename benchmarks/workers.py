"""Clients side by side: the same run in this process, in two workers, on Ray with two cores, and deployed.

Nine sources of 1,000 images of Fashion-MNIST, a target that evaluates on as many, LeNet. Each engine is a
process of its own, and all take turns, one round each, so that all meet the same load: a ratio is between two
rounds that followed each other. The start is the time from the start of the process to its first round.
Memory is the sum over its processes; what they share counts once. Asked of two workers: a round of at
most 0.6 of one's, and a start of at most 4 seconds more.

The deployment, a SuperLink and ten SuperNodes with resident workers on loopback, cannot wait for its turn: it
runs alone once the others are done, for a few rounds, and its round is compared with the others' median.

    python benchmarks/workers.py [--quick]
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from common import MIB, quick_asked, show, show_machine, verdict

if TYPE_CHECKING:
    from fda_flower.runs.config import RunConfig

SOURCES, IMAGES, WARM_UP, DEPLOYED = 9, 1_000, 2, 4
ROUND_LIMIT, START_LIMIT = 0.6, 4.0
ENGINES: dict[str, dict[str, Any]] = {
    "local": {},
    "local --workers 2": {"workers": 2},
    "ray --workers 2": {"engine": "ray", "workers": 2},
}


class Turns:
    """A run in a process of its own, which waits for its turn before each round but the first."""

    def __init__(self, options: dict[str, Any], rounds: int) -> None:
        self._begun = time.time()
        code = f"import workers; workers.take_turns({options!r}, {rounds})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        self.start = self._read()["first-round"] - self._begun
        self._read()

    def next(self) -> float:
        """Seconds of a round."""
        assert self._process.stdin is not None
        print("go on", file=self._process.stdin, flush=True)
        self._last = self._read()
        return float(self._last["seconds"])

    def end(self) -> float:
        """The memory of all its processes, in MiB; the run is over."""
        self._process.communicate()
        return float(self._last["memory"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        read: dict[str, Any] = json.loads(self._process.stdout.readline())
        return read


def take_turns(options: dict[str, Any], rounds: int) -> None:
    """Run, and print a line before the first round and one after each."""
    from fda_flower.records.record import Record
    from fda_flower.running.run import Execution, run_config

    logging.getLogger("flwr").setLevel(logging.ERROR)

    def on_round(record: Record) -> None:
        seconds = sum(record["seconds"].values())
        if record["round"] == 1:
            tell({"first-round": time.time() - seconds})
        tell({"seconds": seconds, "memory": memory()})
        sys.stdin.readline()

    run_config(config_of(rounds), Execution(on_round=on_round, **options))


def deployed(rounds: int) -> tuple[float, list[float], float]:
    """Run in a deployment; return its start, the seconds of each round, and the memory in its last one."""
    from fda_flower.deployment import rehearse
    from fda_flower.records.record import Record

    begun, starts, held = time.time(), list[float](), list[float]()

    def on_round(record: Record) -> None:
        starts.append(time.time() - sum(record["seconds"].values()) - begun)
        held.append(memory())

    with tempfile.TemporaryDirectory() as folder:
        records = rehearse(config_of(rounds), Path(folder) / "run", on_round=on_round)
    return starts[0], [sum(record["seconds"].values()) for record in records], held[-1]


def config_of(rounds: int) -> "RunConfig":
    """Return the run."""
    from fda_flower.runs.config import RunConfig

    return RunConfig(
        method="fedavg",
        dataset="fashion-mnist",
        data_dir=os.environ.get("FDA_DATA_DIR"),
        sources=SOURCES,
        source_samples=IMAGES,
        test_samples=IMAGES,
        model="lenet",
        batch_size=64,
        rounds=rounds,
        evaluate_every=1,
        device="cpu",
    )


def tell(what: dict[str, float]) -> None:
    print(json.dumps(what), flush=True)


def memory() -> float:
    """Return the memory of this process and its children in MiB; one that ends meanwhile has none."""
    import psutil

    me, total = psutil.Process(), 0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / MIB


def main() -> None:
    rounds = 2 if quick_asked(__doc__) else 30
    runs = {name: Turns(options, 1 + WARM_UP + rounds) for name, options in ENGINES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(WARM_UP + rounds):
        for name, run in runs.items():
            seconds[name].append(run.next())
    one, rows = next(iter(runs)), []
    for name, run in runs.items():
        steady, base = seconds[name][WARM_UP:], seconds[one][WARM_UP:]
        ratio = median(own / other for own, other in zip(steady, base, strict=True))
        later = run.start - runs[one].start
        asked = "--workers 2" in name and "local" in name
        rows.append(
            [
                name,
                f"{run.start:.1f}",
                verdict(later, START_LIMIT) if asked else f"{later:.1f}",
                f"{1000 * median(steady):.0f}",
                f"{1000 * min(steady):.0f}",
                verdict(ratio, ROUND_LIMIT) if asked else f"{ratio:.2f}",
                f"{run.end():,.0f}",
            ]
        )
    start, taken, held = deployed(2 if rounds == 2 else DEPLOYED)
    steady, base = taken[1:], seconds[one][WARM_UP:]
    later, ratio = start - runs[one].start, median(steady) / median(base)
    milliseconds = [f"{1000 * of(steady):.0f}" for of in (median, min)]
    rows.append(["deploy", f"{start:.1f}", f"{later:.1f}", *milliseconds, f"{ratio:.2f}", f"{held:,.0f}"])
    show_machine()
    show(
        f"FedAvg, LeNet, {SOURCES} sources of {IMAGES} images",
        ["engine", "start (s)", "later than one", "round (ms), median", "least", "ratio to one", "MiB"],
        rows,
    )


if __name__ == "__main__":
    main()
