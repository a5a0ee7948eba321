"""The records of an experiment in one file, ``results/records/NAME.jsonl.xz``: all that its page needs.

The first line has the changed settings of the experiment. Each further line is a run: its cell, settings and
summary, and a record for each round with its scores, and with the estimates for each source if the page draws
them. The last 5 rounds also have the outcomes of test samples if the page has regrets, and the last one has
everything but costs. Numbers that stand in no table have 4 significant digits.
"""

import json
import lzma
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fda_flower.experiments import Experiment
from fda_flower.experiments.definition import read_experiment
from fda_flower.experiments.folders import DEFINITION, read_mark, read_runs
from fda_flower.experiments.results import results_of
from fda_flower.records.record import (
    BY,
    LAST,
    MEAN_OF_LABELS,
    MOST_FREQUENT,
    SELECTED,
    TEST_EXAMPLES,
    VALIDATION,
)
from fda_flower.reporting import Results
from fda_flower.reporting.results import RecordedRun
from fda_flower.reporting.summary import ACCURACY, AVERAGE, BALANCED, PARAMETERS, REFUSED
from fda_flower.runs.config import RunConfig

RECORDS = Path(__file__).parents[1] / "results" / "records"
REFERENCES = "references.csv"
"""In a folder of runs, the figures of references on the same data; packed next to the records."""
SCORES = ("warmup", TEST_EXAMPLES, VALIDATION, SELECTED, BY)
LATE_SCORES = tuple(f"{name}{end}" for name in (BALANCED, "outcomes", TEST_EXAMPLES) for end in ("", AVERAGE))
ESTIMATES = ("beta", "weight", "sigma2", "d2", "tau2-d2")
COSTS = ("chain", "sizes", "seconds", "bytes-received")
BASELINE = (MEAN_OF_LABELS, "confusion")
EARLIER = {"dp_buffers": "local", "on_large_update": "clip", "proximal": 0.0}
"""Settings of earlier versions, with the value that a run still has."""
UNTRAINED, USUAL_RATE = ("mlp", "lenet"), 0.003
"""Networks that begin untrained, and their learning rate where a run says none; earlier ones said it."""
TABLES = ("heart", "table")
"""Data sets whose columns were each site's own before there was a setting for them."""


FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""The strongest compression, by the context of a byte alone, as in text."""


def records_of(name: str) -> Path:
    """Return the file of an experiment's records."""
    return RECORDS / f"{name}.jsonl.xz"


def references_of(name: str) -> Path:
    """Return the file of the references of an experiment."""
    return RECORDS / f"{name}.{REFERENCES}.xz"


def read_results(experiment: Experiment) -> Results:
    """Return the results in an experiment's records."""
    settings, runs = _read(records_of(experiment.name))
    runs = {
        cell: RecordedRun(
            label="",
            seed=run["run"]["seed"],
            history=run["history"],
            notes={"rounds": run["rounds"]},
            summary={**run["summary"], "rounds": len(run["history"])},
        )
        for cell, run in runs.items()
    }
    return results_of(experiment, settings, runs)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        first, *runs = map(json.loads, lines)
    return first["settings"], {run.pop("cell"): run for run in runs}


def pack(folder: Path) -> Path:
    """Add an experiment's runs in a folder to its records, and replace earlier ones; return the file."""
    mark = read_mark(folder)
    path = records_of(mark["experiment"])
    settings, runs = _read(path) if path.exists() else (mark["settings"], {})
    if settings != mark["settings"]:
        raise SystemExit(f"'{folder}' has the settings {mark['settings']}, but {path.name} has {settings}")
    new = {name: packed(run) for name, run in read_runs(folder).items() if run.whole}
    runs |= new
    check_cells(runs, new)
    experiment = read_experiment(folder / DEFINITION)
    write(path, settings, {name: for_page(run, experiment) for name, run in runs.items()})
    if (references := folder / REFERENCES).exists():
        _compress(references.read_text(encoding="utf-8"), references_of(mark["experiment"]))
    return path


