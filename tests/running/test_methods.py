"""Methods on whole runs: any data; what is resumed, redone or lost; and what leaves a client."""

import math
import shutil
from dataclasses import replace
from typing import Any

import pytest
from blocks_net import normed
from naming import names
from safetensors.numpy import load
from sites import write_images, write_table
from whole_runs import check_same, cut_off, same_bits, untimed

from fda_flower import RunConfig, run
from fda_flower.clients import personal_layers
from fda_flower.errors import ConfigError
from fda_flower.models import MODELS, Model
from fda_flower.models.parts import head_names
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.network import make_model

FEW: dict[str, Any] = {"device": "cpu", "target_samples": 10, "model": "mlp"}
SMALL: dict[str, Any] = {
    **{"sources": 2, "device": "cpu", "seed": 1, "model": "mlp"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}
OWN_DATA: dict[str, Any] = {"target": "c", "dataset_options": {"domains": "a,b,c"}}
DATA: dict[str, dict[str, Any]] = {
    "noisy digits": {"model": "cnn", "shift": "noise"},
    "numbers": {"dataset": "rbf", "model": "sigmoid", "target_samples": 16},
    "images": {
        **OWN_DATA,
        "dataset": "images",
        "dataset_options": {"domains": "a,b,c", "image_size": 16},
        "model": "resnet9",
        "model_options": {"width": 2},
    },
    "tables": {**OWN_DATA, "dataset": "table", "model": "logistic"},
}
MEMBERS = "sources,target,tuned,head,blend,prior"
OPTIONS: dict[str, dict[str, Any]] = {
    "kd3a": {"gate_start": 0.5, "gate_end": 0.6, "gate_rounds": 4},
    "mixture": {"epochs": "1,3", "folds": 3, "members": MEMBERS},
    "irm": {"anneal_steps": 30},  # ends within the second round: a source takes 22 steps
    "vrex": {"anneal_steps": 30},
}
IMAGES_ALONE = ("kd3a", "knn-per")
GENERAL = ("irm", "vrex", "groupdro")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and folders of images of three domains."""
    path = tmp_path_factory.mktemp("data")
    for seed, domain in enumerate("abc"):
        write_table(path / f"{domain}.csv", seed)
        write_images(path / domain, seed)
    return path


@pytest.fixture(autouse=True)
def network_with_batch_norm(monkeypatch):
    monkeypatch.setitem(MODELS, "normed", Model("a small one with BatchNorm", normed))


def first_model(settings):
    model = make_model(RunConfig(model=settings["model"], seed=settings["seed"]), (1, 8, 8), 10)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


# Any data, and a run that is made longer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((m, kind) for kind in DATA for m in ("feddaf", "feddwa", "fedavg-ft", "ditto", "apfl", "mixture")),
        *((method, kind) for kind in ("noisy digits", "images") for method in IMAGES_ALONE),
    ],
)
def test_they_run_on_any_data_and_a_longer_run_has_the_same_bits(method, kind, folder, tmp_path):
    settings = {**FEW, **DATA[kind], "method": method, "method_options": OPTIONS.get(method, {})}
    settings |= {"data_dir": str(folder)} if kind in ("tables", "images") else {}
    whole = run(**settings, rounds=3)
    run(**settings, rounds=2, output=tmp_path / "run")
    resumed = run(**settings, rounds=3, output=tmp_path / "run", resume=True)
    if method == "mixture":
        found = whole.history[-1]["mixture"]["members"]
        assert list(found) == ["sources", "target", "tuned-1", "tuned-3", "head", "blend", "prior"]
        assert sum(member["weight"] for member in found.values()) == pytest.approx(1)
        assert ("temperature" in found["head"]) == (kind != "numbers")
        assert untimed(resumed.history[-1:]) == untimed(whole.history[-1:])
    else:
        assert all(math.isfinite(figure) for figure in whole.scores())
        assert resumed.scores() == whole.scores()
    if method == "kd3a":
        assert max(record["target"]["mask-share"] for record in whole.history) > 0
    assert same_bits(resumed.model, whole.model)
    assert not any(r["dropped"] or r["held"] or "evaluation-failed" in r for r in whole.history)


@pytest.mark.parametrize("method", GENERAL)
def test_domain_generalisation_records_what_it_measures(method):
    whole = run(**FEW, method=method, method_options=OPTIONS.get(method, {}), rounds=4)
    if method != "groupdro":
        lam = {"irm": 100, "vrex": 10}[method]
        assert [record["lam"] for record in whole.history] == [1, 1, lam, lam]
    for record in whole.history:
        sources = list(record["sources"].values())
        assert all(math.isfinite(entry["train-loss"]) for entry in sources)
        if method == "irm":
            assert all(math.isfinite(entry["penalty"]) for entry in sources)
        else:
            assert sum(entry["weight"] for entry in sources) == pytest.approx(1)
        if method == "vrex":
            mean = sum(entry["loss-at-start"] for entry in sources) / len(sources)
            for entry in sources:
                expected = (1 + 2 * record["lam"] * (entry["loss-at-start"] - mean)) / len(sources)
                assert entry["weight"] == pytest.approx(expected)


@pytest.mark.parametrize("method", GENERAL)
def test_turned_off_it_is_source_only_with_uniform_weights_bit_for_bit(method):
    off = {"step_size": 0} if method == "groupdro" else {"lam": 0}
    plain = run(**FEW, method="source-only", method_options={"source_weights": "uniform"}, rounds=2)
    assert same_bits(run(**FEW, method=method, method_options=off, rounds=2).model, plain.model)
    other = run(**FEW, method=method, method_options=OPTIONS.get(method, {}), rounds=2)
    assert not same_bits(other.model, plain.model)


@pytest.mark.parametrize(
    ("method", "settings", "error"),
    [
        *((method, {"sources": 1}, ("method", method)) for method in GENERAL),
        ("irm", {"dataset": "rbf", "model": "sigmoid"}, ("method", "irm")),
        ("kd3a", {"target_samples": None}, ("method", "kd3a")),
        ("kd3a", {"dataset": "rbf", "model": "sigmoid"}, ("method", "kd3a")),
        ("kd3a", {"method_options": {"momentum": 1.5}}, ("momentum", 1.5)),
        ("fada", {"target_samples": None}, ("method", "fada")),
        ("fada", {"train": "head", "model": "cnn"}, ("method", "fada")),
        ("knn-per", {"dataset": "rbf", "model": "sigmoid"}, ("method", "knn-per")),
        ("knn-per", {"method_options": {"k": 11}}, ("the target", 10)),
        *((m, {"model": "logistic"}, ("method", m)) for m in ("kd3a", "fada", "knn-per", "fedper", "fedrep")),
        ("fedbn", {}, ("method", "fedbn")),
    ],
)
def test_what_a_method_cannot_use_is_refused_before_training(method, settings, error, tmp_path):
    with pytest.raises(ConfigError, check=names(*error)):
        run(**{**FEW, "method": method, "rounds": 1, **settings}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# A model of the target's own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("apfl", {"mixing": 0}),
        ("apfl", {"mixing": 0, "mix": "parameters"}),
        ("apfl", {"mixing": 1}),
        ("knn-per", {"mixing": 0}),
        ("knn-per", {"mixing": "cv"}),
    ],
)
def test_the_global_model_of_a_mixed_one_is_fedavgs_and_with_weight_0_so_is_the_headline(method, options):
    config = RunConfig(**FEW, shift="noise", rounds=3, method="fedavg")
    changed = replace(config, method=method, method_options=options)
    plain, mixed = (run_config(each, Execution(outcomes=True)) for each in (config, changed))
    assert same_bits(plain.model, mixed.model)
    for one, other in zip(plain.history, mixed.history, strict=True):
        assert (one["accuracy"], one["loss"]) == (other["accuracy-global"], other["loss-global"])
        if options["mixing"] == 0:
            headline = ("accuracy", "loss", "outcomes", "test-examples")
            assert [one[key] for key in headline] == [other[key] for key in headline]


# Mixture


MIXTURE = {**SMALL, "method": "mixture"}


def mixture_of(result):
    return (result.path / "clients" / "target" / "mixture.safetensors").read_bytes()


@pytest.mark.parametrize(("every", "warmup", "lost"), [(0, 0, True), (1, 1, False), (2, 0, True)])
def test_a_mixture_that_is_cut_off_and_resumed_is_that_of_one_go(every, warmup, lost, tmp_path):
    settings = {**MIXTURE, "rounds": 4 - warmup, "warmup_rounds": warmup, "average": "tail:2"}
    settings["method_options"] = {"epochs": "1,3", "every": every}
    whole = run(**settings, output=tmp_path / "whole")
    cut_off(2, tmp_path / "cut", **settings)
    if lost:
        shutil.rmtree(tmp_path / "cut" / "clients", ignore_errors=True)
    resumed = run(**settings, output=tmp_path / "cut", resume=True)
    check_same(resumed, whole)
    assert mixture_of(resumed) == mixture_of(whole)


def test_how_often_a_mixture_evaluates_and_where_it_writes_changes_nothing_of_the_last_round(tmp_path):
    runs = [run(**MIXTURE, rounds=3, method_options={"epochs": "1,3", "every": n}) for n in (0, 1, 2)]
    options = {"epochs": "1,3", "every": 1}
    check_same(run(**MIXTURE, rounds=3, method_options=options, output=tmp_path / "run"), runs[1])
    last = [untimed(each.history)[2] for each in runs]
    for record in last:
        del record["mixture"]["cost"]
    assert last[0] == last[1] == last[2]
    assert [len([a for a in each.accuracies if a == a]) for each in runs] == [1, 3, 2]


# A part of the model that stays at a client


PART: dict[str, Any] = {**SMALL, "shift": "rotate", "source_samples": 24, "rounds": 4}
FEDREP: dict[str, Any] = {**PART, "method": "fedrep", "method_options": {"head_epochs": 2}}
FEDBN: dict[str, Any] = {**PART, "method": "fedbn", "model": "normed"}
FEDPER: dict[str, Any] = {**PART, "method": "fedper", "model": "normed"}
PARTS = {"fedrep": FEDREP, "fedbn": FEDBN, "fedper": FEDPER}
KEEPING: dict[str, dict[str, Any]] = {
    **PARTS,
    "apfl": {**PART, "method": "apfl", "method_options": {"adaptive": True}},
    "apfl of parameters": {**PART, "method": "apfl", "method_options": {"mix": "parameters"}},
    "ditto": {**PART, "method": "ditto"},
    "feddaf": {**PART, "method": "feddaf"},
    "fada": {**PART, "method": "fada"},
}
"""Runs of methods whose clients keep something between rounds."""
KEEPERS = {"fada": 2, **dict.fromkeys(PARTS, 3)}
"""How many clients keep something, if it is not the target alone."""
each_keeping = pytest.mark.parametrize("method", KEEPING)


def kept_of(result):
    paths = sorted((result.path / "clients").glob("*/*.safetensors"))
    assert len(paths) == 2 * KEEPERS.get(result.config.method, 1), "of this round and the one before"
    return [path.read_bytes() for path in paths]


@pytest.mark.parametrize("method", [*KEEPING, *GENERAL, "kd3a"])
def test_a_run_that_is_cut_off_and_resumed_has_the_bits_of_one_go(method, tmp_path):
    settings = KEEPING.get(method, {**PART, "method": method, "method_options": OPTIONS.get(method, {})})
    settings = {**settings, "rounds": 3, "warmup_rounds": 1, "average": "tail:2"}
    whole = run(**settings, output=tmp_path / "whole")
    cut_off(2, tmp_path / "cut", **settings)
    resumed = run(**settings, output=tmp_path / "cut", resume=True)
    check_same(resumed, whole)
    check_same(run(**settings), whole)
    assert not any("fallback" in r["target"] for r in whole.history if r["target"])
    if method in KEEPING:
        assert kept_of(resumed) == kept_of(whole)


@each_keeping
def test_a_round_that_the_server_has_lost_is_run_again_with_the_same_bits(method, tmp_path):
    """The clients have done round 3, but the server's files are those of round 2."""
    settings, folders = KEEPING[method], {rounds: tmp_path / str(rounds) for rounds in (2, 3, 4)}
    whole = [run(**{**settings, "rounds": rounds}, output=folder) for rounds, folder in folders.items()][-1]
    shutil.rmtree(folders[2] / "clients")
    shutil.copytree(folders[3] / "clients", folders[2] / "clients")
    resumed = run(**settings, output=folders[2], resume=True)
    assert untimed(resumed.history)[2:] == untimed(whole.history)[2:]
    assert same_bits(resumed.model, whole.model)
    assert kept_of(resumed) == kept_of(whole)


@each_keeping
def test_what_clients_have_lost_is_named_in_the_record(method, tmp_path):
    settings = KEEPING[method]
    run(**{**settings, "rounds": 2}, output=tmp_path)
    for domain in ("source-2", "target"):
        shutil.rmtree(tmp_path / "clients" / domain, ignore_errors=True)
    resumed = run(**settings, output=tmp_path, resume=True)
    third, fourth = resumed.history[2:]
    assert bool(third["target"].get("fallback")) == (method != "fada")
    fell_back = [name for name, entry in third["sources"].items() if entry.get("fallback")]
    assert fell_back == (["source-2"] if method in KEEPERS else [])
    assert not fourth["target"].get("fallback")
    if method in ("apfl", "ditto"):
        assert same_bits(resumed.model, run(**settings).model), "the global model is FedAvg's"


@pytest.mark.parametrize("warmup", [0, 1])
def test_fedreps_head_on_the_server_never_changes_after_the_warm_up(warmup, tmp_path):
    settings = {**FEDREP, "warmup_rounds": warmup}
    result = run(**settings, output=tmp_path / "run")
    before = first_model(FEDREP)
    if warmup:
        options = {"method": "source-only", "method_options": {}, "rounds": 1, "warmup_rounds": 0}
        before = run(**{**settings, **options}).model
    head = tuple(before)[-2:]
    for name, array in before.items():
        assert (result.model[name].tobytes() == array.tobytes()) == (name in head)
    own = [load(data) for data in kept_of(result)[1::2]]
    assert all(part.keys() == set(head) for part in own)
    assert len({part[head[0]].tobytes() for part in [*own, before]}) == 4, "each its own"


def test_fedbns_batch_norm_on_the_server_never_changes_and_without_any_it_is_fedavg(monkeypatch):
    found, before = run(**FEDBN).model, first_model(FEDBN)
    for name, array in before.items():
        assert (found[name].tobytes() == array.tobytes()) == name.startswith("2."), name
    assert not same_bits(found, run(**{**FEDBN, "method": "fedavg"}).model, ["1.weight"])
    # The check of what the method needs comes first; below it, nothing differs.
    monkeypatch.setattr("fda_flower.server_app.check_needs", lambda *_: None)
    one, other = (run(**{**PART, "method": method}) for method in ("fedbn", "fedavg"))
    assert same_bits(one.model, other.model)
    assert one.accuracies == other.accuracies


def test_heads_of_other_clients_reach_the_target_only_through_the_body(monkeypatch):
    """If a source replies with another head, nothing of the target's changes."""
    plain = run(**FEDREP)
    keep_part = personal_layers.keep_part

    def other_head(client, request, question):
        reply = keep_part(client, request, question)
        if client.role == "target":
            return reply
        head = {name: reply.arrays[name] + 1 for name in head_names(client.model)}
        return replace(reply, arrays={**reply.arrays, **head})

    monkeypatch.setattr(personal_layers, "keep_part", other_head)
    changed = run(**FEDREP)
    head = tuple(plain.model)[-2:]
    assert not same_bits(plain.model, changed.model, head)
    assert same_bits(plain.model, changed.model, [name for name in plain.model if name not in head])
    assert changed.accuracies == plain.accuracies
    assert changed.history[-1]["accuracy-final-head"] == plain.history[-1]["accuracy-final-head"]


def test_the_final_head_changes_nothing_else(tmp_path):
    with_, without = (
        run(
            **{**FEDREP, "method_options": {"head_epochs": 2, "final_head_epochs": n}},
            output=tmp_path / str(n),
        )
        for n in (5, 0)
    )
    assert same_bits(with_.model, without.model)
    assert with_.accuracies == without.accuracies
    assert kept_of(with_) == kept_of(without)
    assert with_.summary["last5"] == without.summary["last5"]
    assert "accuracy-final-head" in with_.history[-1]
