"""What a message costs in a deployment, with and without a resident worker.

(1) CPU seconds of what the process imports that Flower starts for a message. (2) The rehearsal: two rounds of
FedGP_Auto with three sites over a SuperLink and SuperNodes on loopback, both ways in turns. Seconds of the
second round and of the whole, the CPU seconds of all processes for messages, with the sites' launchers
and workers, and the median over the processes that each answer one message; least of all turns. CPU times are
read from ``/proc`` while the processes run (Linux).
"""

import contextlib
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import psutil
from common import quick_asked, show, show_machine, verdict

from fda_flower.deployment import rehearse
from fda_flower.runs.config import RunConfig

FLOWER = "import flwr.supernode.cli.flwr_clientapp"
IMPORTS = {
    "import flwr": "import flwr",
    "Flower's own process": FLOWER,
    "with a resident worker": f"{FLOWER}, fda_flower.client_app",
    "without": f"{FLOWER}, fda_flower.client_app, fda_flower.runs.model_folder, sklearn.datasets",
}
LIMIT = 0.33
MESSAGE_LIMIT = 2.0
LAUNCHER, WORKER = "fda_flower.supernode.launcher", "fda_flower.supernode.worker"
POLL_SECONDS = 0.1


def cpu_seconds(code: str) -> float:
    """User and system time of a process that runs some code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Meter(threading.Thread):
    """Reads the CPU seconds of the processes for messages below this one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._all: dict[psutil.Process, float] = {}
        self._forks: dict[psutil.Process, float] = {}
        self._over = threading.Event()

    def run(self) -> None:
        """Read the times."""
        while not self._over.wait(POLL_SECONDS):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    command = " ".join(process.cmdline())
                    if LAUNCHER in command or WORKER in command:
                        times = process.cpu_times()
                        self._all[process] = times.user + times.system
                        if process.name() == "flwr-clientapp":
                            self._forks[process] = self._all[process]

    def stop(self) -> tuple[float, float]:
        """The sum, and the median over the processes of one message."""
        self._over.set()
        self.join()
        return sum(self._all.values()), median(self._forks.values())


def rehearsed(resident: bool) -> tuple[float, ...]:
    """Seconds of the second round, and of all; CPU seconds of the processes for messages, and of one."""
    meter = Meter()
    meter.start()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(method="fedgp-auto", sources=2, rounds=2)
        records = rehearse(config, Path(folder) / "run", resident=resident)
    taken = time.monotonic() - begun
    return sum(records[1]["seconds"].values()), taken, *meter.stop()


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    seconds = {
        name: min(cpu_seconds(code) for _ in range(1 if quick else 9)) for name, code in IMPORTS.items()
    }
    yardstick = seconds["import flwr"]
    rows = [[name, f"{taken:.2f}", f"{taken / yardstick:.2f}"] for name, taken in seconds.items()]
    show("CPU time of a process for a message", ["imports", "seconds", "ratio to `import flwr`"], rows)

    least = dict.fromkeys((True, False), (math.inf,) * 4)
    for _ in range(1 if quick else 3):
        for resident, before in least.items():
            least[resident] = tuple(map(min, before, rehearsed(resident)))
    names = ("second round (s)", "rehearsal (s)", "CPU for messages (s)", "CPU of a message's process (s)")
    rows = [
        [name, f"{without:.2f}", f"{resident:.2f}", verdict(resident / without, LIMIT)]
        for name, resident, without in zip(names, least[True], least[False], strict=True)
    ]
    show("The rehearsal", ["", "without", "with a resident worker", "ratio"], rows)
    ratio = least[True][-1] / yardstick
    print(f"\nA message's process / `import flwr`, with a resident worker: {verdict(ratio, MESSAGE_LIMIT)}")


if __name__ == "__main__":
    main()
