"""Ray, really run: on a cluster of two nodes or started here, with the same bits as in this process."""

import os
import shutil
import signal
import socket
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import psutil
import pytest
from asking import app_of, asked, counting, echoing, send_arrays
from engine_settings import FROZEN, with_batch_norm
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from handmade import A, B, HandMade, T, initial
from naming import names
from waiting import until
from whole_runs import check_same, untimed

from fda_flower import RunConfig, run
from fda_flower.client_app import make_client_app
from fda_flower.deployment.guard import is_alive
from fda_flower.engines import Folders, Resources, run_ray
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import versions
from fda_flower.runs.methods import METHODS
from fda_flower.server_app import run_server
from fda_flower.strategies import FedAvg

pytest.importorskip("ray")

import ray

from fda_flower.engines.ray import find_cluster, room_for

SETTINGS: dict[str, Any] = {"rounds": 3, "seed": 3, "device": "cpu"}
FAST = {"fedgp-auto", "ridge", "kd3a", "with noise", "with statistics", "every second round", "frozen"}
"""What `make test-ci` runs: a method of each kind of message and of state."""


class Labelled:
    """A grid whose messages say which of several runs they belong to."""

    def __init__(self, grid, label):
        self._grid, self._label = grid, label

    def __getattr__(self, name):
        return getattr(self._grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            message.content["run"] = ConfigRecord({"label": self._label})
        return self._grid.send_and_receive(messages, timeout=timeout)


def clients_of(configs):
    """The client apps of several runs, one after the other, as one."""

    class Clients(ClientApp):
        def __init__(self):
            super().__init__()
            self._label, self._app = "", ClientApp()

        def __call__(self, message, context):
            label = message.content.pop("run")["label"]
            if label != self._label:
                self._label, self._app = label, make_client_app(configs[label])
            if context.state.pop("run", {}).get("label") != label:
                context.state.clear()
            context.state["run"] = ConfigRecord({"label": label})
            return self._app(message, context)

    return Clients()


def check_same_on_ray(chosen):
    """Check that runs have the same bits on Ray; one simulation has all, since it takes seconds to start."""
    configs = {name: RunConfig(**each) for name, each in chosen.items()}
    found = {}

    def server(grid):
        for name, config in configs.items():
            result, history = run_server(cast(Grid, Labelled(grid, name)), config)
            found[name] = {key: array.numpy().tobytes() for key, array in result.arrays.items()}, history

    run_ray(server, lambda: clients_of(configs), 3, Resources(workers=2))
    for name, each in chosen.items():
        local = run(**each)
        model, history = found[name]
        assert model == {key: array.tobytes() for key, array in local.model.items()}, name
        assert untimed(history) == untimed(local.history), name


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Start Ray here, unless a test joins a cluster."""
    monkeypatch.setenv("RAY_ADDRESS", "local")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("fast", [pytest.param(True, marks=pytest.mark.smoke), False])
def test_every_method_has_the_same_bits_as_in_this_process(fast, tmp_path, cache):
    settings = {**SETTINGS, "rounds": 2, "target_samples": 16}
    small = {**settings, "model": "mlp", "sources": 2, "source_samples": 40, "test_samples": 40}
    images = {**settings, **with_batch_norm(tmp_path / "data")}
    every = {
        name: {**(images if "batch-norm" in method.needs else small), "method": name}
        | ({"model": "logistic"} if "frozen body" in method.needs else {})
        for name, method in METHODS.items()
    }
    every |= {
        # What noise has cost, statistics that a target adapts, and models that clients keep for later.
        "with noise": {**small, "method": "fedda", "model": "logistic", "dp_clip": 1.0, "dp_noise": 0.5},
        "with statistics": {**images, "method": "fedavg", "buffers": "adabn"},
        "drawn sources": {**small, "method": "fedgp-auto", "method_options": {"fraction_train": 0.5}},
        "every second round": {**small, "method": "mixture", "method_options": {"every": 2}},
        "frozen": {**settings, **FROZEN["frozen, fedbn"]},
    }
    check_same_on_ray({name: each for name, each in every.items() if (name in FAST) == fast})


@pytest.mark.slow
def test_every_method_has_the_same_bits_with_a_frozen_body(cache):
    check_same_on_ray({name: {**SETTINGS, "rounds": 2, **each} for name, each in FROZEN.items()})


# A cluster of two nodes


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """The folder in which the clients' node works, with its temporary files."""
    return tmp_path_factory.mktemp("away")


@pytest.fixture(scope="module")
def nodes(away):
    """The address of two nodes: the server's, without a core for clients, and theirs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(away))
        patch.chdir(away)
        cluster.add_node(num_cpus=2)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def cluster(nodes, monkeypatch):
    """Have a run join the cluster."""
    monkeypatch.setenv("RAY_ADDRESS", nodes)


def files_in(folder):
    """The models and the clients' files in a run's folder, and their bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    kept = {path.relative_to(folder): path.read_bytes() for path in paths}
    return {path: data for path, data in kept.items() if path.parts[0] == "clients" or "model" in path.name}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedavg", "model": "mlp"},
        {"method": "ditto", "model": "mlp"},
        {"method": "ridge", "target": "all", "target_samples": 30},
        {"method": "ridge", "method_options": {"secure": True}},
        {"method": "fedda", "model": "logistic", "dp_clip": 1.0, "dp_noise": 0.5},
    ],
    ids=str,
)
def test_a_run_on_two_nodes_has_the_same_bits_and_files(cluster, settings, tmp_path):
    settings = {**SETTINGS, "shift": "rotate", **settings}
    there = run(engine="ray", workers=2, output=tmp_path / "there", **settings)
    check_same(there, run(**settings, output=tmp_path / "here"))
    found = files_in(tmp_path / "there")
    assert found == files_in(tmp_path / "here")
    assert len(found) >= 2
    resumed = {**settings, "rounds": 4, "resume": True}
    check_same(
        run(engine="ray", output=tmp_path / "there", **resumed), run(output=tmp_path / "here", **resumed)
    )


