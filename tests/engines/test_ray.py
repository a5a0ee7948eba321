"""Flower's Ray simulation, really run: the same bits as in this process."""

import os
import pickle
from typing import Any, cast

import pytest
from engine_settings import FROZEN, PATH, with_batch_norm
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from whole_runs import check_same, untimed

from fda_flower import RunConfig, run
from fda_flower.client_app import make_client_app
from fda_flower.datasets.federation import load_federation, write_shared
from fda_flower.engines import Resources, run_ray
from fda_flower.errors import RunError
from fda_flower.runs.methods import METHODS
from fda_flower.server_app import run_server
from fda_flower.wire.internals import numbered, task_identity

pytest.importorskip("ray")

from fda_flower.engines.ray import PickledOnce

SETTINGS: dict[str, Any] = {"rounds": 3, "seed": 3, "device": "cpu"}


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

    run_ray(server, clients_of(configs), 3, Resources(workers=2))
    for name, each in chosen.items():
        local = run(**each)
        model, history = found[name]
        assert model == {key: array.tobytes() for key, array in local.model.items()}, name
        assert untimed(history) == untimed(local.history), name


@pytest.fixture
def blocks_net(tmp_path, monkeypatch):
    """Have Ray's processes find the network of `FROZEN`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([PATH, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.smoke
def test_every_method_has_the_same_bits_as_in_this_process(tmp_path, blocks_net):
    settings = {**SETTINGS, "rounds": 2, "target_samples": 16}
    small = {**settings, "model": "mlp", "sources": 2, "source_samples": 40, "test_samples": 40}
    images = {**settings, **with_batch_norm(tmp_path / "data")}
    chosen = {
        name: {**(images if "batch-norm" in method.needs else small), "method": name}
        | ({"model": "logistic"} if "frozen body" in method.needs else {})
        for name, method in METHODS.items()
    }
    chosen |= {
        # What noise has cost, statistics that a target adapts, and models that clients keep for later.
        "with noise": {**small, "method": "fedda", "model": "logistic", "dp_clip": 1.0, "dp_noise": 0.5},
        "with statistics": {**images, "method": "fedavg", "buffers": "adabn"},
        "every second round": {**small, "method": "mixture", "method_options": {"every": 2}},
        "frozen": {**settings, **FROZEN["frozen, fedbn"]},
    }
    check_same_on_ray(chosen)


@pytest.mark.slow
def test_every_method_has_the_same_bits_with_a_frozen_body(blocks_net):
    check_same_on_ray({name: {**SETTINGS, "rounds": 2, **each} for name, each in FROZEN.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "mlp", "method": "fedavg"},
        {"method": "ridge", "target": "all", "target_samples": 30},
        {"method": "ridge", "method_options": {"secure": True}},
    ],
    ids=str,
)
def test_a_run_of_ray_has_the_same_bits_and_a_folder(settings, tmp_path):
    settings = {**SETTINGS, "shift": "rotate", **settings}
    check_same(
        run(engine="ray", workers=2, output=tmp_path / "run", **settings),
        run(**settings, output=tmp_path / "local"),
    )
    assert (tmp_path / "run" / "summary.json").exists()
    heads = [sorted((tmp_path / name).glob("clients/*/model.safetensors")) for name in ("run", "local")]
    assert [path.read_bytes() for path in heads[0]] == [path.read_bytes() for path in heads[1]]
    assert len(heads[0]) == (4 if settings.get("target") == "all" else 0)


@pytest.mark.slow
def test_a_run_that_fails_on_ray_raises(tmp_path, monkeypatch):
    from fda_flower.strategies import base

    def fails(self, *args, **kwargs):
        raise RunError("no node wants to")

    monkeypatch.setattr(base.DomainAdaptationStrategy, "configure_train", fails)
    with pytest.raises(RunError, match="no node wants to"):
        run(engine="ray", workers=1, **SETTINGS)


def test_a_process_builds_the_app_once_and_the_app_holds_no_data(tmp_path):
    config = RunConfig(model="mlp", target_samples=12, device="cpu", seed=7)
    write_shared(load_federation(config.data), tmp_path / "data.pt")
    pickled = pickle.dumps(PickledOnce(make_client_app(config, data=tmp_path / "data.pt")))
    assert len(pickled) < (tmp_path / "data.pt").stat().st_size / 10
    app = pickle.loads(pickled)
    assert pickle.loads(pickled) is app
    node: dict[str, Any] = {"partition-id": 3, "num-partitions": 4}
    context = Context(run_id=1, node_id=2, node_config=node, state=RecordDict(), run_config={})
    with task_identity():
        (message,) = numbered([Message(RecordDict(), 2, "query.role")])
        info = app(message, context).content["info"]
    assert (info["role"], info["examples"]) == ("target", 12)
