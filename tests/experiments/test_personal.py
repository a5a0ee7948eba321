"""Personal methods on whole runs: any kind of data, and a resumed run."""

import math
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sites import write_images, write_table

from fda_flower import run
from fda_flower.clients import APFLTarget, DittoTarget, FedDAFTarget
from fda_flower.errors import ConfigError

pytestmark = pytest.mark.slow

PERSONAL = ["feddaf", "feddwa", "fedavg-ft", "ditto", "apfl"]
SMALL: dict[str, Any] = {"device": "cpu", "target_samples": 10}
DATA: dict[str, dict[str, Any]] = {
    "noisy digits": {"model": "cnn", "shift": "noise"},
    "numbers": {"dataset": "rbf", "model": "sigmoid", "target_samples": 8},
    "images": {
        "dataset": "images",
        "dataset_options": {"domains": "a,b,c", "image_size": 16},
        "target": "c",
        "model": "resnet9",
        "model_options": {"width": 2},
    },
    "tables": {
        "dataset": "table",
        "dataset_options": {"domains": "a,b,c"},
        "target": "c",
        "model": "logistic",
    },
}


def untimed(history):
    """Records without times and bytes; the round that was the last had a confusion matrix in a reply."""
    left_out = ("seconds", "bytes-received")
    return [{key: value for key, value in record.items() if key not in left_out} for record in history]


