"""What a round costs with many clients, and what a large model costs the server.

(1) Seconds of a steady round and peak memory of the process against the number of clients: in this process
and through Ray, a small model, FedGP_Auto. Both should grow linearly. (2) What the server holds of a model
of ResNet-18's size, in units of the model: asked are the updates of all clients once, plus 3 models. (3) The
same model over a SuperLink and SuperNodes on loopback, with TLS: bytes and seconds a round, and the peak
memory of the ServerApp's process beyond one with a tiny model, code not counted. (4) Bytes of a round
that the server aggregates, or the target.

Each case of (1) runs in a process of its own. Memory of processes is read from ``/proc`` (Linux).
"""

import itertools
import logging
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import MIB, quick_asked, show, show_machine, verdict
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from PIL import Image

from fda_flower.client_app import make_client_app
from fda_flower.deployment import Federation, run_deployed
from fda_flower.engines import LocalGrid
from fda_flower.models import build_model
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.config import RunConfig
from fda_flower.server_app import run_server
from fda_flower.strategies import FedGP
from fda_flower.wire.internals import task_identity

WARM_UP, ROUNDS = 1, 5
SAMPLES = 6
"""Of each client, so that 200 can share the digits."""
EXTRA_MODELS = 3
SITES = ["north", "west", "south"]


def rounds_of(engine: str, clients: int) -> tuple[float, float]:
    """Seconds of a steady round and the process's peak memory in MiB."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    config = RunConfig(
        shift="noise",
        sources=clients - 1,
        source_samples=SAMPLES,
        target_samples=SAMPLES,
        target_batch_size=SAMPLES // 2,
        method="fedgp-auto",
        model="mlp",
        rounds=WARM_UP + ROUNDS,
        evaluate_every=1,
        device="cpu",
    )
    seconds = []
    run_config(
        config,
        Execution(engine=engine, on_round=lambda record: seconds.append(sum(record["seconds"].values()))),
    )
    return median(seconds[WARM_UP:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def show_clients(engine: str, counts: list[int]) -> None:
    """The table of (1) for one engine."""
    rows = []
    for clients in counts:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn) as pool:
            seconds, peak = pool.submit(rounds_of, engine, clients).result()
        rows.append([str(clients), f"{seconds:.3f}", f"{1000 * seconds / clients:.2f}", f"{peak:.0f}"])
    show(
        f"Clients of the {engine} engine",
        ["clients", "round (s)", "ms a client", "peak of the server's process (MiB)"],
        rows,
    )


def resnet_arrays() -> dict[str, Any]:
    """Arrays of ResNet-18 with 10 classes."""
    model = build_model("resnet18", (3, 64, 64), 10, 0)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def peak_in_models(clients: int) -> float:
    """The most that a strategy and the replies hold in a round, in units of ResNet-18."""
    arrays = resnet_arrays()
    size = sum(array.nbytes for array in arrays.values())
    app = ClientApp()

    @app.query("role")
    def role(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        info = ConfigRecord({"domain": f"{partition:03}", "role": "source" if partition else "target"})
        return Message(RecordDict({"info": info}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        moved = {}
        for name, array in message.content["arrays"].items():
            value = array.numpy()
            moved[name] = Array(np.asarray(value + 1e-3 * (partition + 1), dtype=value.dtype))
        metrics = MetricRecord({"num-examples": 10, "num-steps": 2, "learning-rate": 0.1})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"accuracy": 0.5})}), reply_to=message)

    initial = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    with task_identity():
        tracemalloc.start()
        strategy = Watched()
        strategy.start(LocalGrid(app, clients), initial, 2)
        tracemalloc.stop()
    return strategy.peak / size


class Watched(FedGP):
    """FedGP that notes the most memory traced while it aggregates; the clients, here too, are done then."""

    peak = 0

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """As ever, between two looks at the memory."""
        tracemalloc.reset_peak()
        result = super().aggregate_train(server_round, replies)
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
        return result


class CountingGrid(LocalGrid):
    """Counts the bytes of arrays in train messages, and in their replies."""

    sent = received = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Count what goes out."""
        messages = list(messages)
        self.sent += sum(
            bytes_in(message) for message in messages if message.metadata.message_type == "train"
        )
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Count what comes in."""
        replies = list(super().pull_messages(message_ids))
        self.received += sum(bytes_in(reply) for reply in replies)
        return replies


def bytes_in(message: Message) -> int:
    """Of the arrays of a message."""
    return sum(record.count_bytes() for record in message.content.array_records.values())


def bytes_of_a_round(place: str, form: str) -> tuple[int, int]:
    """Bytes sent to the clients and received from them: digits, 3 sources, a target with 13 steps."""
    config = RunConfig(
        method="fedgp-auto",
        rounds=1,
        method_options={"aggregate_on": place, "batch_update_encoding": form},
        device="cpu",
    )
    with task_identity():
        grid = CountingGrid(make_client_app(config), len(config.data.domain_names))
        run_server(grid, config)
    return grid.sent, grid.received


def show_places() -> None:
    """The table of (4)."""
    rows = []
    for form in ("sketch", "full"):
        for place in ("server", "target"):
            sent, received = bytes_of_a_round(place, form)
            rows.append([form, place, f"{sent:,}", f"{received:,}", f"{sent + received:,}"])
    show("Bytes of a round by where it is aggregated", ["form", "on the", "sent", "received", "both"], rows)


class ServerAppMemory(threading.Thread):
    """Watches the processes of ServerApps for the highest of their peaks."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self._end = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._end.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if b"flwr-serverapp" in (process / "cmdline").read_bytes():
                        lines = (process / "status").read_text().splitlines()
                        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
                        self.peak = max(self.peak, kib / 1024)
                except (OSError, StopIteration):
                    continue

    def stop(self) -> float:
        """The peak in MiB."""
        self._end.set()
        self.join()
        return self.peak


