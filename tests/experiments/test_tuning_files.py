"""A search's tables, picture, and best settings."""

import json

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

from fda_flower import RunConfig
from fda_flower.experiments.spaces import read_spaces
from fda_flower.experiments.tuning import TrialResult, Tuning
from fda_flower.experiments.tuning_files import (
    as_toml,
    best_json,
    plot_trials,
    trials_csv,
    trials_markdown,
    write_tuning,
)


def tried(rate, size, mu):
    return {"learning-rate": rate, "batch-size": size, "method-option.mu": mu}


SOME = Tuning(
    read_spaces(["learning-rate=log:1e-4..1e-1", "batch-size=4,8", "method-option.mu=0..10"]),
    [
        TrialResult(1, tried(0.001, "4", 5), "complete", 0.5, 7.0),
        TrialResult(2, tried(0.05, "8", 1), "pruned"),
        TrialResult(3, tried(0.01, "8", 2), "complete", 0.75, 3.5),
        TrialResult(4, {}, "failed", reason="a | b"),
        TrialResult(5, tried(0.02, "4", 2), "failed"),
    ],
    "accuracy",
)


def test_the_tables_of_trials():
    assert trials_markdown(SOME).splitlines() == [
        "| Trial | learning-rate | batch-size | method-option.mu | validation accuracy (%) | round | state |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 1 | 0.001 | 4 | 5 | 50.0 | 7 | complete |",
        "| 2 | 0.05 | 8 | 1 | - | - | pruned |",
        "| **3** | **0.01** | **8** | **2** | **75.0** | **3.5** | **complete** |",
        "| 4 | - | - | - | - | - | failed: a \\| b |",
        "| 5 | 0.02 | 4 | 2 | - | - | failed |",
    ]
    assert trials_csv(SOME).splitlines()[:2] == [
        "trial,learning-rate,batch-size,method-option.mu,validation_accuracy,round,state,reason",
        "1,0.001,4,5,50.0,7.0,complete,",
    ]


@pytest.mark.parametrize(
    ("figures", "floor", "marked", "doubts"),
    [
        ([0.5, 0.75, 0.6], 0.5, [2], 0),
        ([0.5, 0.75, 0.75], None, [2, 3], 1),
        ([0.4, 0.5, 0.3], 0.5, [], 1),
        ([0.1, 0.1, 0.1], 0.1, [], 2),
    ],
)
def test_no_trial_is_marked_where_held_out_labels_prefer_none(figures, floor, marked, doubts):
    trials = [TrialResult(number, {}, "complete", figure, 7) for number, figure in enumerate(figures, 1)]
    tuning = Tuning({}, trials, "accuracy", floor)
    table = trials_markdown(tuning)
    assert [number for number in (1, 2, 3) if f"| **{number}** |" in table] == marked
    assert len(tuning.doubts) == doubts
    assert all(doubt in table for doubt in tuning.doubts)


def test_what_to_put_into_an_experiments_file():
    assert as_toml(SOME) == "learning-rate = 0.01\nbatch-size = 8\nmethod-options.mu = 2"
    words = Tuning(SOME.spaces, [TrialResult(1, {"optimizer": "sgd"}, "complete", 0.5, 1.0)], "accuracy")
    assert as_toml(words) == 'optimizer = "sgd"'


def test_the_best_settings_are_a_run_that_trains_on_all_labels():
    config = RunConfig(learning_rate=0.01, target_samples=60, validation=0.2)
    found = json.loads(best_json(SOME, config))
    assert RunConfig(**found["settings"]) == RunConfig(learning_rate=0.01, target_samples=60)
    assert found["found"]["trial"] == 3
    assert found["validation"] == {"by": "0.2", "metric": "accuracy", "figure": 0.75}


def test_the_picture_has_a_panel_for_each_setting_with_a_marker_for_each_complete_trial(tmp_path):
    style = dict(matplotlib.rcParams)
    panels = [axis for axis in plot_trials(SOME).axes if axis.get_xlabel()]
    assert {axis.get_xlabel(): axis.get_xscale() for axis in panels} == {
        "learning-rate": "log",
        "batch-size": "linear",
        "method-option.mu": "linear",
    }
    for axis in panels:
        figures = np.concatenate([np.asarray(c.get_offsets())[:, 1] for c in axis.collections])
        assert sorted(figures) == [50.0, 75.0]
    assert not pyplot.get_fignums()
    assert dict(matplotlib.rcParams) == style
    assert [path.name for path in write_tuning(SOME, tmp_path)] == ["trials.md", "trials.csv", "trials.png"]


def test_a_search_without_a_complete_trial_has_no_picture(tmp_path):
    failed = Tuning(SOME.spaces, [TrialResult(1, {}, "failed", reason="no")], "accuracy")
    assert failed.best is None
    written = write_tuning(failed, tmp_path)
    assert [path.name for path in written] == ["trials.md", "trials.csv"]
    assert all(path.exists() for path in written)
