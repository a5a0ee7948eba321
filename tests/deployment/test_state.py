"""What a site keeps for itself: over real processes, in its own folder, with the bits of a local run."""

from typing import Any

import pytest

from fda_flower import RunConfig, run
from fda_flower.deployment import Federation, run_deployed

SETTINGS: dict[str, Any] = {
    **{"method": "mixture", "model": "mlp", "sources": 1, "rounds": 2, "device": "cpu"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
    "method_options": {"epochs": "1,3", "every": 1},
}


def untimed(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_mixture_stays_at_its_site_and_has_the_bits_of_a_local_run(tmp_path):
    """Flower starts a new process for each message: the second evaluation finds the first one's models."""
    nodes = {
        domain: {"domain": domain, "state-dir": str(tmp_path / "sites" / domain)}
        for domain in ("source-1", "target")
    }
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:
        history, model = run_deployed(
            RunConfig(**SETTINGS),
            federation.connection,
            tmp_path / "deployed",
            environment=federation.environment,
        )
    local = run(**SETTINGS, output=tmp_path / "local")
    assert untimed(history) == untimed(local.history)
    assert {name: array.tobytes() for name, array in model.items()} == {
        name: array.tobytes() for name, array in local.model.items()
    }
    (kept,) = (tmp_path / "sites").rglob("*.safetensors")
    assert kept.parent.parent == tmp_path / "sites" / "target"
    own = tmp_path / "local" / "clients" / "target" / kept.name
    assert kept.read_bytes() == own.read_bytes()
    for folder in ("federation", "deployed"):
        assert not list((tmp_path / folder).rglob("mixture.safetensors"))
