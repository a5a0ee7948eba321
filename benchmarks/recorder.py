"""What it costs the target to record its local steps, in each form that a server can ask for.

One local epoch with a recorder (made and read within the time) against the same epoch without: the digits
CNN (50 images of 1x8x8, batch 4, Adam), and ResNet-18 (images of 3x96x96, batch 8, Adam), on one thread, as
clients train by default. Asked: norms at most 1.1 times, a sketch of 1024 at most 1.5 times.
Then, on rounds of a real run (digits, rotate, fedgp-auto), β from sketches beside β from the full updates
of the same rounds. Asked: a difference of at most 0.01 with a sketch of 1024.
"""

import logging
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from common import MIB, quick_asked, seconds_of, show, show_machine, verdict
from numpy.typing import NDArray
from torch import nn

from fda_flower import run
from fda_flower.aggregation import BatchUpdates, CountSketch, estimate
from fda_flower.clients import LocalTraining, make_recorder, train
from fda_flower.datasets import Samples
from fda_flower.models import build_model
from fda_flower.strategies.adaptive import AdaptiveStrategy

SIZE = 1024
ENCODINGS = (None, "norms", "sketch", "full")
TIMES_LIMITS = {"norms": 1.1, "sketch": 1.5}
BETA_LIMIT = 0.01


@dataclass(frozen=True)
class Case:
    """A model and how it trains."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    examples: int
    batch_size: int
    repeats: int


def resnet18() -> nn.Module:
    from torchvision.models import resnet18

    model: nn.Module = resnet18(num_classes=10)
    return model


def digits_cnn() -> nn.Module:
    return build_model("cnn", (1, 8, 8), 10, seed=0)


CASES = (
    Case("digits CNN", digits_cnn, (1, 8, 8), 50, 4, 200),
    Case("ResNet-18", resnet18, (3, 96, 96), 40, 8, 40),
)


def make_epoch(case: Case) -> Callable[[str | None], dict[str, NDArray[Any]]]:
    """A function that trains one epoch with a form, and returns the arrays that the target would send."""
    model = case.build()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case.examples, *case.shape, generator=generator)
    samples = Samples(x, torch.randint(10, (case.examples,), generator=generator))
    training, seeds = LocalTraining(0.001, case.batch_size), count()

    def epoch(form: str | None) -> dict[str, NDArray[Any]]:
        asked = {"batch-updates": form, "sketch-size": SIZE, "sketch-seed": next(seeds)} if form else {}
        recorder = make_recorder(list(model.parameters()), asked)
        train(model, samples, training, generator, recorder)
        return recorder.arrays() if recorder else {}

    return epoch


def peak_memory(case: Case, form: str | None) -> int:
    """The most memory that a process has held that trained two epochs; 0 where Linux does not tell."""
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    epoch = make_epoch(case)
    for _ in range(2):
        epoch(form)
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(case: Case, repeats: int) -> list[list[str]]:
    """A row for each form."""
    epoch = make_epoch(case)
    name = f"{case.name} ({sum(p.numel() for p in case.build().parameters()):,})"
    seconds = seconds_of({str(form): partial(epoch, form) for form in ENCODINGS}, repeats)
    context, peaks = multiprocessing.get_context("spawn"), {}
    for form in ENCODINGS:
        with context.Pool(1) as pool:
            peaks[form] = pool.apply(peak_memory, (case, form))
    rows = []
    for form in ENCODINGS:
        ratio = seconds[str(form)] / seconds["None"]
        limit = TIMES_LIMITS.get(str(form))
        rows.append(
            [
                name,
                form or "none",
                f"{1000 * seconds[str(form)]:.2f}",
                verdict(ratio, limit) if limit else f"{ratio:.2f}",
                f"{sum(array.nbytes for array in epoch(form).values()):,}",
                f"{max(peaks[form] - peaks[None], 0) / MIB:.1f}",
            ]
        )
    return rows


def compare_betas(rounds: int, sizes: tuple[int, ...]) -> dict[int, NDArray[np.float64]]:
    """β by size of the sketch, shape ``(rounds, sources)``, in one run; at size 0 β by full updates."""
    found: dict[int, list[NDArray[np.float64]]] = {size: [] for size in (0, *sizes)}
    original = AdaptiveStrategy._estimate

    def both(self: Any, target: Any, sources: Any, geometry: Any, *rest: Any) -> NDArray[np.float64]:
        betas = original(self, target, sources, geometry, *rest)
        found[0].append(betas)
        for size in sizes:
            sketch = CountSketch(size, self._record["round"])
            rows = np.stack([sketch({"row": row}) for row in self._batches.full])
            batches = BatchUpdates(self._batches.squared_norms, sketches=rows, sketch=sketch)
            estimates = estimate(target, list(sources.values()), geometry, batches)
            found[size].append(np.array([self._beta_rule(e) for e in estimates]))
        return betas

    with patch.object(AdaptiveStrategy, "_estimate", both):
        run(method="fedgp-auto", method_options={"batch_update_encoding": "full"}, rounds=rounds)
    return {size: np.stack(values) for size, values in found.items()}


def errors(difference: NDArray[np.float64]) -> list[str]:
    """Mean and largest, with what was asked."""
    largest = float(abs(difference).max())
    asked = f"{'met' if largest <= BETA_LIMIT else 'not met'}: {BETA_LIMIT:g}"
    return [f"{abs(difference).mean():.4f}", f"{largest:.4f} ({asked})"]


def main() -> None:
    quick = quick_asked(__doc__)
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    show_machine()
    cases = CASES[:1] if quick else CASES
    show(
        f"An epoch of the target (least milliseconds; sketch of {SIZE}; memory beyond that of no recorder)",
        ["model (parameters)", "form", "epoch", "times none", "bytes sent", "memory (MiB)"],
        [row for case in cases for row in measure(case, 10 if quick else case.repeats)],
    )
    betas = compare_betas(3 if quick else 30, (SIZE,) if quick else (256, SIZE, 4096, 16384))
    full = betas.pop(0)
    show(
        "|β by sketch - β by full updates| over rounds and sources (digits, rotate), "
        f"where β is {full.min():.3f} to {full.max():.3f}",
        ["sketch", "mean", "largest"],
        [[str(size), *errors(values - full)] for size, values in betas.items()],
    )


if __name__ == "__main__":
    main()
