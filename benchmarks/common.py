"""What the benchmarks share: their one option, timing in turns, and tables."""

import argparse
import math
import os
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

MIB = 2**20


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
