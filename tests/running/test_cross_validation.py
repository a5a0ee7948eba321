"""Selection in whole runs: what chooses, what it does not see, when a run stops, and how it goes on."""

from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from naming import names
from whole_runs import PowerCutError, same_bits

import fda_flower.client_app
from fda_flower import RunConfig, load
from fda_flower.datasets import load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.records.folder import CHOSEN, RunFolder
from fda_flower.running.run import run, run_config
from fda_flower.server_app import run_server

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"model": "mlp", "rounds": 4, "target_samples": 60, "sources": 2}
FIGURES = ("validation", "selected", "selected-by")


def chosen(history):
    return [[record.get(name) for name in FIGURES] for record in history]


@pytest.mark.parametrize(
    "settings",
    [
        {"validation": 0.2, "patience": 1, "rounds": 8},
        {"validation": "cv:2"},
        {"validation": 0.2, "method": "ditto"},
        {"validation": 0.2, "method": "knn-per"},
        {"validation": 0.2, "method": "apfl"},
        {"validation": 0.2, "method": "fedrep"},
        {"validation": 0.2, "method": "mixture", "method_options": {"every": 2}},
        {"validation": 0.2, "method": "central:s+t"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_no_test_label_has_a_say_in_the_choice_of_a_round_or_in_stopping(settings, shuffled):
    before = run(**{**SETTINGS, **settings})
    shuffled()
    after = run(**{**SETTINGS, **settings})
    assert chosen(after.history) == chosen(before.history)
    assert after.history[-1]["selected"] is not None
    assert after.accuracies != before.accuracies
    assert same_bits(after.model, before.model)


def test_the_figure_is_that_of_the_samples_held_out():
    config = RunConfig(**SETTINGS, validation=0.2)
    result = run_config(config)
    client = fda_flower.client_app.make_client(config, "target")
    client.load(result.model)
    held = load_federation(config.data).domains["target"].validation
    assert held is not None
    with torch.no_grad():
        client.model.eval()
        right = client.model(torch.from_numpy(held.x)).argmax(dim=1).numpy() == held.y
    assert result.history[-1]["validation"] == pytest.approx(right.mean())


def test_the_round_chosen_is_in_the_summary_and_its_model_kept_beside_the_last(tmp_path):
    result = run(**SETTINGS, validation=0.2, output=tmp_path / "whole")
    figures = [record["validation"] for record in result.history]
    best = figures.index(max(figures)) + 1
    assert result.summary["selected-round"] == best
    assert result.summary["selected"] == result.history[best - 1]["accuracy"]
    assert result.summary["validation"] == max(figures)
    assert [record["selected"] for record in result.history] == [
        int(np.argmax(figures[: number + 1])) + 1 for number in range(len(figures))
    ]
    kept = RunFolder(tmp_path / "whole").load_checkpoint(CHOSEN)
    assert kept.round == best
    assert same_bits(run(**{**SETTINGS, "rounds": best}, validation=0.2).model, kept.model)


@pytest.mark.parametrize("method", ["fedgp-auto", "ditto", "central:s+t"])
def test_what_the_target_uses_is_kept_of_the_round_chosen(method, tmp_path):
    settings = {**SETTINGS, "method": method, "validation": 0.2}
    run(**{**settings, "rounds": 2}, output=tmp_path / "long")
    result = run(**settings, output=tmp_path / "long", resume=True)
    best = result.summary["selected-round"]
    run(**{**settings, "rounds": best}, output=tmp_path / "short")
    kept, alike = load(tmp_path / "long/selected"), load(tmp_path / "short")
    assert kept.about.round == alike.about.round == best
    test = load_federation(result.config.data).domains["target"].test
    np.testing.assert_array_equal(kept.outputs(test), alike.outputs(test))
    right = (kept.predict(test.x) == test.y).mean()
    assert 100 * right == pytest.approx(result.accuracies[best - 1])
    assert load(tmp_path / "long").about.round == SETTINGS["rounds"]


STOPS: dict[str, Any] = {**SETTINGS, "rounds": 30, "validation": 0.2, "patience": 1, "learning_rate": 1e-6}


def test_a_run_stops_when_the_figure_has_not_improved_and_resume_leaves_it_so(tmp_path):
    result = run(**STOPS, output=tmp_path)
    rounds = len(result.history)
    assert rounds == result.summary["rounds"] < 30
    assert result.summary["epochs"] == {"source": rounds, "target": rounds}
    assert result.history[-1]["selected"] == rounds - 1
    again = run(**STOPS, output=tmp_path, resume=True)
    assert again.history == result.history
    longer = run(**{**STOPS, "patience": 2}, output=tmp_path, resume=True)
    assert len(longer.history) > rounds
    *before, last = result.history
    assert "confusion" in last, "the round that ended the run has what only a last one has"
    assert "confusion" in again.summary
    last.pop("confusion")
    assert longer.history[:rounds] == [*before, last]
    found = RunFolder(tmp_path).read_rounds()
    assert ["confusion" in record for record in found] == [False] * (len(found) - 1) + [True]


def test_a_round_that_might_have_been_the_last_keeps_nothing_of_it(tmp_path):
    settings = {**SETTINGS, "rounds": 6, "validation": 0.2, "patience": 2, "learning_rate": 0.01}
    history = run(**settings, output=tmp_path).history
    chosen = [record["selected"] for record in history]
    assert chosen[1:4] == [2, 2, 4], "the fourth round is better, where the run might have ended"
    assert "confusion" in history[-1]
    assert not any("confusion" in record for record in history[:-1])
    assert RunFolder(tmp_path).read_rounds() == history


def test_the_figure_that_chooses_defines_the_run(tmp_path):
    run(**{**SETTINGS, "rounds": 1}, validation=0.2, output=tmp_path / "chosen")
    with pytest.raises(ConfigError, check=names(str(tmp_path / "chosen"))):
        run(**SETTINGS, validation=0.2, metric="macro-f1", output=tmp_path / "chosen", resume=True)
    run(**{**SETTINGS, "rounds": 1}, output=tmp_path / "shown")
    run(**SETTINGS, metric="macro-f1", output=tmp_path / "shown", resume=True)


def test_cross_validation_judges_the_run_with_all_labels_by_the_mean_over_folds(tmp_path):
    seen: list[tuple[object, int]] = []
    result = run(
        **SETTINGS,
        validation="cv:3",
        output=tmp_path,
        on_round=lambda record: seen.append((record.get("fold"), record["round"])),
    )
    folds = [RunFolder(tmp_path / "validation" / f"fold-{k}").read_rounds() for k in (1, 2, 3)]
    means = [np.mean([record["validation"] for record in records]) for records in zip(*folds, strict=True)]
    assert [record["validation"] for record in result.history] == pytest.approx(means)
    assert {record["selected-by"] for record in result.history} == {"folds"}
    assert result.history[-1]["selected"] == int(np.argmax(means)) + 1
    assert result.history[-1]["target"]["examples"] == 60
    assert [fold[0]["target"]["examples"] for fold in folds] == [40, 40, 40]
    assert seen[:5] == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1)]
    assert seen[-1] == (None, 4)
    plain = run(**SETTINGS)
    assert plain.accuracies == result.accuracies
    assert not any(name in record for record in plain.history for name in FIGURES)
    assert "selected" not in plain.summary
    again = run(**SETTINGS, validation="cv:3", output=tmp_path, resume=True)
    assert again.history == result.history


@pytest.mark.parametrize(("validation", "fold"), [("cv:2", 2), (0.2, None)])
def test_a_resumed_run_chooses_as_one_that_was_never_cut_off(validation, fold, tmp_path):
    def cut(record):
        if (record.get("fold"), record["round"]) == (fold, 2):
            raise PowerCutError

    with pytest.raises(PowerCutError):
        run(**SETTINGS, validation=validation, output=tmp_path, on_round=cut)
    resumed = run(**SETTINGS, validation=validation, output=tmp_path, resume=True)
    assert chosen(resumed.history) == chosen(run(**SETTINGS, validation=validation).history)


@pytest.mark.parametrize("method", ["fedgp-auto", "central:s+t"])
def test_cross_validation_stops_the_run_with_all_labels(method):
    stopped = run(**{**STOPS, "method": method, "validation": "cv:2", "rounds": 10})
    assert len(stopped.history) < 10
    assert {record["selected-by"] for record in stopped.history} == {"folds"}


@pytest.mark.parametrize(
    "settings",
    [
        {"target_samples": 12, "validation": 0.2},
        {"validation": "cv:5", "engine": "deploy", "connection": "nowhere"},
    ],
)
def test_a_run_that_cannot_hold_out_labels_is_refused_before_it_begins(settings, tmp_path):
    with pytest.raises(ConfigError, check=names("validation", ANY)):
        run(**{**SETTINGS, **settings}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_that_runs_once_refuses_cross_validation():
    config = RunConfig(**SETTINGS, validation="cv:5")
    with pytest.raises(ConfigError, check=names("validation", ANY, "fold:1/5")):
        run_server(LocalGrid(fda_flower.client_app.make_client_app(config), 3), config)