@pytest.mark.slow
def test_more_than_a_cluster_has_is_refused_at_once(cluster, tmp_path):
    begun = time.monotonic()
    with pytest.raises(ConfigError, check=names("workers", 3)):
        run(engine="ray", output=tmp_path / "run", **SETTINGS, workers=3)
    assert time.monotonic() - begun < 10
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_process_that_is_killed_costs_one_reply(cluster):
    def dies(model, message):
        if message.content["config"]["server-round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return B[2](model, message)

    clients = [T, A, ("source", "b", dies)]
    strategy = FedAvg()

    def server(grid):
        strategy.start(grid, initial(), 4)

    run_ray(server, lambda: HandMade(clients).app, 3, Resources())
    dropped = [[each["domain"] for each in record["dropped"]] for record in strategy.history]
    assert dropped == [[], ["b"], [], []]
    assert "its process has died" in strategy.history[1]["dropped"][0]["reason"]
    assert [record["held"] for record in strategy.history] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("left", [1, 0])
def test_a_node_that_is_lost_costs_the_replies_of_its_processes_or_the_run(left, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setattr("fda_flower.engines.ray.PATIENCE", 2.0)
    cluster = Cluster(True, head_node_args={"num_cpus": left, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)

    def server(grid):
        nodes = list(grid.get_node_ids())
        until(lambda: len(processes_of(asked(grid, nodes * 2))) == 1 + left)
        cluster.remove_node(other, allow_graceful=False)
        replies: list[Message] = []

        def are_fewer():
            found = asked(grid, nodes)
            replies.extend(found)
            return len(processes_of(found)) == left

        until(are_fewer)
        lost = [reply.error.reason or "" for reply in replies if reply.has_error()]
        assert len(lost) <= 1
        assert all("its process has died" in reason for reason in lost)

    ends = nullcontext() if left else pytest.raises(RunError, check=names("threads", 1))
    try:
        with ends:
            run_ray(server, counting, 3, Resources())
    finally:
        cluster.shutdown()


# The grid


def processes_of(replies):
    """The processes in which clients have answered."""
    return {reply.content["seen"]["process"] for reply in replies if reply.has_content()}


@pytest.mark.slow
def test_clients_files_are_here_and_at_work_elsewhere(cluster, away, tmp_path):
    @app_of
    def app(message, context):
        folder = Path(context.run_config["output"])
        own = folder / f"client-{context.node_config['partition-id']}" / "own"
        count = 1 + (int(own.read_text()) if own.exists() else 0)
        own.parent.mkdir(exist_ok=True)
        own.write_text(str(count))
        (folder / "model").write_text("a model")
        seen: dict[str, Any] = {"folder": str(folder), "names": sorted(os.listdir(folder))}
        return Message(RecordDict({"seen": ConfigRecord(seen)}), reply_to=message)

    def server(grid):
        for _ in range(2):
            replies = asked(grid, list(grid.get_node_ids()))
        for i, reply in enumerate(replies):
            assert Path(reply.content["seen"]["folder"]).parent == away
            assert reply.content["seen"]["names"] == [f"client-{i}", "model"]

    folders = Folders(tmp_path, [Path(f"client-{i}") for i in range(3)])
    run_ray(server, lambda: app, 3, Resources(), folders)
    assert [(tmp_path / folder / "own").read_text() for folder in folders.clients] == ["2"] * 3
    assert (tmp_path / "model").read_text() == "a model"
    assert not list(away.glob("fda-*"))


@pytest.mark.slow
def test_the_target_has_a_share_of_a_gpu_of_its_own(monkeypatch):
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 3, "num_gpus": 2, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)

    def server(grid):
        nodes = list(grid.get_node_ids())
        until(lambda: ray.available_resources().get("CPU", 0) == 0)
        assert ray.available_resources()["GPU"] == pytest.approx(0.5), (
            "1 for the target, 0.25 for each of two"
        )
        target, *sources = (processes_of(asked(grid, [node] * 4)) for node in (nodes[1], nodes[0], nodes[2]))
        assert len(target) == 1
        assert not target & set().union(*sources)

    try:
        run_ray(server, counting, 3, Resources(gpus_per_client=0.25, gpus_for_target=1, target_number=1))
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_what_a_grid_sends_arrives_and_what_fails_is_an_error_reply(cluster):
    def server(grid):
        nodes = list(grid.get_node_ids())
        order = [*reversed(nodes), *nodes]
        replies = asked(grid, order)
        assert [reply.metadata.src_node_id for reply in replies] == order
        assert [reply.content["seen"]["n"] for reply in replies] == [1] * 5 + [2] * 5, "state is kept"
        assert os.getpid() not in processes_of(replies)
        for node, what, says in ((2, {"fail": True}, "my data are gone"), (99, {}, "no such node")):
            (reply,) = asked(grid, [node], **what)
            assert says in reply.error.reason
        (reply,) = asked(grid, [3], strange=True)
        assert "its reply cannot be sent" in reply.error.reason
        (reply,) = asked(grid, [4])
        assert reply.content["seen"]["n"] == 3

    run_ray(server, counting, 5, Resources())


@pytest.mark.slow
def test_a_machine_with_other_versions_ends_the_run(cluster, monkeypatch):
    theirs = versions()
    monkeypatch.setattr("fda_flower.engines.ray.versions", lambda: theirs | {"torch": "0.1"})
    with pytest.raises(RunError, check=names("torch", theirs["torch"])):
        run_ray(lambda grid: asked(grid, [2]), counting, 3, Resources())


@pytest.mark.slow
def test_arrays_of_any_kind_arrive_as_they_are(cluster):
    run_ray(send_arrays, echoing, 2, Resources())


@pytest.mark.slow
def test_an_app_that_no_process_can_load_ends_the_run(cluster):
    class Lost(ClientApp):
        def __reduce__(self):
            return __import__, ("a_module_that_is_not_there",)

    with pytest.raises(RunError, match="a_module_that_is_not_there", check=names("ray")):
        run_ray(lambda grid: asked(grid, [2]), Lost, 3, Resources())


def children():
    """The living processes that this one has started."""
    return {child.pid for child in psutil.Process().children(recursive=True) if is_alive(child)}


@pytest.mark.slow
def test_ray_that_a_run_starts_ends_with_it_and_leaves_no_folder(monkeypatch):
    place = Path(mkdtemp())  # pytest's own has too long a name for Ray's sockets
    monkeypatch.setenv("RAY_TMPDIR", str(place))
    handler, processes = signal.getsignal(signal.SIGTERM), children()

    def server(grid):
        assert len(children() - processes) > 2
        assert list(place.glob("ray/session_2*"))
        assert signal.getsignal(signal.SIGTERM) is handler
        os.kill(os.getpid(), signal.SIGALRM)
        threading.Event().wait(5)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_ray(server, counting, 3, Resources(workers=1))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert children() == processes
    assert not list(place.glob("ray/session_2*"))
    shutil.rmtree(place)


# What a cluster has


@pytest.mark.parametrize(
    ("resources", "room"),
    [
        (Resources(), {0: 6}),
        (Resources(workers=4), {0: 4}),
        (Resources(threads=2), {0: 3}),
        (Resources(gpus_per_client=0.5), {0.5: 2}),
        (Resources(gpus_per_client=0.25, threads=2), {0.25: 2}),
        (Resources(threads=4), {0: 1}),
        (Resources(gpus_per_client=0.25, gpus_for_target=0.5, target_number=1), {0.5: 1, 0.25: 2}),
        (Resources(gpus_for_target=1, target_number=1), {1: 1, 0: 5}),
        (Resources(gpus_for_target=1, target_number=1, workers=3), {1: 1, 0: 2}),
        (Resources(gpus_per_client=0.5, gpus_for_target=0, target_number=1), {0: 1, 0.5: 2}),
        (Resources(gpus_per_client=0.5, gpus_for_target=0.5, target_number=1), {0.5: 2}),
    ],
)
def test_there_is_room_for_as_many_processes_as_fit_each_machine(machines, resources, room):
    assert room_for(resources) == room


@pytest.fixture
def machines(monkeypatch):
    """A cluster of three machines, of which one is gone."""
    has = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}, {"CPU": 64.0, "GPU": 8.0}]
    known = [{"Alive": i < 2, "Resources": each} for i, each in enumerate(has)]
    monkeypatch.setattr(ray, "nodes", lambda: known)


@pytest.mark.parametrize(
    ("resources", "thing", "value"),
    [
        (Resources(threads=5), "threads", 5),
        (Resources(workers=7), "workers", 7),
        (Resources(workers=3, gpus_per_client=0.5), "workers", 3),
        (Resources(gpus_per_client=2), "gpus-per-client", 2),
        (Resources(gpus_per_client=1.5), "gpus-per-client", 1.5),
        (Resources(gpus_for_target=2, target_number=1), "gpus-for-target", 2),
        (Resources(gpus_for_target=1.5, target_number=1), "gpus-for-target", 1.5),
        (Resources(gpus_per_client=0.5, gpus_for_target=1, target_number=1), "gpus-for-target", 1),
        (Resources(gpus_for_target=1, target_number=1, workers=1), "workers", 1),
    ],
)
def test_more_than_a_machine_has_is_refused(machines, resources, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        room_for(resources)


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:10001", "nowhere"])
def test_a_cluster_that_does_not_answer_is_named(address, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = address.format(port=taken.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, check=names("RAY_ADDRESS", address)):
            find_cluster()


def test_ray_starts_here_if_it_is_told_to():
    assert find_cluster() is None
