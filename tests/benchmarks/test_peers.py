"""The bare loop that benchmarks/peers.py compares frameworks with does the work of a run."""

import gzip
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fda_flower.datasets import load_federation
from fda_flower.running.run import run_config
from fda_flower.runs.network import make_model

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Import a module of the benchmarks, as the script does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.split(".")[0] in ("common", "frameworks", "peers")]:
        del sys.modules[name]


def tensors(samples):
    return torch.from_numpy(samples.x), torch.from_numpy(samples.y)


def test_a_run_and_the_bare_loop_reach_the_same_model(load, monkeypatch):
    """On data that need no files."""
    samples, rounds = 40, 3
    task = load("frameworks.task").Task("mlp", 3, samples, "unused", 1, rounds - 1)
    config = replace(load("frameworks.fda").config_of(task), dataset="digits", data_dir=None)
    federation = load_federation(config.data)
    orders, draw = [], torch.randperm

    def order(count, generator):
        orders.append(draw(count, generator=generator))
        return orders[-1]

    with monkeypatch.context() as patched:
        patched.setattr(torch, "randperm", order)
        result = run_config(config)
    taken = iter(orders)
    loop = load("frameworks.bare").BareLoop(
        make_model(config, federation.shape, federation.classes),
        [tensors(domain.train) for domain in federation.domains.values()],
        tensors(federation.domains[federation.target].test),
        order=lambda _: next(taken),
    )
    accuracies = [100 * loop.round() for _ in range(rounds)]
    assert loop.steps == len(orders) * samples / load("frameworks.task").BATCH_SIZE
    assert next(taken, None) is None
    assert accuracies == pytest.approx(result.accuracies)
    assert accuracies[-1] > accuracies[0]
    for name, weight in loop.model.state_dict().items():
        assert weight.numpy() == pytest.approx(result.model[name], abs=1e-6)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_torchvisions_layout_are_read(load, tmp_path, suffix):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.arange(4 * 784).astype(np.uint8)
    labels = np.array([9, 0, 3, 7], np.uint8)
    for name, header, content in (("images-idx3", 16, images), ("labels-idx1", 8, labels)):
        file = bytes(header) + content.tobytes()
        path = raw / f"train-{name}-ubyte{suffix}"
        path.write_bytes(gzip.compress(file) if suffix else file)
    task = load("frameworks.task").Task("mlp", 2, 2, str(tmp_path), 1, 1)
    clients = task.client_data()
    x, y = (torch.cat(part) for part in zip(*clients, strict=True))
    assert [len(labels) for _, labels in clients] == [2, 2]
    assert sorted(y.tolist()) == [0, 3, 7, 9]
    first = x[y.tolist().index(9)]
    assert torch.equal(first, torch.from_numpy(images[:784].reshape(1, 28, 28)).float() / 255)
    assert task.model()(x).shape == (4, 10)


def test_warm_up_and_the_loop_count_for_no_round(load, tmp_path):
    now = [100.0]

    class Loop:
        def round(self):
            now[0] += 2.0

    def make():
        now[0] += 50.0
        return Loop()

    pairing = load("frameworks.pairing").Pairing(2, make, 90.0, tmp_path, lambda: now[0])
    for seconds, accuracy in ((5.0, 0.1), (4.0, 0.2), (3.0, 0.3), (6.0, 0.4)):
        assert (tmp_path / "steady").exists() == (accuracy > 0.2)
        now[0] += seconds
        pairing.round_done(accuracy)
    assert pairing.result() == {"start": 15.0, "rounds": [3.0, 6.0], "bare": [2.0, 2.0], "accuracy": 0.4}


@pytest.fixture
def call(load, monkeypatch, capsys, tmp_path):
    (tmp_path / "FashionMNIST" / "raw").mkdir(parents=True)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["peers.py", "--data-dir", str(tmp_path), *arguments])
        load("peers").main()
        return capsys.readouterr()

    return call


def test_every_framework_names_a_function_that_is_there(load):
    for framework in load("frameworks").FRAMEWORKS.values():
        module, name = framework.run.split(":")
        assert f"def {name}(" in (BENCHMARKS / "frameworks" / f"{module}.py").read_text()


def test_the_table_has_medians_over_passes_and_leaves_out_what_fails(load, call, monkeypatch):
    process, measured = load("frameworks.process"), load("frameworks.pairing").Measured
    seen = []

    def run(name, task, watch_memory):
        seen.append((name, task.network, watch_memory))
        if name == "fda-workers":
            raise process.FailedError("it has no workers")
        factor = len([each for each in seen if each[:2] == (name, task.network)])
        found = measured(4.0, [2.0 * factor, 1.0, 9.0], [1.0, 1.0, 3.0], 0.5)
        return process.Outcome(found, 700.0 if watch_memory else None)

    monkeypatch.setattr(load("peers"), "run", run)
    ours = ("bare", "fda-local", "fda-workers")
    monkeypatch.setattr(load("peers"), "missing", lambda name: "" if name in ours else name)
    call("--quick")
    assert sorted(each[:2] for each in seen if each[0] != "fda-workers") == [
        (name, "mlp") for name in ("bare", "fda-local")
    ]
    seen.clear()
    shown = call("--passes", "3", "--only", "bare,pfl,fda-local,fda-workers")
    assert "pfl is left out: pfl is not installed" in shown.err
    assert "fda-workers is left out: it has no workers" in shown.err
    assert "|  | bare | fda local |" in shown.out
    row = next(line for line in shown.out.splitlines() if line.startswith("| A: round / bare"))
    assert row == "| A: round / bare round | 3.00 (2.00 to 3.00) | 3.00 (2.00 to 3.00) |"
    assert "| memory (MiB, B) | 700 | 700 |" in shown.out
    watched = [each for each in seen if each[2]]
    assert {network for _, network, _ in watched} == {"mlp"}
    assert sorted(name for name, *_ in watched) == ["bare", "fda-local"]


@pytest.mark.parametrize(
    ("option", "value"), [("--only", "bare,nope"), ("--passes", "0"), ("--data-dir", "nowhere")]
)
def test_what_cannot_be_is_refused(call, capsys, option, value):
    with pytest.raises(SystemExit):
        call(option, value)
    assert value.split(",")[-1] in capsys.readouterr().err.partition("error:")[2]
