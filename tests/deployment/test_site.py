"""What sites decide and note, and a round that somebody has changed afterwards, over real processes."""

import shutil
import stat
from typing import Any

import pytest

from fda_flower import RunConfig
from fda_flower.deployment import Federation, run_deployed
from fda_flower.errors import RunError
from fda_flower.records.folder import RunFolder
from fda_flower.records.verification import verify
from fda_flower.site import epsilon, read_log

SETTINGS: dict[str, Any] = {
    **{"model": "mlp", "sources": 1, "rounds": 2, "device": "cpu"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}


def spent(rounds: int) -> float:
    return epsilon([(1.0, rounds)], 1e-5)


@pytest.mark.slow
def test_sites_refuse_note_what_they_send_and_end_a_run_and_a_changed_round_is_found(tmp_path):
    sites = {domain: tmp_path / "sites" / domain for domain in ("source-1", "target")}
    rules: dict[str, dict[str, Any]] = {
        "source-1": {
            "allow-methods": "fedda-auto,fedgp-auto",
            "allow-batch-updates": "none",
            "min-samples": 40,
            **{
                "dp-clip": 1.0,
                "dp-noise": 1.0,
                "max-epsilon": (spent(3) + spent(4)) / 2,
            },
        },
        "target": {"allow-batch-updates": "norms"},
    }
    nodes = {
        domain: {
            "domain": domain,
            "role": domain.partition("-")[0],
            "state-dir": str(folder),
            "resident": True,
            **rules[domain],
        }
        for domain, folder in sites.items()
    }
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:

        def deploy(method: str, output: str) -> None:
            config = RunConfig(method=method, **SETTINGS)
            run_deployed(config, federation.connection, tmp_path / output, environment=federation.environment)

        says = "a site refuses the run: 'target': the site allows 'norms' of each batch, the run asks for 's"
        with pytest.raises(RunError, match=says):
            deploy("fedgp-auto", "refused")
        deploy("fedda-auto", "ended")
        with pytest.raises(RunError, match=r"round 2 cannot be done.*'source-1' sends nothing.*max-epsilon"):
            deploy("fedda-auto", "stopped")

    for domain, folder in sites.items():
        assert stat.S_IMODE((folder / "sent.jsonl").stat().st_mode) == 0o600
        lines = read_log(folder)
        numbers = dict.fromkeys(line["run"] for line in lines)
        runs = [[line for line in lines if line["run"] == number] for number in numbers]
        asked, ended, stopped = runs
        assert {line["message"] for line in asked} == {"query.role"}
        assert ("refused" in asked[0]) == (domain == "target")
        assert not any("refused" in line or "failed" in line for line in ended)
        failed = [line["round"] for line in stopped if "refused" in line or "failed" in line]
        assert failed == ([2] if domain == "source-1" else [])
        trained = [line for line in ended if line["message"] == "train"]
        assert [line["round"] for line in trained] == [1, 2]
        for line in trained:
            batches = line["records"].get("batch-updates")
            assert (batches is None) == (domain == "source-1")
            assert batches is None or batches["arrays"] == {"norms": ["float64", [4]]}

    done = tmp_path / "ended"
    told = [record["privacy"]["source-1"]["epsilon"] for record in RunFolder(done).read_rounds()]
    assert told == pytest.approx([spent(1), spent(2)])
    (kept,) = RunFolder(tmp_path / "stopped").read_rounds()
    assert kept["privacy"]["source-1"]["epsilon"] == pytest.approx(spent(3))
    found = verify(done)
    assert (found.rounds, found.problems) == (2, ())
    changed = shutil.copytree(done, tmp_path / "changed")
    lines = (changed / "rounds.jsonl").read_text()
    (changed / "rounds.jsonl").write_text(lines.replace('"round": 1,', '"round": 1, "better": true,'))
    assert verify(changed, found.last).problems == ("the record of round 1 has changed",)
