"""A run through Ray beside Flower's own app of the same FedAvg: its beginning, its rounds and its memory.

LeNet and Adam on Fashion-MNIST, 10 clients of 600 images, batches of 32, each round's model evaluated on the
10,000 test images: `fda run --engine ray`, and a Flower app as its tutorials write one, which reads the
images in each actor and evaluates on the server. Each run is a process of its own, in turns; its memory is
the most that it and all of Ray's processes held together, where pages that several share count once
(proportional set size). The CPU time until the first round depends less on what else the machine does.

    FDA_DATA_DIR=~/data python benchmarks/simulation.py [--quick]

The folder holds ``FashionMNIST/raw`` as torchvision downloads it, with the files unpacked. Linux only.
"""

import os
import re
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil
from common import MIB, quick_asked, show, show_machine

CLIENTS, IMAGES, BATCH, RATE, WORKERS = 10, 600, 32, 0.001, 2

FDA = """
import os, time
from fda_flower import run

def on_round(record):
    assert not record["dropped"] and not record["missing"], record
    print("ROUND", record["round"], time.time(), flush=True)

def main():
    run(engine="ray", workers={workers}, dataset="fashion-mnist", shift="noise", shift_options={{"std": 0}},
        data_dir=os.environ["FDA_DATA_DIR"], sources={sources}, source_samples={images},
        target_samples={images}, batch_size={batch}, target_batch_size={batch}, learning_rate={rate},
        model="lenet", method="fedavg", rounds={rounds}, device="cpu", on_round=on_round)
"""

FLOWER = """
import os, time
from functools import lru_cache
import torch
from flwr.app import ArrayRecord, MetricRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.datasets import FashionMNIST
from torchvision.transforms import ToTensor

def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10))

@lru_cache
def images(train):
    data = FashionMNIST(os.environ["FDA_DATA_DIR"], train=train)
    return data.data[:, None].float() / 255, data.targets

def make_apps():
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        torch.set_num_threads(1)
        model = lenet()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = images(True)
        first = context.node_config["partition-id"] * {images}
        x, y = x[first:first + {images}], y[first:first + {images}]
        optimizer = torch.optim.Adam(model.parameters(), {rate}, fused=True)
        for part in torch.randperm({images}).split({batch}):
            optimizer.zero_grad()
            cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        content = RecordDict({{"arrays": ArrayRecord(model.state_dict()),
                               "metrics": MetricRecord({{"num-examples": {images}}})}})
        return Message(content, reply_to=message)

    def evaluate(round, arrays):
        torch.set_num_threads(1)
        model = lenet()
        model.load_state_dict(arrays.to_torch_state_dict())
        x, y = images(False)
        with torch.no_grad():
            right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(256), y.split(256)))
        if round:
            print("ROUND", round, time.time(), flush=True)
        return MetricRecord({{"accuracy": right / len(y)}})

    @server.main()
    def main(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid, ArrayRecord(lenet().state_dict()), num_rounds={rounds}, evaluate_fn=evaluate)

    return server, client

def main():
    server, client = make_apps()
    run_simulation(server, client, {clients}, backend_config={{
        "client_resources": {{"num_cpus": 1, "num_gpus": 0.0}}, "init_args": {{"num_cpus": {workers}}}}})
"""

FAILED = re.compile(r"[1-9][0-9]* failures")
"""What Flower's strategies say of a round in which clients have failed; the run goes on."""


def measured(code: str) -> dict[str, float]:
    """Call a module's `main` in a new process and watch it and its children: seconds, CPU seconds, and MiB.

    Ray's processes import the module, as they do that of an app which is installed, and so keep its caches.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        Path(folder, "measured_app.py").write_text(code, encoding="utf-8")
        begun, most, used = time.time(), 0.0, [(0.0, 0.0)]
        process = psutil.Popen(
            [sys.executable, "-c", "from measured_app import main; main()"],
            stdout=output,
            stderr=output,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": folder},
        )
        while process.poll() is None:
            held = cpu = 0.0
            for each in [process, *process.children(recursive=True)]:
                try:
                    held += each.memory_full_info().pss
                    cpu += sum(each.cpu_times()[:2])
                except psutil.Error:
                    pass
            most = max(most, held)
            used.append((time.time(), cpu))
            time.sleep(0.25)
        ended = time.time()
        output.seek(0)
        text = output.read()

    def spent(when: float) -> float:
        return max(cpu for then, cpu in used if then <= when)

    rounds = [float(line.split()[2]) for line in text.splitlines() if line.startswith("ROUND")]
    if process.returncode or len(rounds) < 4 or FAILED.search(text):
        raise SystemExit(text)
    return {
        "first round (s)": rounds[0] - begun,
        "CPU until then (s)": spent(rounds[0]),
        "CPU of a round (s)": (spent(rounds[-1]) - spent(rounds[2])) / (len(rounds) - 3),
        "a round (s)": median(later - before for before, later in pairwise(rounds[2:])),
        "end (s)": ended - rounds[-1],
        "memory (MiB)": most / MIB,
    }


def main() -> None:
    quick = quick_asked(__doc__)
    values = {
        "clients": CLIENTS,
        "sources": CLIENTS - 1,
        "images": IMAGES,
        "batch": BATCH,
        "rate": RATE,
        "workers": WORKERS,
        "rounds": 6 if quick else 13,
    }
    found: dict[str, list[dict[str, float]]] = {"Flower's own app": [], "fda, engine ray": []}
    for _ in range(1 if quick else 3):
        for name, code in zip(found, (FLOWER, FDA), strict=True):
            found[name].append(measured(code.format(**values)))
            print(name, found[name][-1], file=sys.stderr, flush=True)
    show_machine()
    columns = list(found["fda, engine ray"][0])
    rows = [
        [name, *(f"{median(run[c] for run in runs):.2f}" for c in columns)] for name, runs in found.items()
    ]
    show("FedAvg through Ray, medians", ["app", *columns], rows)


if __name__ == "__main__":
    main()
