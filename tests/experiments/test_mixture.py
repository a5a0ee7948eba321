"""Mixture on whole runs: what is resumed, lost or made longer has the bits of one run in one go."""

import json
import shutil
from typing import Any

import pytest
from sites import write_images, write_table

from fda_flower import run
from fda_flower.experiments import compare

SMALL: dict[str, Any] = {
    **{"method": "mixture", "model": "mlp", "sources": 2, "device": "cpu", "seed": 1},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}
OPTIONS: dict[str, Any] = {"epochs": "1,3"}


class PowerCutError(Exception):
    """Ends a run after a round."""


def cut_after(number):
    def on_round(record):
        if record["round"] == number:
            raise PowerCutError

    return on_round


def untimed(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def kept(path):
    return (path / "clients" / "target" / "mixture.safetensors").read_bytes()


def check_same(one, other):
    """The same records, model and models of the target's own."""
    assert untimed(one.history) == untimed(other.history)
    assert {name: array.tobytes() for name, array in one.model.items()} == {
        name: array.tobytes() for name, array in other.model.items()
    }
    assert kept(one.path) == kept(other.path)


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("warmup", [0, 1])
def test_a_run_that_is_cut_off_and_resumed_is_that_of_one_go(every, warmup, lost, tmp_path):
    settings = {**SMALL, "rounds": 4 - warmup, "warmup_rounds": warmup, "average": "tail:2"}
    settings["method_options"] = {**OPTIONS, "every": every}
    whole = run(**settings, output=tmp_path / "whole")
    with pytest.raises(PowerCutError):
        run(**settings, output=tmp_path / "cut", on_round=cut_after(2))
    if lost:
        shutil.rmtree(tmp_path / "cut" / "clients", ignore_errors=True)
    check_same(run(**settings, output=tmp_path / "cut", resume=True), whole)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_30_rounds_and_then_30_more_end_as_60_in_one_go(lost, tmp_path):
    settings = {**SMALL, "model": "logistic", "method_options": OPTIONS}
    whole = run(**settings, rounds=60, output=tmp_path / "whole")
    short = run(**settings, rounds=30, output=tmp_path / "parts")
    assert "mixture" in short.history[29]
    if lost:
        shutil.rmtree(tmp_path / "parts" / "clients")
    longer = run(**settings, rounds=60, output=tmp_path / "parts", resume=True)
    assert untimed(longer.history[30:]) == untimed(whole.history[30:])
    assert longer.summary["last5"] == whole.summary["last5"] == longer.accuracies[59]
    assert kept(longer.path) == kept(whole.path)


def test_how_often_it_evaluates_changes_nothing_of_the_last_round(tmp_path):
    runs = [run(**SMALL, rounds=3, method_options={**OPTIONS, "every": every}) for every in (0, 1, 2)]
    last = [untimed(each.history)[2] for each in runs]
    for record in last:
        del record["mixture"]["cost"]
    assert last[0] == last[1] == last[2]
    assert [len([a for a in each.accuracies if a == a]) for each in runs] == [1, 3, 2]


def test_without_an_output_folder_the_bits_are_the_same(tmp_path):
    settings = {**SMALL, "rounds": 2, "method_options": {**OPTIONS, "every": 1}}
    assert untimed(run(**settings).history) == untimed(run(**settings, output=tmp_path / "run").history)


DATA: dict[str, dict[str, Any]] = {
    "noisy digits": {"model": "cnn", "shift": "noise"},
    "numbers": {"dataset": "rbf", "model": "sigmoid", "sources": None},
    "images": {
        **{"dataset": "images", "dataset_options": {"domains": "a,b,c", "image_size": 16}, "sources": None},
        **{"target": "c", "model": "resnet9", "model_options": {"width": 2}, "target_samples": 10},
    },
    "tables": {
        **{"dataset": "table", "dataset_options": {"domains": "a,b,c"}, "sources": None, "target": "c"},
        **{"model": "logistic", "source_samples": None, "test_samples": None},
    },
}


@pytest.mark.parametrize("kind", DATA)
def test_it_runs_on_any_data_with_all_members(kind, tmp_path):
    for seed, domain in enumerate("abc"):
        write_table(tmp_path / f"{domain}.csv", seed)
        write_images(tmp_path / domain, seed)
    settings = {**SMALL, **DATA[kind], "rounds": 2}
    if kind in ("tables", "images"):
        settings |= {"data_dir": str(tmp_path), "source_samples": None, "test_samples": None}
    settings = {key: value for key, value in settings.items() if value is not None}
    members = "sources,target,tuned,head,blend,prior"
    result = run(**settings, method_options={**OPTIONS, "members": members, "folds": 3})
    found = result.history[-1]["mixture"]
    assert list(found["members"]) == ["sources", "target", "tuned-1", "tuned-3", "head", "blend", "prior"]
    assert sum(member["weight"] for member in found["members"].values()) == pytest.approx(1)
    assert ("temperature" in found["members"]["head"]) == (kind != "numbers")
    assert "evaluation-failed" not in result.history[-1]


def test_with_no_report_a_run_ends_without_an_accuracy_and_with_a_summary(tmp_path):
    settings = {**SMALL, "rounds": 2, "method_options": {**OPTIONS, "report": "none"}}
    result = run(**settings, output=tmp_path / "run")
    assert result.summary["last5"] is result.summary["best"] is None
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["best"] is None
    assert kept(tmp_path / "run")


def test_a_comparison_has_its_row(tmp_path, in_process):
    settings = {key: value for key, value in SMALL.items() if key not in ("method", "seed")}
    found = compare(
        ["source-only", "mixture"], [0, 1], tmp_path / "c", rounds=3, method_options=OPTIONS, **settings
    )
    assert found.failures == {}
    last5, best = (found.results.scores(("", "Mixture", ""), key) for key in ("last5", "best"))
    assert len(last5) == 2
    assert last5 == best
