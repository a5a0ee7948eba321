"""Domain generalisation on whole runs: several kinds of data, what it needs, resume, and Ray."""

import math
from typing import Any

import pytest
from naming import names

from fda_flower import run
from fda_flower.errors import ConfigError

METHODS = ("irm", "vrex", "groupdro")
OFF: dict[str, dict[str, Any]] = {
    "irm": {"lam": 0},
    "vrex": {"lam": 0},
    "groupdro": {"step_size": 0},
}
SMALL: dict[str, Any] = {"device": "cpu", "target_samples": 10, "model": "mlp"}
SHORT = {"anneal_steps": 30}
"""Ends within the second round: a source of digits takes 22 steps a round."""


def options(method: str) -> dict[str, Any]:
    return {} if method == "groupdro" else SHORT


def same(one: Any, other: Any) -> bool:
    return all(one.model[name].tobytes() == array.tobytes() for name, array in other.model.items())


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_has_the_same_bits(method: str, tmp_path: Any) -> None:
    settings = {**SMALL, "method": method, "method_options": options(method)}
    whole = run(**settings, rounds=4)
    run(**settings, rounds=2, output=tmp_path / "run")
    resumed = run(**settings, rounds=4, output=tmp_path / "run", resume=True)
    assert same(resumed, whole)
    assert resumed.accuracies == whole.accuracies
    assert not any(record["dropped"] or record["held"] for record in whole.history)
    if method != "groupdro":
        lam = {"irm": 100, "vrex": 10}[method]
        assert [record["lam"] for record in whole.history] == [1, 1, lam, lam]


@pytest.mark.parametrize("method", METHODS)
def test_turned_off_it_is_source_only_with_uniform_weights_bit_for_bit(method: str) -> None:
    plain = run(**SMALL, method="source-only", method_options={"source_weights": "uniform"}, rounds=2)
    assert same(run(**SMALL, method=method, method_options=OFF[method], rounds=2), plain)
    assert not same(run(**SMALL, method=method, method_options=options(method), rounds=2), plain)


@pytest.mark.parametrize("method", METHODS)
def test_the_records_have_what_the_method_measures(method: str) -> None:
    for record in run(**SMALL, method=method, method_options=options(method), rounds=2).history:
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


@pytest.mark.parametrize("method", METHODS)
def test_one_source_is_too_few(method: str) -> None:
    with pytest.raises(ConfigError, check=names("method")):
        run(**SMALL, method=method, sources=1, rounds=1)


def test_irm_needs_classes() -> None:
    with pytest.raises(ConfigError, check=names("method", "irm")):
        run(device="cpu", dataset="rbf", model="sigmoid", target_samples=8, rounds=1, method="irm")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["irm", "groupdro"])
def test_ray_gives_the_same_bits(method: str) -> None:
    """V-REx has GroupDRO's clients."""
    settings = {**SMALL, "method": method, "method_options": options(method), "rounds": 3}
    assert same(run(**settings, engine="ray"), run(**settings))
