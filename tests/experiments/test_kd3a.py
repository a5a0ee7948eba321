"""KD3A on whole runs: any kind of samples, a run that is cut off, one that is made longer, and bad input."""

from typing import Any

import pytest
from sites import write_images, write_table

from fda_flower import ConfigError, run

SMALL: dict[str, Any] = {
    **{"method": "kd3a", "model": "mlp", "device": "cpu", "target_samples": 10},
    "method_options": {"gate_start": 0.5, "gate_end": 0.6, "gate_rounds": 4},
}
OWN: dict[str, Any] = {"target": "c", "dataset_options": {"domains": "a,b,c"}}
DATA: dict[str, dict[str, Any]] = {
    "noisy digits": {"model": "cnn", "shift": "noise", "target_batch_size": 32},
    "images": {
        **OWN,
        "dataset": "images",
        "dataset_options": {"domains": "a,b,c", "image_size": 16},
        "model": "resnet9",
        "model_options": {"width": 2},
    },
    "tables": {**OWN, "dataset": "table"},
}


class PowerCutError(Exception):
    """Ends a run after a round."""


def cut_after_two(record):
    if record["round"] == 2:
        raise PowerCutError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and folders of images of three domains."""
    path = tmp_path_factory.mktemp("data")
    for seed, domain in enumerate("abc"):
        write_table(path / f"{domain}.csv", seed)
        write_images(path / domain, seed)
    return str(path)


def untimed(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def check_same(one, other):
    assert untimed(one.history) == untimed(other.history)
    assert {name: array.tobytes() for name, array in one.model.items()} == {
        name: array.tobytes() for name, array in other.model.items()
    }


@pytest.mark.parametrize("kind", DATA)
def test_it_runs_on_any_samples_and_a_resumed_run_has_the_same_bits(kind, folder, tmp_path):
    settings = {**SMALL, **DATA[kind]}
    if kind != "noisy digits":
        settings["data_dir"] = folder
    whole = run(**settings, rounds=3)
    assert not any(record["dropped"] or record["held"] for record in whole.history)
    assert max(record["target"]["mask-share"] for record in whole.history) > 0
    for record in whole.history:
        weights = [entry["weight"] for entry in (record["target"], *record["sources"].values())]
        assert sum(weights) == pytest.approx(1, rel=1e-12)
    run(**settings, rounds=2, output=tmp_path / "longer")
    check_same(run(**settings, rounds=3, output=tmp_path / "longer", resume=True), whole)


def test_a_run_that_is_cut_off_and_resumed_is_that_of_one_go(tmp_path):
    settings = {**SMALL, "rounds": 3, "warmup_rounds": 1, "average": "tail:2", "source_samples": 40}
    settings["method_options"] = {"gate_start": 0.3, "gate_end": 0.6}
    whole = run(**settings)
    with pytest.raises(PowerCutError):
        run(**settings, output=tmp_path, on_round=cut_after_two)
    check_same(run(**settings, output=tmp_path, resume=True), whole)


def test_the_target_does_not_move_without_a_vote_that_passes():
    settings = {**SMALL, "rounds": 2, "method_options": {"gate_start": 1.0, "gate_end": 1.0}}
    for record in run(**settings).history:
        assert (record["target"]["mask-share"], record["target"]["weight"]) == (0, 0)
        assert [entry["weight"] for entry in record["sources"].values()] == [pytest.approx(1 / 3)] * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_samples": None}, "needs unlabelled training samples of the target, but all"),
        ({"model": "logistic"}, "needs a network with layers before its head"),
        ({"dataset": "rbf", "model": "sigmoid"}, "needs classes"),
        ({"method_options": {"momentum": 1.5}}, "momentum is 1.5"),
    ],
    ids=str,
)
def test_runs_that_cannot_work_are_an_error_before_training(settings, message):
    with pytest.raises(ConfigError, match=message):
        run(**{**SMALL, "rounds": 1, **settings})
