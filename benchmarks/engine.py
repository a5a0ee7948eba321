"""A round of the local engine against bare PyTorch.

A steady round (training, aggregation, evaluation, from the seconds in the run's records) with the defaults
of a run, against a hand-written PyTorch loop that trains models of the same four clients, from the same
weights on as many batches of the same sizes, and evaluates one on the target's test set; both on one
thread, in turns. On the digits, and on random images of Fashion-MNIST's size, also with the papers' network
and batch size. Images a second are those trained on, on one core. Asked: at most 1.15 times.

A second table has the CPU time of a step of training heads on 1,280 features, and networks of one hidden
layer on 28x28 numbers, in batches of 16: of long runs minus short ones, each in a process of its own. With
FDA_BASE the same with the package of another checkout; asked: 0.6 of it.
"""

import dataclasses
import json
import logging
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from common import Process, cell, printed_with_base, quick_asked, show, show_machine, verdict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fda_flower.clients import DomainClient
from fda_flower.datasets import DATASETS, Dataset, Samples, load_federation
from fda_flower.datasets.domains import Split
from fda_flower.models import build_model
from fda_flower.records.record import Record
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.config import RunConfig

LIMIT, WARM_UP = 1.15, 3
STEPS_LIMIT, EPOCHS = 0.6, 5
STEPS = {
    "head, SGD": ("logistic", "sgd", 1280, 7),
    "head, Adam": ("logistic", "adam", 1280, 7),
    "mlp, SGD": ("mlp", "sgd", 784, 10),
    "mlp, Adam": ("mlp", "adam", 784, 10),
}
"""Network, optimizer, features and classes."""

PROBE = """
import json, logging, sys, time
import numpy as np
from fda_flower.datasets import DATASETS, Dataset, Samples
from fda_flower.datasets.domains import Split
from fda_flower.running.run import run_config
from fda_flower.runs.config import RunConfig
model, optimizer, width, classes, epochs, rounds = json.loads(sys.argv[1])
logging.getLogger("flwr").setLevel(logging.ERROR)

def samples(count):
    x, y = np.random.default_rng(0).random((count, width), np.float32), np.arange(count) % classes
    if hasattr(Samples, "batches"):  # before samples held NumPy arrays
        import torch
        x, y = torch.from_numpy(x), torch.from_numpy(y)
    return Samples(x, y)

def seconds(rounds):
    begun = time.process_time()
    run_config(RunConfig(
        dataset="random-rows", shift="noise", method="fedavg", model=model, optimizer=optimizer,
        epochs=epochs, batch_size=16, target_batch_size=16, rounds=rounds, evaluate_every=1000, device="cpu"
    ))
    return time.process_time() - begun

split = Split(samples(2000), samples(500), classes)
DATASETS["random-rows"] = Dataset("random rows", lambda folder, seed: split)
seconds(1)
print(seconds(1 + rounds) - seconds(1))
"""


