"""CPU time of what loads nothing heavy, as a ratio to a bare ``import torch``.

Each command is a process of its own; the least of several is taken, since other load only adds.

    python benchmarks/startup.py [--quick]
"""

import math
import os
import random
import resource
import subprocess
import sys

from common import quick_asked, show, show_machine, verdict

FDA = "import sys; sys.argv = ['fda', *{!r}]; from fda_flower.cli import main; main()"
YARDSTICK = "import torch"
LIMIT = 0.226
"""A tenth of the 2.6 seconds that ``fda --help`` took, where ``import torch`` took 1.15."""

COMMANDS = {
    YARDSTICK: YARDSTICK,
    "fda --help": FDA.format(["--help"]),
    "fda --version": FDA.format(["--version"]),
    "fda list": FDA.format(["list"]),
    "fda run --help": FDA.format(["run", "--help"]),
    "fda run --method nope": FDA.format(["run", "--method", "nope"]),
    "fda run --rounds 0": FDA.format(["run", "--rounds", "0"]),
    "import fda_flower": "import fda_flower",
    "import fda_flower.aggregation": "import fda_flower.aggregation",
    "import fda_flower.strategies": "import fda_flower.strategies",
    "import flwr.serverapp.strategy": "import flwr.serverapp.strategy",
}
"""The last is what `fda_flower.strategies` cannot do without."""


def cpu_seconds(code: str) -> float:
    """User and system time of a process that runs some code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, env={**os.environ, "COLUMNS": "100"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    repeats = 1 if quick_asked(__doc__) else 9
    seconds = dict.fromkeys(COMMANDS, math.inf)
    generator = random.Random(0)
    for _ in range(repeats + 1):
        for name in generator.sample(list(COMMANDS), len(COMMANDS)):
            seconds[name] = min(seconds[name], cpu_seconds(COMMANDS[name]))
    rows = []
    for name, taken in seconds.items():
        ratio = taken / seconds[YARDSTICK]
        shown = verdict(ratio, LIMIT) if name.startswith("fda") else f"{ratio:.2f}"
        rows.append([f"`{name}`", f"{taken:.2f}", shown])
    show_machine()
    show("CPU time of a process", ["what", "seconds", f"ratio to `{YARDSTICK}`"], rows)


if __name__ == "__main__":
    main()
