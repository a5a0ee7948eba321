"""Folders of runs made by hand."""

import json
from pathlib import Path

from fda_flower import RunConfig
from fda_flower.runs.settings import SETTINGS

RECORD = {
    **{"warmup": False, "held": None, "target": {"domain": "target", "examples": 50}, "dropped": []},
    **{"missing": [], "bytes-received": 1000, "loss": 1.0, "seconds": {"train": 1.0}},
}


def records(rounds, accuracy=0.5):
    sources = {"source-1": {"domain": "source-1", "examples": 300, "beta": 0.25, "sigma2": 1.0}}
    return [{**RECORD, "round": n + 1, "accuracy": accuracy, "sources": sources} for n in range(rounds)]


def make_run(folder, rounds=3, done=True, **settings):
    config = RunConfig(**{"dataset": "digits", "shift": "rotate", "rounds": max(rounds, 3), **settings})
    folder.mkdir(parents=True)
    found = {"run": config.fingerprint(), "settings": config.settings(), "rounds": 3, "device": "cpu"}
    (folder / "config.json").write_text(json.dumps(found))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records(rounds)))
    if done:
        (folder / "summary.json").write_text("{}")
    return folder


def files_below(folder):
    """The contents of all files but for the lock, which a writer may leave."""
    files = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.read_bytes() for path in files}


def settings_in(arguments):
    """The settings of a run among the arguments of a call."""
    return {each.name: arguments[each.name] for each in SETTINGS if each.name in arguments}