class BareLoop:
    """The training of a round as one would write it without a federation."""

    def __init__(self, config: RunConfig) -> None:
        federation = load_federation(config.data)
        self._test = _tensors(federation.domains[federation.target].test)
        self._learning_rate = config.rate
        self._clients: list[tuple[tuple[Tensor, Tensor], int, nn.Module]] = []
        for name, domain in federation.domains.items():
            model = build_model(config.model, federation.shape, federation.classes, seed=0)
            size = config.target_batch_size if name == federation.target else config.batch_size
            self._clients.append((_tensors(domain.train), size, model))

    def load(self, parameters: list[NDArray[Any]]) -> None:
        """Start the next round from a global model."""
        for _, _, model in self._clients:
            state = {
                name: torch.from_numpy(p) for name, p in zip(model.state_dict(), parameters, strict=True)
            }
            model.load_state_dict(state)

    def round(self) -> None:
        """An epoch of each client, and an evaluation."""
        for (x, y), size, model in self._clients:
            optimizer = torch.optim.Adam(model.parameters(), self._learning_rate, fused=True)
            model.train()
            order = torch.randperm(len(y))
            for part in order.tensor_split(-(-len(order) // size)):
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(model(x[part]), y[part]))
                optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in zip(*(torch.split(each, 256) for each in self._test), strict=True):
                (model(x).argmax(dim=1) == y).float().mean().item()


def _tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(samples.x), torch.from_numpy(samples.y)


def random_images(data_dir: Path | None, seed: int) -> Split:
    """Images of Fashion-MNIST's size; the four domains share those to train on."""
    generator = torch.Generator().manual_seed(seed)

    def samples(count: int) -> Samples:
        x = torch.rand(count, 1, 28, 28, generator=generator)
        return Samples(x.numpy(), torch.randint(10, (count,), generator=generator).numpy())

    return Split(samples(4_000), samples(2_000), 10)


def measure(config: RunConfig) -> list[str]:
    """A row of the table: rounds of a run, each followed by a round of the bare loop from the same model."""
    bare, rounds = BareLoop(config), []
    threads = torch.get_num_threads()
    evaluate = DomainClient.evaluate

    global_model: list[NDArray[Any]] = []

    def evaluate_and_share(client: DomainClient, parameters: list[NDArray[Any]], settings: Any) -> Any:
        global_model[:] = parameters
        return evaluate(client, parameters, settings)

    def on_round(record: Record) -> None:
        bare.load(global_model)
        torch.set_num_threads(config.threads)
        begun = time.perf_counter()
        bare.round()
        rounds.append({**record["seconds"], "bare": time.perf_counter() - begun})
        torch.set_num_threads(threads)

    with patch.object(DomainClient, "evaluate", evaluate_and_share):
        run_config(config, Execution(on_round=on_round))
    steady = rounds[WARM_UP:]
    ours = [r["train"] + r["aggregate"] + r["evaluate"] for r in steady]
    parts = [median(r[part] for r in steady) for part in ("train", "aggregate", "evaluate", "bare")]
    ratio = median(seconds / r["bare"] for seconds, r in zip(ours, steady, strict=True))
    least = min(ours) / min(r["bare"] for r in steady)
    images = sum(len(domain.train) for domain in load_federation(config.data).domains.values())
    return [
        config.dataset,
        config.model,
        config.method,
        *(f"{1000 * part:.1f}" for part in parts),
        f"{images / parts[0]:,.0f}",
        verdict(ratio, LIMIT),
        verdict(least, LIMIT),
    ]


def show_steps(quick: bool) -> None:
    """The second table."""
    epochs, rounds = (1, 1) if quick else (EPOCHS, 6)
    processes = {
        name: Process(("-c", PROBE, json.dumps([*case, epochs, rounds]))) for name, case in STEPS.items()
    }
    rows = []
    for name, (before, now) in printed_with_base(processes, 1 if quick else 3).items():
        ratio = "not measured" if before is None else verdict(now / before, STEPS_LIMIT)
        rows.append([name, *(cell(before and 1000 * before, ".0f"), f"{1000 * now:.0f}"), ratio])
    show(
        f"CPU milliseconds of {rounds} rounds of {epochs} epochs",
        ["what", "base", "now", "now / base"],
        rows,
    )


def main() -> None:
    quick = quick_asked(__doc__)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    DATASETS["random-28x28"] = Dataset("random images", random_images)
    rounds = WARM_UP + (5 if quick else 60)
    digits = RunConfig(method="fedgp-auto", rounds=rounds, evaluate_every=1, device="cpu")
    large: dict[str, Any] = {"dataset": "random-28x28", "rounds": WARM_UP + 20}
    cases = [digits]
    if not quick:
        lenet = {**large, "model": "lenet", "batch_size": 64}
        cases += [
            dataclasses.replace(digits, method="fedgp"),
            *(dataclasses.replace(digits, **settings) for settings in (large, lenet)),
        ]
    show_machine()
    show(
        "A steady round of the local engine (median milliseconds)",
        [
            "data",
            "model",
            "method",
            "train",
            "aggregate",
            "evaluate",
            "bare loop",
            "images/s",
            "round/bare, median",
            "round/bare, least",
        ],
        [measure(case) for case in cases],
    )
    show_steps(quick)


if __name__ == "__main__":
    main()
