"""Real runs in W&B's offline mode, in a process of their own: what is left of it afterwards is the test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("wandb")

pytestmark = pytest.mark.slow

CODE = """
import json, os, sys
from pathlib import Path
import psutil
import wandb
from fda_flower.reporting.trackers import TrackedRun, Tracking

folder = Path(sys.argv[1])
run = TrackedRun(folder, folder.parent, {"seed": 3}, {"torch": "2.9"})
own = wandb.init(mode="offline", dir=folder / "own", project="own", settings=wandb.Settings(silent=True))
record = {"accuracy": 0.5, "sources": {"usps": {"beta": 0.25}}}
for rounds in ((1, 2), (3,)):
    with Tracking(["wandb"], run) as shown:
        for number in rounds:
            shown.record({"round": number, **record})
own.log({"mine": 0.125})
own.finish()
assert "WANDB_ERROR_REPORTING" not in os.environ
print(json.dumps([child.pid for child in psutil.Process().children(recursive=True)]))
"""


def test_the_offline_folder_holds_the_run_beside_a_users_own_and_no_process_is_left(tmp_path):
    folder = tmp_path / "runs" / "fedgp-seed3"
    (folder / "own").mkdir(parents=True)
    home = {name: str(tmp_path / name) for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")} | home
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", CODE, folder],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not [pid for pid in json.loads(done.stdout) if psutil.pid_exists(pid)]
    written = sorted(Path(folder.parent, "wandb").glob("offline-run-*/run-*.wandb"))
    state = json.loads((folder / "trackers.json").read_text(encoding="utf-8"))
    assert [path.stem for path in written] == [f"run-{state['wandb'][0]}"] * 2, "one run, in two parts"
    assert state["wandb"][1] == 3
    (own,) = (folder / "own").glob("wandb/offline-run-*/run-*.wandb")
    assert b"mine" in own.read_bytes()
    data = written[0].read_bytes()
    for word in (b"fedgp-seed3", b"accuracy", b"beta/usps", b"seed", b"torch"):
        assert word in data
    host = os.uname().nodename.encode()
    for secret in (bytes([len(host)]) + host, str(Path.home()).encode(), str(tmp_path).encode()):
        assert secret not in data
