"""What a round costs the server with many sites and large models.

(1) Seconds and peak of temporary memory of each aggregation rule, by sites and size of the model; the sites'
updates, which every rule needs, are not counted, and beyond 100 sites they take turns in the same memory.
(2) A round of FedAvg through a real SuperLink, whose state is in memory or in SQLite on disk: seconds, CPU
seconds of the SuperLink and of the ServerApp, their peaks of memory, and the database. The sites are one
process here, without training: each has its own connection, asks for messages as often as `fda-supernode`
does, downloads the model, and sends another.
(3) How many requests for messages the SuperLink answers in a second while it has none: each SuperNode
asks every 3 seconds, and sends a heartbeat every 30.
(4) The SuperLink's CPU seconds in a round of (2) with 20 sites and a small model; with FDA_BASE in turns with
the package of another checkout; the limit is 0.6 of its CPU time.
"""

import json
import logging
import math
import os
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import tomli_w
from common import Process, cell, printed_with_base, quick_asked, show, show_machine, verdict
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supernode.fleet_http_connection import http_request_response

from fda_flower.aggregation import (
    FedGP,
    Geometry,
    Median,
    TrimmedMean,
    Update,
    combine,
    mean_update,
    source_weights,
)
from fda_flower.aggregation.joint import inner_products_of
from fda_flower.deployment import Federation
from fda_flower.deployment.submission import Connection
from fda_flower.engines import PollingGrid
from fda_flower.strategies import FedAvg
from fda_flower.supernode.command import LEAST, SHARE
from fda_flower.wire.bundles import Form
from fda_flower.wire.internals import pull_sooner, task_identity

MB = 10**6
LAYER = 2**20
"""Numbers in a layer of the models here."""
DISTINCT = 100
ROUNDS = 3
POLL_SECONDS, HEARTBEAT_SECONDS = 3, 30
MOST_OF_BASE = 0.6
FEW = """
import logging, os, sys
sys.path.insert(0, os.path.join(os.environ["PYTHONPATH"], "benchmarks"))
import scale
logging.getLogger("flwr").setLevel(logging.ERROR)
print(scale.round_of(20, 0.04, False)[scale.HEADER.index("SuperLink CPU (s)")])
"""
"""Each checkout has its own sites, as their messages differ."""


def model_of(megabytes: float) -> dict[str, Any]:
    """A model of this size, in layers."""
    numbers = round(megabytes * MB / 4)
    return {
        f"layer{i}": np.zeros(min(LAYER, numbers - start), np.float32)
        for i, start in enumerate(range(0, numbers, LAYER))
    }


def updates_of(model: dict[str, Any], sites: int) -> list[Update]:
    """The sites' updates, of random numbers."""
    draw = np.random.default_rng(0)
    distinct = [
        Update({name: draw.standard_normal(array.size, np.float32) for name, array in model.items()}, {}, 10)
        for _ in range(min(sites, DISTINCT))
    ]
    return list(islice(cycle(distinct), sites))


def fedgp(model: dict[str, Any], updates: Sequence[Update]) -> object:
    """Whole FedGP, with the first site as the target."""
    target, sources = updates[0], updates[1:]
    alphas, betas = source_weights(sources), np.full(len(sources), 0.5)
    coefficients = FedGP().coefficients(target, sources, Geometry.of(target, sources), alphas, betas)
    return combine(model, target, sources, coefficients)


Rule = Callable[[dict[str, Any], Sequence[Update]], object]
RULES: dict[str, Rule] = {
    "mean (FedAvg)": lambda model, updates: mean_update(model, updates, source_weights(updates)),
    "FedGP, FedDA": fedgp,
    "median": lambda model, updates: Median()(model, updates, source_weights(updates)),
    "trimmed mean": lambda model, updates: TrimmedMean(0.2)(model, updates, source_weights(updates)),
    "inner products (FedDA_Joint, FedOMG)": lambda model, updates: inner_products_of(updates),
}


def show_rules(cases: Sequence[tuple[int, float]]) -> None:
    """The table of (1)."""
    rows = []
    for sites, megabytes in cases:
        model = model_of(megabytes)
        updates = updates_of(model, sites)
        for name, rule in RULES.items():
            begun = time.perf_counter()
            rule(model, updates)
            seconds = time.perf_counter() - begun
            tracemalloc.start()
            result = rule(model, updates)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            del result
            per = 1e9 * seconds / sites / sum(array.size for array in model.values())
            rows.append(
                [name, f"{sites:,}", f"{megabytes:g}", f"{seconds:.2f}", f"{per:.1f}", f"{peak / MB:.1f}"]
            )
    header = ["rule", "sites", "model (MB)", "seconds", "ns a number and site", "temporary memory (MB)"]
    show("Aggregation, with the new model in the memory", header, rows)


