"""What sites decide and note, and a round that somebody has changed afterwards, over real processes."""

import shutil
import stat
from typing import Any

import pytest

from fda_flower import RunConfig
from fda_flower.deployment import Federation, run_deployed
from fda_flower.errors import RunError
from fda_flower.site import read_log
from fda_flower.verification import verify

SETTINGS: dict[str, Any] = {
    **{"model": "mlp", "sources": 1, "rounds": 2, "device": "cpu"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_site_refuses_notes_what_it_sends_and_a_changed_round_is_found(tmp_path):
    sites = {domain: tmp_path / "sites" / domain for domain in ("source-1", "target")}
    rules: dict[str, dict[str, Any]] = {
        "source-1": {
            "allow-methods": "fedda-auto,fedgp-auto",
            "allow-batch-updates": "none",
            "min-samples": 40,
        },
        "target": {"allow-batch-updates": "norms"},
    }
    nodes = {
        domain: {
            "domain": domain,
            "role": domain.partition("-")[0],
            "state-dir": str(folder),
            **rules[domain],
        }
        for domain, folder in sites.items()
    }
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:

        def deploy(method: str) -> None:
            config = RunConfig(method=method, **SETTINGS)
            run_deployed(config, federation.connection, tmp_path / method, environment=federation.environment)

        says = "a site refuses the run: 'target': the site allows 'norms' of each batch, the run asks for 's"
        with pytest.raises(RunError, match=says):
            deploy("fedgp-auto")
        deploy("fedda-auto")

    for domain, folder in sites.items():
        assert stat.S_IMODE((folder / "sent.jsonl").stat().st_mode) == 0o600
        first, *others = read_log(folder)
        assert first["message"] == "query.role"
        assert ("refused" in first) == (domain == "target")
        assert not any("refused" in line or "failed" in line for line in others)
        trained = [line for line in others if line["message"] == "train"]
        assert [line["round"] for line in trained] == [1, 2]
        assert len({line["run"] for line in others}) == 1
        assert first["run"] != trained[0]["run"]
        for line in trained:
            batches = line["records"].get("batch-updates")
            assert (batches is None) == (domain == "source-1")
            assert batches is None or batches["arrays"] == {"norms": ["float64", [4]]}

    ended = tmp_path / "fedda-auto"
    found = verify(ended)
    assert (found.rounds, found.problems) == (2, ())
    assert (ended / "model.safetensors").exists()
    changed = shutil.copytree(ended, tmp_path / "changed")
    lines = (changed / "rounds.jsonl").read_text()
    (changed / "rounds.jsonl").write_text(lines.replace('"round": 1,', '"round": 1, "better": true,'))
    assert verify(changed, found.last).problems == ("the record of round 1 has changed",)