def check_cells(runs: Mapping[str, Mapping[str, Any]], new: Collection[str]) -> None:
    """End if the runs of a cell with a new one, by name, differ in more than the seed."""
    cells = {cell_of(name) for name in new}
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in [*new, *runs]:
        if (cell := cell_of(name)) in cells:
            ours = defining(runs[name]["run"])
            other, theirs = first.setdefault(cell, (name, ours))
            for key in sorted(ours.keys() | theirs.keys()):
                if ours.get(key) != theirs.get(key):
                    raise SystemExit(
                        f"the runs of cell '{cell}' differ in {key}: {theirs.get(key)!r} in '{other}', "
                        f"{ours.get(key)!r} in '{name}'; run all its seeds with the same settings"
                    )


def cell_of(name: str) -> str:
    """Return the cell in a run's name."""
    return name.rpartition("-seed")[0]


def defining(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that define a packed run, except its seed, in the words of this version."""
    columns = {"columns": "own"} if run["dataset"] in TABLES else {}
    settings = {**_defaults(), **columns, **run}
    if settings.pop("batches", None) == "even" and settings["variant"] == "reference-code":
        settings["variant"] = "reference-rules"
    if settings["learning_rate"] is None and settings["model"] in UNTRAINED:
        settings["learning_rate"] = USUAL_RATE
    return {
        key: value for key, value in settings.items() if key != "seed" and (key, value) not in EARLIER.items()
    }


@cache
def _defaults() -> dict[str, Any]:
    return RunConfig().fingerprint()


def for_page(run: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Return a run's line without what the experiment's page does not use."""
    history = [dict(record) for record in run["history"]]
    if "betas" not in experiment.figures:
        history[:-1] = [{**record, "sources": {}} for record in history[:-1]]
    if experiment.report != "regret":
        history = [
            {key: value for key, value in record.items() if not key.startswith("outcomes")}
            for record in history
        ]
    return {**run, "history": history}


def write(path: Path, settings: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the lines of an experiment's records."""
    lines = [{"settings": settings}, *({"cell": cell, **run} for cell, run in sorted(runs.items()))]
    text = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
    _compress(text, path)


def _compress(text: str, path: Path) -> None:
    path.write_bytes(lzma.compress(text.encode(), filters=FOR_TEXT))


def packed(run: RecordedRun) -> dict[str, Any]:
    """Return what a run's line has."""
    metric = run.summary.get("metric", ACCURACY)
    rounds = [_of_any_round(record, metric) for record in run.history]
    for kept, record in zip(rounds[-LAST:], run.history[-LAST:], strict=True):
        kept |= {key: record[key] for key in LATE_SCORES if key in record}
    if rounds:
        rounds[-1] = {**_of_last_round(run.history[-1]), **rounds[-1]}
    return {
        "run": {key: value for key, value in run.fingerprint.items() if key != "strategy"},
        "rounds": run.notes.get("rounds", len(rounds)),
        "versions": run.notes.get("versions", {}),
        "summary": {key: run.summary[key] for key in (PARAMETERS, "epochs", REFUSED) if key in run.summary},
        "history": rounds,
    }


def _of_any_round(record: Mapping[str, Any], metric: str) -> dict[str, Any]:
    estimated = {
        name: {key: rounded(entry[key]) for key in ESTIMATES if entry.get(key) is not None}
        for name, entry in record["sources"].items()
    }
    names = (*SCORES, metric, f"{metric}{AVERAGE}")
    scores = {key: record[key] for key in names if record.get(key) is not None}
    return {**scores, "sources": {name: entry for name, entry in estimated.items() if entry}}


def _of_last_round(record: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: rounded(value) for key, value in record.items() if key not in (*COSTS, *BASELINE, "sources")}
    if MEAN_OF_LABELS in record:
        rest[MEAN_OF_LABELS] = record[MEAN_OF_LABELS]
    if MOST_FREQUENT in record.get("confusion", {}):
        rest["confusion"] = {MOST_FREQUENT: record["confusion"][MOST_FREQUENT]}
    return rest


def rounded(value: Any) -> Any:
    """Return a JSON value whose floats have 4 significant digits."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list():
            return [rounded(each) for each in value]
    return value
