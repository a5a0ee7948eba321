"""The parts of `gpu.sh`: what runs take on a GPU, each part by itself; prints rows of a Markdown table.

`A` and `B` are the tasks of `peers.py`: a round of the local engine over a round of bare PyTorch on the same
device, in turns. `methods` runs every method that `fda list` names once, two rounds on digits, several at a
time, and compares the loss with a run on the CPU. `features` computes the features of 5,000 images of 96x96
with the default network, against its forward passes alone. `fedgp` aggregates three updates of 5e7 numbers,
with NumPy, as everywhere. Images are random where FDA_DATA_DIR has no FashionMNIST.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from common import RUN

SECONDS = 60
"""Of a run of one method at most."""
AT_ONCE = 8
IMAGES, SIDE, BATCH = 5000, 96, 64
PARAMETERS, LAYERS, SOURCES = 50_000_000, 50, 3


def row(what: str, value: str) -> None:
    """Print a row."""
    print(f"| {what} | {value} |", flush=True)


def write_random(folder: Path) -> None:
    """Random images and labels of Fashion-MNIST's form."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            (raw / f"{part}-{name}-ubyte").write_bytes(header + array.tobytes())


def show_round(key: str, device: str, quick: bool) -> None:
    """A task of `peers.py`: our round over a bare one, and the bare loop over itself."""
    from peers import TASKS, measure, ratio_of

    with tempfile.TemporaryDirectory() as place:
        data = os.environ.get("FDA_DATA_DIR", "")
        if not (Path(data) / "FashionMNIST" / "raw").is_dir():
            data = place
            write_random(Path(place))
        task = replace(TASKS[key], data_dir=str(Path(data).absolute()), device=device)
        if quick:
            task = replace(task, clients=5, samples=40, warm_up=1, rounds=2)
        outcomes = measure(["bare", "fda-local"], {key: task}, 1)
    bare, ours = (outcomes[name, key][0].measured for name in ("bare", "fda-local"))
    ratio, twin, seconds = ratio_of(ours), ratio_of(bare), median(ours.rounds)
    what = f"{task.network}, {task.clients} clients of {task.samples} images"
    row(
        f"{key} ({what}): round / bare round",
        f"{ratio:.2f}; bare / bare {twin:.2f}; {1000 * seconds:.0f} ms; accuracy {ours.accuracy:.3f}, "
        f"bare {bare.accuracy:.3f}",
    )


def fda(*words: str, seconds: float = SECONDS) -> dict[str, object]:
    """Run a command, and return the object that it prints; raise a `RuntimeError` if it fails."""
    command = [sys.executable, "-c", RUN, *words, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {seconds} s") from None
    if done.returncode:
        raise RuntimeError(" ".join((done.stdout + done.stderr).split())[-300:])
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def loss_of(method: str, device: str) -> float:
    """The target's loss after two rounds."""
    with tempfile.TemporaryDirectory() as place:
        words = ("--method", method, "--rounds", "2", "--device", device, "--output", f"{place}/run")
        figures = fda("run", *words)["figures"]
        assert isinstance(figures, dict)
        return float(figures["loss"])


def show_methods(device: str, quick: bool) -> None:
    """All methods once."""
    kinds = fda("list", "methods")
    methods = [name for kind, names in kinds.items() if kind != "statistics" for name in dict(names)]  # type: ignore[call-overload]
    methods = methods[::12] if quick else methods
    devices = dict.fromkeys((device, "cpu"))
    begun, differences = time.monotonic(), {}
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        runs = {name: [pool.submit(loss_of, name, each) for each in devices] for name in methods}
        for name, tasks in runs.items():
            try:
                losses = [task.result() for task in tasks]
            except RuntimeError as error:
                row(f"`{name}`", f"failed: {error}")
                continue
            differences[name] = abs(losses[-1] - losses[0])
            print(f"{name}: loss {losses[0]:.6f}", file=sys.stderr, flush=True)
    if not differences:
        raise RuntimeError("no method has run")
    far = max(differences, key=lambda name: differences[name])
    row(
        f"methods that run, of {len(methods)}",
        f"{len(differences)} in {time.monotonic() - begun:.0f} s; loss at most {differences[far]:.1e} from "
        f"the CPU's (`{far}`)",
    )


def show_features(device: str, quick: bool) -> None:
    """Features as a run computes them, and the network's passes alone."""
    import torch

    from fda_flower.datasets import DATASETS, Dataset, Samples
    from fda_flower.datasets.domains import Split
    from fda_flower.runs.config import RunConfig
    from fda_flower.runs.network import all_data, backbone_of

    count = 60 if quick else IMAGES
    rng = np.random.default_rng(0)

    def samples(number: int) -> Samples:
        x = rng.integers(0, 256, (number, 3, SIDE, SIDE), np.uint8)
        return Samples(x, np.arange(number) % 7)

    split = Split(samples(count), samples(7), 7)
    DATASETS["random-photos"] = Dataset("random photos", lambda folder, seed: split)
    config = RunConfig(
        dataset="random-photos",
        shift="noise",
        method="ridge",
        model="efficientnet-lite0+adabn",
        device=device,
    )

    def waited(function: Callable[[], object]) -> float:
        begun = time.perf_counter()
        function()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    body = backbone_of(config, (3, SIDE, SIDE), 7)
    assert body is not None
    body = body.to(device).eval()

    @torch.no_grad()
    def passes() -> None:
        for images in np.array_split(split.train.x, max(1, count // BATCH)):
            body(torch.from_numpy(images).to(device).float() / 255).cpu()

    passes()
    bare = waited(passes)
    with tempfile.TemporaryDirectory() as place:
        os.environ["FDA_CACHE_DIR"] = place
        ours = waited(partial(all_data, config))
    row(
        f"features of {count:,} images of {SIDE}x{SIDE}, efficientnet-lite0+adabn",
        f"{ours:.1f} s, {1000 * ours / count:.2f} ms each; {ours / bare:.2f} of the network's passes alone",
    )


def show_fedgp(device: str, quick: bool) -> None:
    """FedGP of many numbers; the device makes no difference."""
    from aggregation import Round, peak_memory, product_float64
    from common import seconds_of

    numbers = PARAMETERS // 100 if quick else PARAMETERS
    model = {f"layer{i}": np.zeros(numbers // LAYERS, np.float32) for i in range(LAYERS)}
    data = Round.random(model, SOURCES)
    seconds = seconds_of({"fedgp": data.aggregate, "read": lambda: data.read(product_float64)}, 3)
    memory = peak_memory(data.aggregate) / (4 * numbers)
    row(
        f"FedGP of {numbers:.0e} numbers from {SOURCES} sources",
        f"{seconds['fedgp']:.2f} s, {seconds['fedgp'] / seconds['read']:.2f} of a pass that reads all, "
        f"{memory:.2f} models of memory",
    )


PARTS: dict[str, Callable[[str, bool], None]] = {
    "A": partial(show_round, "A"),
    "B": partial(show_round, "B"),
    "methods": show_methods,
    "features": show_features,
    "fedgp": show_fedgp,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="small and few: shows that it runs")
    arguments = parser.parse_args()
    PARTS[arguments.part](arguments.device, arguments.quick)


if __name__ == "__main__":
    main()