server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run FedAvg, and write its records and this process's memory into the folder of the run's settings."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    settings: dict[str, Any] = dict(context.run_config)
    initial = ArrayRecord({name: Array(array) for name, array in model_of(settings["megabytes"]).items()})
    own, link = os.getpid(), int(settings["superlink"])
    marks = list[tuple[float, float]]()
    strategy = FedAvg(
        wait_for=settings["sites"],
        wait_seconds=600,
        query_timeout=600,
        on_round=lambda record: marks.append((usage(own)["cpu"], usage(link)["cpu"])),
    )
    strategy.start(PollingGrid(grid), initial, ROUNDS, timeout=600)
    steady = np.median(np.diff(marks, axis=0), axis=0).tolist()
    told = {"history": strategy.history, "cpu": steady, "memory": usage(own)["memory"]}
    (Path(settings["folder"]) / "told.json").write_text(json.dumps(told, default=float))


def usage(process: int) -> dict[str, float]:
    """CPU seconds so far, and peak memory in MB, of a process."""
    times = psutil.Process(process).cpu_times()
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return {"cpu": times.user + times.system, "memory": peak * 1024 / MB}


class Sites:
    """Sites in this process, each with its own connection to a SuperLink; they answer in turns."""

    def __init__(self, address: str, number: int, megabytes: float, threads: int = 2) -> None:
        self.sent = self.received = 0
        self._numbers = round(megabytes * MB / 4)
        self._over = threading.Event()
        self._stack = ExitStack()
        self._stack.enter_context(task_identity())
        pull_sooner()
        self._connections = [
            self._stack.enter_context(http_request_response(address, insecure=True)) for _ in range(number)
        ]
        shares = [range(start, number, threads) for start in range(threads)]
        self._threads = [threading.Thread(target=self._serve, args=(share,), daemon=True) for share in shares]

    def __enter__(self) -> "Sites":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def asks(self, seconds: float) -> float:
        """Requests for messages a second, from two threads, while there are none."""
        end, counts = time.perf_counter() + seconds, [0, 0]

        def ask(thread: int) -> None:
            for connection in cycle(self._connections[thread::2]):
                if time.perf_counter() > end:
                    return
                connection[1]()
                counts[thread] += 1

        threads = [threading.Thread(target=ask, args=(thread,)) for thread in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / seconds

    def _serve(self, share: Sequence[int]) -> None:
        last = dict.fromkeys(share, time.monotonic())
        due = dict(last)
        while not self._over.is_set():
            for site in [site for site in share if due[site] <= time.monotonic()]:
                if self._answer(site):
                    last[site] = time.monotonic()
                now = time.monotonic()
                due[site] = now + min(POLL_SECONDS, max(LEAST, SHARE * (now - last[site])))
            self._over.wait(0.02)

    def _answer(self, site: int) -> bool:
        _, receive, send, _, _, pull, push, confirm = self._connections[site]
        if (received := receive()) is None:
            return False
        message, tree = received
        run = message.metadata.run_id
        parts = [each.object_id for each in iterate_object_tree(tree)]
        contents = pull_objects(parts, partial(pull, run))
        pulled = sum(map(len, contents.values()))
        self.received += pulled  # the sum first: another thread adds meanwhile
        confirm(run, message.metadata.message_id)
        question: Any = inflate_object_from_contents(tree.object_id, contents)
        content = Form.of(question.content).write(self._content(site, message))
        reply = Message(content, reply_to=message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
        missing, session = send(reply, get_object_tree(reply), 0.0)
        for name in missing:
            push(run, session, name, objects[name])
            self.sent += len(objects[name])
        return True

    def _content(self, site: int, message: Message) -> RecordDict:
        kind = message.metadata.message_type
        if kind.startswith("query"):
            role = "source" if site else "target"
            return RecordDict({"info": ConfigRecord({"domain": f"{site:05}", "role": role})})
        if kind.startswith("evaluate"):
            return RecordDict({"metrics": MetricRecord({"num-examples": 10 + site, "accuracy": 0.5})})
        draw = np.random.default_rng([site, int(time.monotonic_ns())])
        moved = model_of(self._numbers * 4 / MB)
        for array in moved.values():
            array[:] = draw.random(array.size, np.float32)
        metrics = MetricRecord({"num-examples": 10, "num-steps": 2, "learning-rate": 0.1})
        arrays = ArrayRecord({name: Array(array) for name, array in moved.items()})
        return RecordDict({"arrays": arrays, "metrics": metrics})


class InMemory(Federation):
    """A federation whose SuperLink keeps its state in memory, as it does by default."""

    def _start(self, name: str, command: list[str]) -> None:
        if "--database" in command:
            place = command.index("--database")
            command = command[:place] + command[place + 2 :]
        super()._start(name, command)


@contextmanager
def superlink(folder: Path, disk: bool) -> Iterator[tuple[Federation, int]]:
    """A SuperLink without nodes, and the number of its process."""
    federation = (Federation if disk else InMemory)(folder, {}, secure=False)
    here = str(Path(__file__).parent)
    federation.environment["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    with federation:
        guard = federation._services["superlink"].process
        found = [p for p in guard.children(recursive=True) if "flower-superlink" in " ".join(p.cmdline()[:2])]
        yield federation, found[-1].pid


def run_app(federation: Federation, settings: dict[str, Any]) -> dict[str, Any]:
    """Run this file's server app to its end, and return what it told."""
    folder = Path(settings["folder"])
    app = folder / "app"
    app.mkdir()
    components = {"serverapp": "scale:server_app", "clientapp": "fda_flower.client_app:app"}
    flower = {"publisher": "fda-flower", "components": components, "config": settings}
    project = {"name": "scale", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []}
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": flower}}})
    (app / "pyproject.toml").write_text(text)
    given = folder / "settings.toml"
    given.write_text(tomli_w.dumps(settings))
    connection = Connection(federation.connection, federation.environment)
    run = connection.submit(app, given)
    told = folder / "told.json"
    while not told.exists():
        status, details = connection.status(run)
        if status.startswith("finished") and not told.exists():
            sys.exit(f"the run ended as {status} ({details}):\n{federation.logs('superlink')[-3000:]}")
        time.sleep(1)
    time.sleep(0.5)
    told_all: dict[str, Any] = json.loads(told.read_text())
    return told_all


def round_of(sites: int, megabytes: float, disk: bool) -> list[str]:
    """A row of (2)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with superlink(folder / "federation", disk) as (federation, process):
            with Sites(federation.address, sites, megabytes) as played:
                own = psutil.Process().cpu_times()
                settings = {
                    "sites": sites,
                    "megabytes": float(megabytes),
                    "folder": name,
                    "superlink": process,
                }
                told = run_app(federation, settings)
                spent = psutil.Process().cpu_times()
            peak = usage(process)["memory"]
            database = sum(path.stat().st_size for path in folder.glob("federation/state.db*"))
    assert not any(record["dropped"] or record["held"] for record in told["history"]), told["history"]
    steady = [record["seconds"] for record in told["history"][1:]]
    seconds = {part: median(each[part] for each in steady) for part in steady[0]}
    cpu_sites = (spent.user + spent.system - own.user - own.system) / ROUNDS
    return [
        f"{sites:,}",
        f"{megabytes:g}",
        "SQLite" if disk else "memory",
        f"{seconds['train']:.1f}",
        f"{seconds['aggregate']:.2f}",
        *(f"{spent:.2f}" for spent in told["cpu"]),
        f"{cpu_sites:.1f}",
        f"{played.sent / ROUNDS / MB:,.1f}",
        f"{played.received / ROUNDS / MB:,.1f}",
        f"{peak:,.0f}",
        f"{told['memory']:,.0f}",
        f"{database / MB:,.0f}",
    ]


HEADER = [
    *("sites", "model (MB)", "state", "exchange (s)", "aggregation (s)", "ServerApp CPU (s)"),
    *("SuperLink CPU (s)", "sites CPU (s)", "received (MB)", "sent (MB)"),
    *("SuperLink peak (MB)", "ServerApp peak (MB)", "database (MB)"),
]


def show_rounds(cases: Sequence[tuple[int, float]]) -> None:
    """The table of (2)."""
    rows = []
    for sites, megabytes in cases:
        for disk in (False, True):
            rows.append(round_of(sites, megabytes, disk))
            print(rows[-1], file=sys.stderr, flush=True)
    show("A round of FedAvg through a SuperLink", HEADER, rows)


def show_asks(seconds: float) -> None:
    """The table of (3)."""
    rows = []
    for disk in (False, True):
        with tempfile.TemporaryDirectory() as name, superlink(Path(name) / "federation", disk) as (link, _):
            rate = Sites(link.address, 10, 0.04).asks(seconds)
        load = 1 / POLL_SECONDS + 1 / HEARTBEAT_SECONDS
        rows.append(["SQLite" if disk else "memory", f"{rate:.0f}", f"{math.floor(rate / load):,}"])
    show("Requests for messages", ["state", "answered a second", "SuperNodes at most"], rows)


def show_few(repeats: int) -> None:
    """The table of (4)."""
    (before, now) = printed_with_base({"few": Process(("-c", FEW))}, repeats)["few"]
    ratio = "not measured" if before is None else verdict(now / before, MOST_OF_BASE)
    header = ["CPU seconds a round", "base", "now", "now / base"]
    show("20 sites, 0.04 MB", header, [["SuperLink", cell(before), f"{now:.2f}", ratio]])


def main() -> None:
    quick = quick_asked(__doc__)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    show_machine()
    if quick:
        show_rules([(10, 0.04)])
        show_rounds([(10, 0.04)])
        show_asks(2)
        return
    show_rules([(10, 17), (100, 17), (1000, 17), (1000, 0.04), (10_000, 0.04)])
    show_asks(10)
    show_few(2)
    show_rounds([(10, 0.04), (100, 0.04), (1000, 0.04), (10, 17), (100, 17), (10, 400)])


if __name__ == "__main__":
    main()
