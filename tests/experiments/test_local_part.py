"""FedPer, FedRep and FedBN on whole runs: what is resumed, redone or lost, and what leaves a client."""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from fda_flower import RunConfig, run
from fda_flower.errors import ConfigError
from fda_flower.models.parts import head_names
from fda_flower.runs.model_folder import make_model

SMALL: dict[str, Any] = {
    **{"shift": "rotate", "sources": 2, "device": "cpu", "seed": 1, "rounds": 4},
    **{"target_samples": 16, "source_samples": 24, "test_samples": 40},
}
OPTIONS = {"head_epochs": 2}
FEDREP: dict[str, Any] = {**SMALL, "method": "fedrep", "model": "mlp", "method_options": OPTIONS}
FEDBN: dict[str, Any] = {**SMALL, "method": "fedbn", "model": "normed"}
FEDPER: dict[str, Any] = {**SMALL, "method": "fedper", "model": "normed"}
EACH = pytest.mark.parametrize("settings", [FEDREP, FEDBN, FEDPER], ids=["fedrep", "fedbn", "fedper"])
DOMAINS = ("source-1", "source-2", "target")


def normed(shape: tuple[int, ...], classes: int) -> Any:
    """A small network with BatchNorm, for images of any size."""
    from torch import nn

    layers = [nn.Flatten(), nn.Linear(int(np.prod(shape)), 12), nn.BatchNorm1d(12), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(12, classes))


@pytest.fixture(autouse=True)
def network_with_batch_norm(monkeypatch):
    from fda_flower.models import MODELS, Model

    monkeypatch.setitem(MODELS, "normed", Model("a small one with BatchNorm", normed))


class PowerCutError(Exception):
    """Ends a run after a round."""


def cut_after(number):
    def on_round(record):
        if record["round"] == number:
            raise PowerCutError

    return on_round


