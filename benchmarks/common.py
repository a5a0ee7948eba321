"""What the benchmarks share: their one option, timing in turns, the cost of whole processes, and tables."""

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

MIB = 2**20
CHECKOUT = Path(__file__).resolve().parents[1]
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
RUN = "from fda_flower.cli import main; main()"
LAUNCHER = """
import json, resource, subprocess, sys
process = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6
print(json.dumps([process.returncode, seconds, megabytes, process.stdout, process.stderr]))
"""
"""Runs a command and prints what it costs. A new process counts the memory of the one that starts it as its
own peak, so this one is small."""


def quick_asked(description: str | None) -> bool:
    """Read the command line: ``--help``, and whether ``--quick`` was given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and few, in seconds: shows that it runs")
    return bool(parser.parse_args().quick)


def seconds_of(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least seconds of each function, since other load only adds.

    They are called in turns, so that all meet that load, and each turn in another order, as what ran before
    leaves its own data in the cache.
    """
    seconds = dict.fromkeys(functions, math.inf)
    for function in functions.values():
        function()
    generator = random.Random(0)
    for _ in range(repeats):
        for name, function in generator.sample(list(functions.items()), len(functions)):
            begun = time.perf_counter()
            function()
            seconds[name] = min(seconds[name], time.perf_counter() - begun)
    return seconds


@dataclass(frozen=True)
class Cost:
    """What a process and those it has started take: CPU seconds, and the peak memory of the largest in MB."""

    seconds: float
    megabytes: float
    output: str = ""


@dataclass(frozen=True)
class Process:
    """A new Python process with these arguments, on one thread, which imports the package of a `checkout`.

    Without a `folder` each call works in an empty one. `environment` has further variables.
    """

    arguments: tuple[str, ...]
    folder: Path | None = None
    checkout: Path = CHECKOUT
    environment: Mapping[str, str] = field(default_factory=dict)

    def cost(self) -> Cost:
        """Run the process; raise a `RuntimeError` with its last words if it fails."""
        variables = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(self.checkout), **self.environment}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, sys.executable, *self.arguments]
        with tempfile.TemporaryDirectory() as empty:
            folder = self.folder or empty
            done = subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True)
        code, seconds, megabytes, output, errors = json.loads(done.stdout)
        if code:
            raise RuntimeError(f"{' '.join(self.arguments)} ended with {code}: {errors[-2000:]}")
        return Cost(seconds, megabytes, output)


def fda(*words: str, folder: Path | None = None) -> Process:
    """Return the process of a command of `fda`."""
    return Process(("-c", RUN, *words), folder)


def base_checkout() -> Path | None:
    """Return the checkout that ``FDA_BASE`` names, the other side of a comparison; None without it."""
    name = os.environ.get("FDA_BASE")
    if name and not (Path(name) / "fda_flower").is_dir():
        sys.exit(f"FDA_BASE is '{name}', which has no folder fda_flower: name a checkout of the base commit")
    return Path(name).resolve() if name else None


def runs_of(processes: Mapping[str, Process], repeats: int) -> dict[str, list[Cost]]:
    """Run each process a number of times, in turns after one warm-up, which also writes bytecode.

    Each turn has another order.
    """
    for process in processes.values():
        process.cost()
    costs: dict[str, list[Cost]] = {name: [] for name in processes}
    generator = random.Random(0)
    for _ in range(repeats):
        for name in generator.sample(list(processes), len(processes)):
            costs[name].append(processes[name].cost())
    return costs


def costs_of(processes: Mapping[str, Process], repeats: int) -> dict[str, Cost]:
    """Return the least seconds and the most memory of each process; see `runs_of`."""
    return {
        name: Cost(min(cost.seconds for cost in costs), max(cost.megabytes for cost in costs))
        for name, costs in runs_of(processes, repeats).items()
    }


def printed_with_base(
    processes: Mapping[str, Process], repeats: int
) -> dict[str, tuple[float | None, float]]:
    """Return the least number that each process prints, with the package of `base_checkout` and this one."""
    base = base_checkout()
    twins = {} if base is None else {f"{name}\0": replace(p, checkout=base) for name, p in processes.items()}
    runs = runs_of({**processes, **twins}, repeats)
    least = {name: min(float(cost.output) for cost in costs) for name, costs in runs.items()}
    return {name: (least.get(f"{name}\0"), least[name]) for name in processes}


def cell(value: float | None, form: str = ".2f") -> str:
    """Return a number for a table, or that the base was not measured."""
    return "not measured" if value is None else format(value, form)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    lines = [f"\n{title}\n", *(f"| {' | '.join(row)} |" for row in (header, ["---:"] * len(header), *rows))]
    print("\n".join(lines), flush=True)


def verdict(value: float, limit: float) -> str:
    """A ratio with what was asked of it."""
    return f"{value:.2f} ({'met' if value <= limit else 'not met'}: {limit:g})"


def show_machine() -> None:
    """Print what the numbers were measured on."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch", "flwr"))
    name = models[0] if models else platform.machine()
    print(f"{os.cpu_count()} cores ({name}), Python {platform.python_version()}, {versions}")
