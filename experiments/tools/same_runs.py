"""Whether a change keeps each method's bits: before it ``same_runs.py A.json``, later ``... B.json A.json``.

Runs every method on a few digits, and Ridge and Mixture in their other forms on heart (in ``FDA_DATA_DIR``);
writes a digest of each run's model and its records, without seconds, sizes and hash chain. With a second file
it lists each entry that differs, and exits with 1 if one does.
"""

import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}

import numpy as np
import torch
from torch import nn

from fda_flower import run
from fda_flower.runs.methods import FAMILIES

LEFT_OUT = {"seconds", "chain", "sizes"}
DIGITS = {"shift": "rotate", "sources": 3, "source_samples": 60, "target_samples": 40, "test_samples": 60}
PIXELS = DIGITS | {"model": "logistic"}
ALL_SITES = {
    "model": "logistic",
    "shift": "rotate",
    "sources": 3,
    "target": "all",
    "target_samples": 40,
    "test_samples": 60,
}
HEART = {"dataset": "heart", "target": "cleveland", "data_dir": os.environ["FDA_DATA_DIR"]}
FORMS: dict[str, dict[str, Any]] = {
    "heart": HEART,
    "heart, all sites": HEART | {"target": "all"},
    "secure": PIXELS | {"method_options": {"secure": True}},
    "pooled": PIXELS | {"method_options": {"paths": "pooled"}},
    "kinds": DIGITS,
    "all sites, secure": ALL_SITES | {"method_options": {"secure": True}},
    "patients": PIXELS | {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0, "dp_open_target": True},
}


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a small network with BatchNorm."""
    body = nn.Conv2d(shape[0], 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(72, classes))


def runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the settings of each run."""
    for prefix, family in FAMILIES.items():
        for method, entry in family.items():
            frozen, normalised = ("frozen body" in entry.needs), ("batch-norm" in entry.needs)
            model = "logistic" if frozen else "same_runs:normed" if normalised else "auto"
            rounds = 1 if method == "ridge" else 2
            yield prefix + method, DIGITS | {"method": prefix + method, "model": model, "rounds": rounds}
    yield "mixture, heart", HEART | {"method": "mixture", "rounds": 2}
    for form, settings in FORMS.items():
        yield f"ridge, {form}", settings | {"method": "ridge"}


def without_times(value: Any) -> Any:
    """Return records without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in LEFT_OUT}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def outcome(settings: dict[str, Any]) -> dict[str, Any]:
    """Run, and return the model's digest and the records."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(**settings, device="cpu", output=Path(folder) / "run")
        lines = (Path(folder) / "run" / "rounds.jsonl").read_text().splitlines()
    digest = hashlib.sha256()
    for name, array in sorted(result.model.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return {"model": digest.hexdigest(), "rounds": [without_times(json.loads(line)) for line in lines]}


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield each entry that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{where}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}/{number}")
    elif before != after:
        yield f"{where}: {str(before)[:80]} -> {str(after)[:80]}"


def main(output: Path, before: Path | None = None) -> int:
    """Write the outcome of every run, and compare it."""
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    outcomes = {}
    for name, settings in runs():
        try:
            outcomes[name] = outcome(settings)
        except Exception as error:
            outcomes[name] = {"error": f"{type(error).__name__}: {error}"}
        print(name, outcomes[name].get("error", ""), flush=True)
    output.write_text(json.dumps(outcomes, indent=1, sort_keys=True))
    found = list(differences(json.loads(before.read_text()), outcomes)) if before else []
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