def untimed(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def kept(path):
    return {name: (path / "clients" / name / "local-part.safetensors").read_bytes() for name in DOMAINS}


def same(one, other, names=None):
    names = one.model if names is None else names
    return all(one.model[name].tobytes() == other.model[name].tobytes() for name in names)


def first_model(settings):
    model = make_model(RunConfig(model=settings["model"], seed=settings["seed"]), (1, 8, 8), 10)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


@EACH
@pytest.mark.parametrize("warmup", [0, 1])
def test_a_run_that_is_cut_off_and_resumed_has_the_bits_of_one_go(settings, warmup, tmp_path):
    settings = {**settings, "rounds": 4 - warmup, "warmup_rounds": warmup, "average": "tail:2"}
    whole = run(**settings, output=tmp_path / "whole")
    with pytest.raises(PowerCutError):
        run(**settings, output=tmp_path / "cut", on_round=cut_after(2))
    resumed = run(**settings, output=tmp_path / "cut", resume=True)
    assert untimed(resumed.history) == untimed(whole.history)
    assert same(resumed, whole)
    assert kept(resumed.path) == kept(whole.path)
    in_memory = run(**settings)
    assert untimed(in_memory.history) == untimed(whole.history)
    assert not any("fallback" in r["target"] for r in whole.history if r["target"])


@EACH
def test_a_round_that_the_server_has_lost_is_run_again_with_the_same_bits(settings, tmp_path):
    """The clients have done round 3, but the server's files are those of round 2."""
    whole = run(**settings, output=tmp_path / "whole")
    run(**{**settings, "rounds": 2}, output=tmp_path / "run")
    for name in ("rounds.jsonl", "checkpoint", "config.json"):
        shutil.copy(tmp_path / "run" / name, tmp_path / name)
    run(**{**settings, "rounds": 3}, output=tmp_path / "run", resume=True)
    for name in ("rounds.jsonl", "checkpoint", "config.json"):
        shutil.copy(tmp_path / name, tmp_path / "run" / name)
    resumed = run(**settings, output=tmp_path / "run", resume=True)
    assert untimed(resumed.history)[2:] == untimed(whole.history)[2:]
    assert same(resumed, whole)
    assert kept(resumed.path) == kept(whole.path)


@EACH
def test_parts_that_are_lost_are_named_in_the_record(settings, tmp_path):
    run(**{**settings, "rounds": 2}, output=tmp_path / "run")
    for domain in ("source-2", "target"):
        shutil.rmtree(tmp_path / "run" / "clients" / domain)
    third, fourth = run(**settings, output=tmp_path / "run", resume=True).history[2:]
    assert "had lost the part" in third["target"]["fallback"]
    assert "had lost the part" in third["sources"]["source-2"]["fallback"]
    assert "fallback" not in third["sources"]["source-1"]
    assert "fallback" not in fourth["target"]


@pytest.mark.parametrize("warmup", [0, 1])
def test_fedreps_head_on_the_server_never_changes_after_the_warm_up(warmup, tmp_path):
    settings = {**FEDREP, "warmup_rounds": warmup}
    found = run(**settings, output=tmp_path / "run").model
    before = first_model(FEDREP)
    if warmup:
        options = {"method": "source-only", "method_options": {}, "rounds": 1, "warmup_rounds": 0}
        before = run(**{**settings, **options}).model
    head = tuple(before)[-2:]
    for name, array in before.items():
        assert (found[name].tobytes() == array.tobytes()) == (name in head)
    own = [load(data) for data in kept(tmp_path / "run").values()]
    assert all(part.keys() == set(head) for part in own)
    assert len({part[head[0]].tobytes() for part in [*own, before]}) == 4, "each its own"


def test_fedbns_batch_norm_on_the_server_never_changes():
    found, before = run(**FEDBN).model, first_model(FEDBN)
    for name, array in before.items():
        assert (found[name].tobytes() == array.tobytes()) == name.startswith("2."), name


def test_without_batch_norm_fedbn_is_fedavg_bit_for_bit(monkeypatch):
    """The check of what the method needs comes first; below it, nothing differs."""
    monkeypatch.setattr("fda_flower.server_app.check_needs", lambda *_: None)
    one, other = (run(**{**SMALL, "method": method, "model": "mlp"}) for method in ("fedbn", "fedavg"))
    assert same(one, other)
    assert one.accuracies == other.accuracies


def test_fedbn_with_batch_norm_is_not_fedavg():
    one, other = (run(**{**FEDBN, "method": method}) for method in ("fedbn", "fedavg"))
    assert not same(one, other, ["1.weight"])


def test_heads_of_other_clients_reach_the_target_only_through_the_body(monkeypatch):
    """If a source replies with another head, nothing of the target's changes."""
    from fda_flower.clients.local_part import LocalPartSource

    plain = run(**FEDREP)
    local_train = LocalPartSource.local_train

    def other_head(self, request):
        reply = local_train(self, request)
        head = {name: reply.arrays[name] + 1 for name in head_names(self.model)}
        return replace(reply, arrays={**reply.arrays, **head})

    monkeypatch.setattr(LocalPartSource, "local_train", other_head)
    changed = run(**FEDREP)
    head = tuple(plain.model)[-2:]
    assert not same(plain, changed, head)
    assert same(plain, changed, [name for name in plain.model if name not in head])
    assert changed.accuracies == plain.accuracies
    assert changed.history[-1]["accuracy-final-head"] == plain.history[-1]["accuracy-final-head"]


def test_the_final_head_changes_nothing_else(tmp_path):
    with_, without = (
        run(**{**FEDREP, "method_options": {**OPTIONS, "final_head_epochs": n}}, output=tmp_path / str(n))
        for n in (5, 0)
    )
    assert same(with_, without)
    assert with_.accuracies == without.accuracies
    assert kept(with_.path) == kept(without.path)
    assert with_.summary["last5"] == without.summary["last5"]
    assert "accuracy-final-head" in with_.history[-1]


@pytest.mark.parametrize(
    ("method", "model", "need"),
    [
        *((name, "logistic", "a network with layers before its head") for name in ("fedper", "fedrep")),
        ("fedbn", "mlp", "BatchNorm"),
    ],
)
def test_a_network_that_the_method_cannot_use_is_refused_before_training(method, model, need):
    with pytest.raises(ConfigError, match=f"'{method}' needs .*{need}"):
        run(**{**SMALL, "method": method, "model": model})
