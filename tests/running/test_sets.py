"""Sets and intervals of a run's model: in its record, on files, in other programs."""

import csv
from fractions import Fraction
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from naming import names
from typer.testing import CliRunner

from fda_flower import ConfigError, load, run
from fda_flower.aggregation import Calibration
from fda_flower.cli.app import app
from fda_flower.clients.calibration import keep_calibration, kept_calibration
from fda_flower.clients.private_state import PrivateState
from fda_flower.prediction.export import Probabilities
from fda_flower.prediction.new_samples import NONE_FITS, write_predictions
from fda_flower.runs.model_folder import own_test_set

pytestmark = pytest.mark.slow

LABELS = 30
SETTINGS: dict[str, Any] = {"device": "cpu", "seed": 1, "target_samples": LABELS, "method": "ridge"}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    return run(**SETTINGS, shift="rotate", output=tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return run(**SETTINGS, dataset="rbf", output=tmp_path_factory.mktemp("numbers"))


def written(model, new, path, coverage):
    write_predictions(model, new, path, coverage)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.smoke
def test_sets_hold_the_classes_that_a_held_out_label_would_have_been_as_unlikely_as(classes, tmp_path):
    model = load(classes.path)
    new = own_test_set(model, classes.path)
    shares, sets = model.predict_proba(new.samples), model.predict_set(new.samples, 0.9)
    limit = np.sort(model.calibration.scores[:, 0])[27]  # the 28th of 30
    np.testing.assert_array_equal(sets, 1 - shares <= limit)
    rows = written(model, new, tmp_path / "p.csv", 0.9)
    found = ["; ".join(compress("0123456789", row)) or NONE_FITS for row in sets]
    assert [row["set"] for row in rows] == found
    with torch.no_grad():
        _, exported = Probabilities(model, model.thresholds(0.9))(torch.from_numpy(new.samples.x))
    assert (exported.numpy() == sets).mean() > 0.999


def test_an_empty_set_says_that_none_fits(classes, tmp_path):
    model = load(classes.path)
    model.calibration = Calibration(np.full((9, 1), 0.01), np.zeros(9, np.int64))
    rows = written(model, own_test_set(model, classes.path), tmp_path / "p.csv", 0.9)
    assert NONE_FITS in {row["set"] for row in rows}


def test_the_record_and_the_summary_tell_what_the_usual_sets_reach(classes):
    model, figures = load(classes.path), classes.history[-1]["sets"]
    new = own_test_set(model, classes.path)
    sets, y = model.predict_set(new.samples), new.samples.y
    single = sets.sum(axis=1) == 1
    held = sets[np.arange(len(y)), y]
    assert figures == pytest.approx(
        {
            "asked": 0.9,
            "coverage": held.mean(),
            "size": sets.sum(axis=1).mean(),
            "single": single.mean(),
            "single-right": held[single].mean(),
        }
    )
    assert classes.summary["sets"] == figures
    assert "metrics" not in classes.history[-1]


def test_intervals_are_in_the_unit_of_the_label(numbers, tmp_path):
    model = load(numbers.path)
    new = own_test_set(model, numbers.path)
    low, high = model.predict_interval(new.samples)
    labels = model.labels(new.samples.y).reshape(low.shape)
    figures = numbers.history[-1]["sets"]
    assert figures["coverage"] == pytest.approx(((low <= labels) & (labels <= high)).mean())
    assert figures["width"] == pytest.approx((high - low).mean(), rel=1e-5)
    (row, *_) = written(model, new, tmp_path / "p.csv", 0.9)
    assert float(row["low-1"]) == pytest.approx(low[0, 0], rel=1e-5)
    assert float(row["high-2"]) == pytest.approx(high[0, 1], rel=1e-5)


@pytest.mark.parametrize("coverage", [0.97, 1.0, 0.0, -1.0])
def test_what_the_labels_cannot_promise_is_refused(classes, coverage):
    with pytest.raises(ConfigError, check=names("coverage", coverage)):
        load(classes.path).thresholds(coverage)
    assert load(classes.path).calibration.most == Fraction(LABELS, LABELS + 1)


def test_a_model_without_scores_says_so_and_a_task_names_its_own_call(classes, numbers):
    model = load(classes.path)
    with pytest.raises(ConfigError, check=names("model", remedy="call predict_set")):
        model.predict_interval(np.zeros((1, 1, 8, 8)))
    with pytest.raises(ConfigError, check=names("model", remedy="call predict_interval")):
        load(numbers.path).predict_set(np.zeros((1, 2)))
    model.calibration = None
    with pytest.raises(ConfigError, check=names("coverage", 0.9)):
        model.predict_set(np.zeros((1, 1, 8, 8)))


def test_scores_are_not_those_of_a_model_that_noise_has_changed():
    state, model = PrivateState(RecordDict()), {"w": np.ones(3, np.float32)}
    keep_calibration(state, model, Calibration.of(np.eye(2), np.array([0, 1])))
    assert kept_calibration(state, model) is not None
    assert kept_calibration(state, {"w": model["w"] + np.float32(1e-6)}) is None


def test_the_commands_say_for_whom_the_promise_holds(classes, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["predict", str(classes.path), "--coverage", "0.9"])
    assert "90% of cases" in done.output
    assert f"the {LABELS} labelled ones" in done.output
    assert "set" in Path("predictions.csv").read_text().splitlines()[0].split(",")
    done = CliRunner().invoke(app, ["evaluate", str(classes.path), "--coverage", "0.8"])
    assert "Sets for 80%" in done.output


@pytest.mark.parametrize("student", [False, True])
def test_a_mixture_and_its_student_have_sets(student, tmp_path):
    settings = {**SETTINGS, "method": "mixture", "method_options": {"student": student}}
    result = run(**settings, shift="rotate", rounds=2, output=tmp_path)
    assert load(tmp_path).calibration.labels == LABELS
    assert 0.7 < result.history[-1]["sets"]["coverage"] <= 1


def test_the_graph_has_the_sets_as_a_further_output(classes, numbers, tmp_path):
    import onnxruntime

    for whole, ends in ((classes, ["set"]), (numbers, ["low", "high"])):
        path = tmp_path / "model.onnx"
        arguments = ["export", str(whole.path), "--output", str(path), "--coverage", "0.9"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        model, session = load(whole.path), onnxruntime.InferenceSession(path)
        samples = own_test_set(model, whole.path).samples
        found = session.run(ends, {"samples": samples.x.float().numpy()})
        if whole is classes:
            assert (found[0] == model.predict_set(samples)).mean() > 0.999
        else:
            for end, expected in zip(found, model.predict_interval(samples), strict=True):
                np.testing.assert_allclose(end.ravel(), expected.ravel(), rtol=1e-4, atol=1e-4)
