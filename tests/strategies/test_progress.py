"""The records of a run's rounds, in memory and in its folder."""

import numpy as np
import pytest
from naming import names

from fda_flower.errors import RunError
from fda_flower.records.folder import Progress
from fda_flower.strategies import RunFolder

MODEL = {"w": np.zeros(2, np.float32)}
CONFUSION = {"confusion": {"counts": [[1]]}}


def record(number, held=None):
    return {"round": number, "held": held, "target": None}


def finish(progress, *records):
    for each in records:
        progress.note(each["held"])
        progress.finish(each, len(records), MODEL, dict, chosen=False)


def test_of_a_round_that_another_one_follows_what_only_a_last_one_has_does_not_count(tmp_path):
    """Its line is not written again."""
    folder = RunFolder(tmp_path)
    progress = Progress(folder, 3, None)
    progress.begin(0, MODEL)
    may_be_last = {**record(1), "target": {"loss": 1.0, **CONFUSION}, **CONFUSION}
    finish(progress, may_be_last)
    assert folder.read_rounds() == progress.history == [may_be_last]
    line = (tmp_path / "rounds.jsonl").read_text()
    finish(progress, {**record(2), **CONFUSION})
    before = {**record(1), "target": {"loss": 1.0}}
    assert folder.read_rounds() == progress.history == [before, {**record(2), **CONFUSION}]
    assert (tmp_path / "rounds.jsonl").read_text().startswith(line)


def test_without_a_folder_there_is_nothing_to_resume():
    progress = Progress(None, 3, None)
    progress.begin(0, MODEL)
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
    with pytest.raises(RunError, match="no target", check=names("held rounds", 2)):
        finish(resumed, record(4, "no target"))
    assert [each["round"] for each in RunFolder(tmp_path).read_rounds()] == [1, 2, 3, 4]
