"""How long `fda run` takes from the command to its end, against `import torch`.

The default run on scikit-learn's digits, and two rounds of FedGP_Auto, which also draw a picture, each in a
new process, in turns with one that only imports PyTorch. Least seconds, from bytecode.
Goal: the default run in at most 1.4 times `import torch`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

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


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    functions: dict[str, Callable[[], object]] = {
        "import torch": partial(started, "import torch", Path()),
        "fda run": partial(ran),
        "fda run --method fedgp-auto --rounds 2": partial(ran, "--method", "fedgp-auto", "--rounds", "2"),
    }
    seconds = seconds_of(functions, 1 if quick else 7)
    least = seconds["import torch"]
    rows = [[name, f"{value:.2f}", f"{value / least:.2f}"] for name, value in seconds.items()]
    rows[1][2] = verdict(seconds["fda run"] / least, LIMIT)
    show("From the command to its end", ["process", "seconds", "ratio to import torch"], rows)


if __name__ == "__main__":
    main()