def write_images(folder: Path) -> None:
    """Random images of two classes for each site."""
    generator = np.random.default_rng(0)
    for domain, label, number in itertools.product(SITES, "01", range(10)):
        path = folder / domain / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(256, size=(64, 64, 3), dtype=np.uint8)).save(path)


def deployed(model: str, rounds: int = 2) -> tuple[float, float, float]:
    """Seconds and MiB received a round, and the ServerApp's peak in MiB, of 2 sources and a target."""
    memory = ServerAppMemory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images")
        config = RunConfig(
            dataset="images",
            dataset_options={"domains": ",".join(SITES), "classes": "0,1", "image_size": 64},
            target=SITES[-1],
            target_samples=None,
            model=model,
            method="fedgp",
            rounds=rounds,
            device="cpu",
            data_dir=str(folder / "images"),
        )
        with Federation(folder / "federation", {site: {"domain": site} for site in SITES}) as federation:
            memory.start()
            history, _ = run_deployed(
                config, federation.connection, folder / "run", environment=federation.environment
            )
    assert not any(record["dropped"] or record["held"] for record in history)
    seconds = median(sum(record["seconds"].values()) for record in history)
    return seconds, history[-1]["bytes-received"] / MIB, memory.stop()


def imports() -> float:
    """MiB that importing torchvision's networks takes, which ``mlp`` is not one of."""
    code = (
        "import psutil, fda_flower.server_app; used = lambda: psutil.Process().memory_info().rss;"
        "before = used(); import torchvision.models; print((used() - before) / 2**20)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def main() -> None:
    quick = quick_asked(__doc__)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    show_machine()
    show_clients("local", [10, 50] if quick else [10, 50, 100, 200])
    if not quick:
        show_clients("ray", [4, 16, 64])
    counts = [3] if quick else [3, 10, 20]
    rows = []
    for clients in counts:
        peak = peak_in_models(clients)
        rows.append([str(clients), f"{peak:.2f}", verdict(peak / (clients + EXTRA_MODELS), 1.01)])
    show(
        "What the server holds of ResNet-18, in models",
        ["clients", "peak", f"peak / (clients + {EXTRA_MODELS})"],
        rows,
    )
    show_places()
    if quick:
        return
    begun = time.perf_counter()
    tiny, large = deployed("mlp"), deployed("resnet18")
    size = sum(array.nbytes for array in resnet_arrays().values()) / MIB
    code = imports()
    peak = (large[2] - tiny[2] - code) / size
    show(
        f"3 clients over loopback, TLS ({time.perf_counter() - begun:.0f} s in all; code {code:.0f} MiB)",
        ["model", "round (s)", "received a round (MiB)", "ServerApp's peak (MiB)", "in models"],
        [
            ["mlp", *(f"{value:.1f}" for value in tiny), ""],
            ["resnet18", *(f"{value:.1f}" for value in large), verdict(peak, 3 + EXTRA_MODELS)],
        ],
    )


if __name__ == "__main__":
    main()