def same_bits(one, other):
    return all(array.tobytes() == other[name].tobytes() for name, array in one.items())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and folders of images of three domains."""
    path = tmp_path_factory.mktemp("data")
    for seed, domain in enumerate("abc"):
        write_table(path / f"{domain}.csv", seed)
        write_images(path / domain, seed)
    return path


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((method, kind) for kind in DATA for method in PERSONAL),
        *(("knn-per", kind) for kind in ("noisy digits", "images")),
    ],
)
def test_they_run_on_any_data_and_a_resumed_run_has_the_same_bits(method, kind, folder, tmp_path):
    settings = {**SMALL, **DATA[kind], "method": method}
    if kind in ("tables", "images"):
        settings["data_dir"] = str(folder)
    whole = run(**settings, rounds=3)
    run(**settings, rounds=2, output=tmp_path / "run")
    resumed = run(**settings, rounds=3, output=tmp_path / "run", resume=True)
    assert all(math.isfinite(figure) for figure in whole.figures())
    assert resumed.figures() == whole.figures()
    for name, array in whole.model.items():
        assert resumed.model[name].tobytes() == array.tobytes()
    assert not any(record["dropped"] or record["held"] for record in whole.history)


def test_feddafs_records_say_how_the_models_were_blended():
    first, *others = run(**SMALL, model="mlp", method="feddaf", rounds=3).history
    assert first["target"]["alpha"] is None
    for record in others:
        target = record["target"]
        assert target["theta"] == pytest.approx(math.acos(target["sim"]))
        assert target["alpha"] == pytest.approx(1 - math.exp(-math.exp(-5 * (target["theta"] - 1))))
        assert 0 <= record["accuracy-global"] <= 1


def test_feddwas_weights_sum_to_1_and_a_scarce_target_trusts_itself():
    for record in run(**SMALL, model="mlp", method="feddwa", rounds=2).history:
        weights = [record["target"]["weight"], *(s["weight"] for s in record["sources"].values())]
        assert sum(weights) == pytest.approx(1)
        assert weights[0] == max(weights)


MIXED: list[tuple[str, dict[str, Any]]] = [
    ("apfl", {"mixing": 0}),
    ("apfl", {"mixing": 0, "mix": "parameters"}),
    ("apfl", {"mixing": 1}),
    ("knn-per", {"mixing": 0}),
    ("knn-per", {"mixing": "cv"}),
]


@pytest.mark.parametrize(("method", "options"), MIXED)
def test_the_global_model_of_a_mixed_one_is_fedavgs_and_with_weight_0_so_is_the_headline(method, options):
    settings = {**SMALL, "shift": "noise", "model": "mlp", "rounds": 3, "outcomes": True}
    plain, mixed = run(**settings, method="fedavg"), run(**settings, method=method, method_options=options)
    assert same_bits(plain.model, mixed.model)
    for one, other in zip(plain.history, mixed.history, strict=True):
        assert (one["accuracy"], one["loss"]) == (other["accuracy-global"], other["loss-global"])
        if options["mixing"] == 0:
            headline = ("accuracy", "loss", "outcomes", "test-examples")
            assert [one[key] for key in headline] == [other[key] for key in headline]


OWN: list[tuple[str, dict[str, Any]]] = [
    ("apfl", {"mix": "outputs", "adaptive": True}),
    ("apfl", {"mix": "parameters", "adaptive": True}),
    ("ditto", {}),
    ("feddaf", {}),
]


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
@pytest.mark.parametrize(("method", "options"), OWN)
def test_the_own_model_is_in_the_runs_folder_and_its_loss_is_recorded(method, options, lost, tmp_path):
    settings = {**SMALL, "model": "mlp", "method": method, "method_options": options, "warmup_rounds": 1}
    whole = run(**settings, rounds=3)
    run(**settings, rounds=2, output=tmp_path / "run")
    own = tmp_path / "run" / "clients" / "target"
    assert {f"{method}.safetensors"} <= {path.name for path in own.iterdir()}
    if lost:
        shutil.rmtree(own)
    resumed = run(**settings, rounds=3, output=tmp_path / "run", resume=True)
    assert same_bits(resumed.model, whole.model) == (not lost or method != "feddaf")
    assert (untimed(resumed.history) == untimed(whole.history)) == (not lost)
    told = [(record["target"] or {}).get("fallback") for record in resumed.history]
    assert [bool(text) for text in told] == [False, False, False, lost]


@pytest.mark.parametrize("method", ["apfl", "ditto", "feddaf"])
def test_the_last_round_is_run_again_with_the_same_bits(method, tmp_path):
    """The server loses a round that the target has trained: its state is a round ahead."""
    settings = {**SMALL, "model": "mlp", "method": method}
    whole = run(**settings, rounds=3, output=tmp_path / "run")
    own = tmp_path / "run" / "clients"
    run(**settings, rounds=2, output=tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "clients")
    shutil.copytree(own, tmp_path / "again" / "clients")
    resumed = run(**settings, rounds=3, output=tmp_path / "again", resume=True)
    assert untimed(resumed.history) == untimed(whole.history)


CLIENTS = {"apfl": APFLTarget, "ditto": DittoTarget, "feddaf": FedDAFTarget}


@pytest.mark.parametrize("method", CLIENTS)
def test_a_run_resumed_after_a_round_without_the_targets_reply_has_the_same_bits(
    method, monkeypatch, tmp_path
):
    """The target has trained, and the server has dropped what it replied."""
    train = CLIENTS[method].local_train

    def breaks(client, request):
        reply = train(client, request)
        broken = {name: array * np.nan for name, array in reply.arrays.items()}
        return replace(reply, arrays=broken) if request.config["server-round"] == 2 else reply

    monkeypatch.setattr(CLIENTS[method], "local_train", breaks)
    settings = {**SMALL, "model": "mlp", "method": method}
    whole = run(**settings, rounds=4)
    run(**settings, rounds=2, output=tmp_path)
    resumed = run(**settings, rounds=4, output=tmp_path, resume=True)
    assert [[each["domain"] for each in r["dropped"]] for r in whole.history] == [[], ["target"], [], []]
    assert same_bits(whole.model, resumed.model)
    assert untimed(whole.history) == untimed(resumed.history)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"model": "logistic"},
            "method 'knn-per' needs a network with layers before its head",
        ),
        ({"dataset": "rbf", "model": "sigmoid"}, "method 'knn-per' needs classes"),
        ({"method_options": {"k": 11}}, "the target has 10 labelled samples, but kNN-Per looks at k = 11"),
    ],
)
def test_knn_per_refuses_what_has_no_features_no_classes_or_too_few_samples(settings, says):
    with pytest.raises(ConfigError, match=says):
        run(**{**SMALL, "model": "mlp", "method": "knn-per", "rounds": 1, **settings})
