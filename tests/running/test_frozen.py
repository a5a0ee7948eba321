"""Runs of a network with a frozen body: its head alone travels, and all else stays to the bit."""

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from naming import names
from safetensors.numpy import load as load_arrays
from torch import nn
from whole_runs import same_bits, untimed

from fda_flower import RunConfig, run
from fda_flower.clients import DomainClient
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import DESCRIPTION, MODEL
from fda_flower.prediction.model import load
from fda_flower.runs.model_folder import write_global_model
from fda_flower.runs.network import make_model
from fda_flower.wire.protocol import FROZEN

NETWORK = """
from torch import nn

class Net(nn.Module):
    def __init__(self, pixels, classes):
        super().__init__()
        layers = [nn.Flatten(), nn.Linear(pixels, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2)]
        self.body = nn.Sequential(*layers).requires_grad_(False)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.body(x))

def net(shape, classes):
    return Net(shape[0] * shape[1] * shape[2], classes)
"""
SETTINGS: dict[str, Any] = {
    **{"shift": "rotate", "sources": 2, "device": "cpu", "seed": 3, "rounds": 3, "model": "frozen_net:net"},
    **{"target_samples": 20, "source_samples": 30, "test_samples": 50},
}
HEAD = ["head.weight", "head.bias"]
HEAD_BYTES = (32 * 10 + 10) * 4


@pytest.fixture(autouse=True)
def _network(tmp_path, monkeypatch):
    (tmp_path / "frozen_net.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))


def first(settings=SETTINGS):
    model = make_model(RunConfig(**settings), (1, 8, 8), 10)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def test_the_head_alone_travels_and_the_model_file_has_all_of_it(tmp_path, monkeypatch):
    sent, train = [], DomainClient.local_train

    def spy(self, request):
        reply = train(self, request)
        answered = reply.content(list(request.arrays))["arrays"]
        sent.append([record.count_bytes() for record in (request.arrays, answered)])
        return reply

    monkeypatch.setattr(DomainClient, "local_train", spy)
    result = run(**SETTINGS, method="fedavg", output=tmp_path / "run")
    assert list(result.model) == HEAD
    assert len(sent) == 9
    frame = 300  # of NumPy's format and the names of two arrays
    assert all(HEAD_BYTES < size < HEAD_BYTES + frame for sizes in sent for size in sizes)
    whole, before = load(tmp_path / "run", trust=True), first()
    found = {name: tensor.numpy() for name, tensor in whole.module.state_dict().items()}
    for name, array in before.items():
        assert (found[name].tobytes() == array.tobytes()) == name.startswith("body."), name


@pytest.mark.parametrize("method", ["fedavg", "apfl", "mixture", "central:erm"])
def test_a_run_that_is_resumed_has_the_bits_of_one_go(method, tmp_path):
    settings = {**SETTINGS, "method": method}
    whole = run(**settings, output=tmp_path / "whole")
    run(**{**settings, "rounds": 2}, output=tmp_path / "run")
    resumed = run(**settings, output=tmp_path / "run", resume=True)
    assert untimed(resumed.history)[-1] == untimed(whole.history)[-1]
    assert same_bits(resumed.model, whole.model)
    for name in (MODEL, DESCRIPTION):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    arrays = load_arrays((tmp_path / "whole" / MODEL).read_bytes())
    frozen = [name for name in arrays if "body.0" in name or "body.2.running_mean" in name]
    assert len(frozen) == 1, "once, however many networks predict"


def test_privacys_noise_is_on_what_travels_alone(tmp_path):
    settings = {**SETTINGS, "rounds": 1, "dp_clip": 1.0, "dp_noise": 50.0}
    result = run(**settings, method="fedavg", output=tmp_path / "run")
    assert list(result.model) == HEAD
    before, whole = first(), load(tmp_path / "run", trust=True).module.state_dict()
    changes = {name: whole[name].numpy() - array for name, array in before.items()}
    assert [name for name, change in changes.items() if change.any()] == HEAD
    added = np.concatenate([changes[name].ravel() for name in HEAD])
    shares = np.array([20, 30, 30]) / 80  # of the samples; two updates differ by at most 2 times the clip
    assert added.std() == pytest.approx(2 * 50 * np.sqrt((shares**2).sum()), rel=0.15)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("target", "'source-1' and 'target' do not have the same frozen weights"),
        ("", "frozen weights of the network 'frozen_net:net' differ between nodes and server"),
    ],
    ids=["one site", "all sites"],
)
def test_a_body_that_is_not_the_same_everywhere_is_named(where, named, monkeypatch):
    told = DomainClient.get_properties

    def another(self, config):
        more = {FROZEN: "another"} if where in self.domain.name else {}
        return {**told(self, config), **more}

    monkeypatch.setattr(DomainClient, "get_properties", another)
    with pytest.raises(RunError, match=named):
        run(**SETTINGS, method="fedavg")


def test_the_servers_own_model_file_has_all_of_it_too(tmp_path):
    run(**SETTINGS, method="fedavg", output=tmp_path / "run")
    expected = load(tmp_path / "run", trust=True).predict(np.zeros((1, 1, 8, 8)))
    for name in (MODEL, DESCRIPTION):
        (tmp_path / "run" / name).unlink()
    write_global_model(tmp_path / "run", RunConfig(**SETTINGS, method="fedavg"))
    found = load(tmp_path / "run", trust=True)
    assert found.about.holder == "server"
    assert found.predict(np.zeros((1, 1, 8, 8))) == expected


LAST = """
import torch
from torch import nn

def net(shape, classes):
    body = [nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8)]
    network = nn.Sequential(*body, nn.Linear(8, classes)).to(memory_format=torch.channels_last)
    network[4].weight = nn.Parameter(network[4].weight.detach().T.contiguous().T)
    return network
"""


@pytest.mark.parametrize("train", ["all", "head"])
def test_a_network_whose_numbers_lie_in_another_order_is_stored_as_it_is(tmp_path, train):
    (tmp_path / "last_net.py").write_text(LAST)
    settings = {**SETTINGS, "model": "last_net:net", "method": "apfl", "train": train, "rounds": 2}
    whole = run(**settings, output=tmp_path / "whole")
    run(**{**settings, "rounds": 1}, output=tmp_path / "run")
    assert same_bits(run(**settings, output=tmp_path / "run", resume=True).model, whole.model)
    x = np.random.default_rng(0).random((4, 1, 8, 8)).astype(np.float32)
    found = [load(tmp_path / name, trust=True).predict_proba(x) for name in ("run", "whole")]
    assert np.array_equal(found[0], found[1])


SHOWN = """
from torch import nn

ACT = nn.ReLU

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), ACT(), nn.Linear(8, classes))
"""


@pytest.mark.parametrize("method", ["fedavg", "central:erm"])
def test_a_network_whose_code_has_changed_is_neither_resumed_nor_used(tmp_path, monkeypatch, method):
    (tmp_path / "shown_net.py").write_text(SHOWN)
    settings, output = {**SETTINGS, "method": method, "model": "shown_net:net"}, tmp_path / "run"
    run(**{**settings, "rounds": 1}, output=output)
    monkeypatch.setattr(sys.modules["shown_net"], "ACT", nn.Tanh)
    for use in (partial(run, **settings, output=output, resume=True), partial(load, output, trust=True)):
        with pytest.raises(ConfigError, check=names("model", "shown_net:net", "restore its code")):
            use()
