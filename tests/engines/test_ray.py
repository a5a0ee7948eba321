"""Flower's Ray simulation, really run: the same bits as in this process."""

import pytest

from fda_flower import run
from fda_flower.errors import RunError

SETTINGS = {"rounds": 2, "seed": 3, "method": "fedgp-auto", "device": "cpu"}


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.fixture(scope="module")
def local():
    return run(**SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_same_seed_same_bits_whatever_the_number_of_workers(local, workers, tmp_path):
    result = run(engine="ray", workers=workers, output=tmp_path / "run", **SETTINGS)
    assert without_seconds(result.history) == without_seconds(local.history)
    for name, array in local.model.items():
        assert result.model[name].tobytes() == array.tobytes()
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["feddaf", "feddwa"])
def test_what_clients_and_strategies_keep_between_rounds_is_kept_on_ray(method):
    settings = {**SETTINGS, "rounds": 3, "method": method}
    local, result = run(**settings), run(engine="ray", workers=2, **settings)
    assert without_seconds(result.history) == without_seconds(local.history)
    for name, array in local.model.items():
        assert result.model[name].tobytes() == array.tobytes()


@pytest.mark.slow
def test_a_run_that_fails_on_ray_raises(tmp_path, monkeypatch):
    from fda_flower.strategies import base

    def fails(self, *args, **kwargs):
        raise RunError("no node wants to")

    monkeypatch.setattr(base.DomainAdaptationStrategy, "configure_train", fails)
    with pytest.raises(RunError, match="no node wants to"):
        run(engine="ray", workers=1, **SETTINGS)
