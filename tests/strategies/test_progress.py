"""The records of a run's rounds, in memory and in its folder."""

import numpy as np
import pytest

from fda_flower.errors import RunError
from fda_flower.strategies import RunFolder
from fda_flower.strategies.progress import Progress

MODEL = {"w": np.zeros(2, np.float32)}
CONFUSION = {"confusion": {"counts": [[1]]}}


def record(number, held=None, **more):
    return {"round": number, "held": held, "target": None, **more}


def finish(progress, *records):
    for each in records:
        progress.note(each["held"])
        progress.finish(each, len(records), MODEL, dict, chosen=False)


def test_a_round_that_another_one_follows_loses_what_only_a_last_one_has(tmp_path):
    folder = RunFolder(tmp_path)
    progress = Progress(folder, 3, None)
    progress.begin(0, MODEL)
    finish(progress, record(1), record(2, target={"loss": 1.0, **CONFUSION}, **CONFUSION))
    assert folder.read_rounds() == progress.history
    progress.go_on()
    assert progress.history == [record(1), record(2, target={"loss": 1.0})]
    assert folder.read_rounds() == progress.history


def test_only_the_last_record_is_looked_at_and_only_a_change_is_written(tmp_path, monkeypatch):
    progress = Progress(RunFolder(tmp_path), 3, None)
    progress.begin(0, MODEL)
    earlier = record(1, **CONFUSION)
    finish(progress, earlier, record(2))
    monkeypatch.setattr(RunFolder, "begin", None)
    progress.go_on()
    assert progress.history[0] is earlier


def test_a_folder_that_will_be_written_anyway_is_left_alone(tmp_path, monkeypatch):
    progress = Progress(RunFolder(tmp_path), 3, None)
    progress.begin(0, MODEL)
    finish(progress, record(1, **CONFUSION))
    monkeypatch.setattr(RunFolder, "begin", None)
    progress.go_on(write=False)
    assert progress.history == [record(1)]


def test_without_a_folder_there_is_nothing_to_resume():
    progress = Progress(None, 3, None)
    progress.begin(0, MODEL)
    progress.go_on()
    assert progress.open({}) is None


def test_held_rounds_are_counted_in_a_row_and_on_after_a_resume(tmp_path):
    told = []
    progress = Progress(RunFolder(tmp_path, resume=True), 2, told.append)
    assert progress.open({}) is None
    progress.begin(0, MODEL)
    finish(progress, record(1, "no reply"), record(2), record(3, "no reply"))
    progress.close()
    resumed = Progress(RunFolder(tmp_path, resume=True), 2, None)
    resumed.open({})
    assert resumed.history == progress.history == told
    with pytest.raises(RunError, match=r"2 rounds in a row \(no target\)"):
        finish(resumed, record(4, "no target"))
    assert [each["round"] for each in RunFolder(tmp_path).read_rounds()] == [1, 2, 3, 4]
