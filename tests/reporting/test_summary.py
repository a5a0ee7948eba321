import json
from typing import Any

import numpy as np
import pytest

from fda_flower import RunConfig
from fda_flower.metrics import figures_of_labels, interval, share_interval, units_by_class, units_by_label
from fda_flower.reporting import summarise, write_summary
from fda_flower.reporting.summary import (
    Sampling,
    baseline_in,
    baseline_of,
    describe_interval,
    is_uneven,
    summarise_run,
)
from fda_flower.reporting.words import describe_classes, judge, support_of
from fda_flower.strategies.evaluations import read_confusion, read_details


@pytest.mark.parametrize(
    ("accuracies", "last5", "best"),
    [
        ([0.1, 0.9, 0.3, 0.4, 0.5, 0.6, 0.7], 0.5, 0.9),
        # The last five rounds are the 2nd to the 6th; three of them are known.
        ([1.0, 0.2, None, 0.4, None, 0.6], 0.4, 1.0),
        ([0.3, None, None, None, None, None], None, 0.3),
        ([], None, None),
    ],
)
def test_last5_is_the_mean_of_the_known_of_the_last_five_rounds_and_best_the_highest_of_all(
    history, accuracies, last5, best
):
    summary = summarise(history(*accuracies))
    assert (summary["last5"], summary["best"]) == (
        last5 if last5 is None else pytest.approx(last5),
        best if best is None else pytest.approx(best),
    )
    assert summary["rounds"] == len(accuracies)
    assert json.loads(json.dumps(summary)) == summary


def test_the_averaged_model_has_scores_of_its_own_without_the_warm_up_rounds(history):
    first, second, third = history(0.5, 0.25, 0.75)
    averaged = [{**first, "warmup": True}, {**second, "accuracy-average": 0.5}, third]
    summary = summarise(averaged)
    assert summary["average"] == {"last5": 0.5, "best": 0.5}
    assert (summary["last5"], summary["best"]) == (0.5, 0.75)
    assert "average" not in summarise([first, second, third])


def test_held_rounds_dropped_replies_and_seconds_are_summed_and_the_largest_epsilons_found(record):
    rounds = [
        record(1, 0.1, seconds=2.0) | {"privacy": {"a": {"epsilon": 3.0, "uncovered": ["evaluation"]}}},
        record(2, 0.1, held="no usable reply of the target", dropped=["target"], seconds=3.0),
        record(3, 0.1, held="0 usable replies of sources", dropped=["a", "b"], seconds=4.0)
        | {"privacy": {"b": {"epsilon": 1.0}, "a": {"epsilon": 2.0, "uncovered": ["arrays"]}}},
    ]
    summary = summarise(rounds)
    assert (summary["held-rounds"], summary["dropped"]) == (2, 3)
    assert summary["seconds"] == pytest.approx(2.5 + 3.5 + 4.5)
    bare = ["arrays", "evaluation"]
    assert summary["privacy"] == {"a": {"epsilon": 3.0, "uncovered": bare}, "b": {"epsilon": 1.0}}


@pytest.mark.parametrize(
    ("values", "last5"), [((0.25, 0.75), 0.5), ((None, None), None)], ids=["known", "unknown"]
)
def test_write_summary_writes_the_numbers(history, tmp_path, values, last5):
    config = RunConfig(method="fedavg", seed=7)
    model: dict[str, Any] = {"weight": np.zeros((2, 3), np.float32), "steps": np.zeros((), np.int64)}
    summary = summarise_run(config, history(*values), model)
    write_summary(tmp_path, config, summary)
    text = (tmp_path / "summary.json").read_text(encoding="utf-8")
    numbers = json.loads(text)
    assert summary.items() <= numbers.items()
    assert "NaN" not in text
    assert (numbers["method"], numbers["label"], numbers["seed"]) == ("fedavg", "FedAvg", 7)
    assert (numbers["parameters"], numbers["last5"]) == (6, last5)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_where_less_is_better_the_best_round_is_the_lowest(history):
    rounds = [each | {"rmse": rmse} for each, rmse in zip(history(*[None] * 3), (3.0, 1.0, 2.0), strict=True)]
    summary = summarise(rounds, "rmse")
    assert (summary["metric"], summary["last5"], summary["best"]) == ("rmse", 2.0, 1.0)


def test_the_last_evaluation_is_there_in_full(history):
    first, second, third = history(0.5, 0.75, None)
    counts = {"classes": ["cat", "dog"], "counts": [[2, 0], [1, 1]]}
    size = {"target": {"labelled": 3, "unlabelled": 0, "train": 3, "test": 4}}
    first |= {"test-examples": 4, "confusion": {"classes": ["cat", "dog"], "counts": [[0, 2], [0, 2]]}}
    second |= {"auroc": 0.9, "test-examples": 4, "confusion": counts, "sizes": size}
    summary = summarise([first, second, third])
    assert summary["figures"] == {"accuracy": 0.75, "auroc": 0.9}
    assert (summary["test-samples"], summary["sizes"], summary["confusion"]) == (4, size, counts)
    dog = {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert summary["classes"]["dog"] == dog
    ends = interval("accuracy", 0.625, 4)
    assert ends is not None
    assert summary["interval"] == [*ends]
    assert summary["intervals"] == {"accuracy": list(interval("accuracy", 0.75, 4) or ())}
    assert json.loads(json.dumps(summary)) == summary
    known = summarise(history(0.5))
    assert not {"test-samples", "interval", "confusion", "classes", "sizes"} & known.keys()


MOST = {"class": "ill", "accuracy": 0.75, "balanced-accuracy": 0.5, "auroc": 0.5}


@pytest.mark.parametrize(
    ("accuracy", "begins"),
    [(0.5, "Not better than"), (0.75, "Not better than"), (0.8, "Perhaps not better"), (0.95, "Better than")],
)
def test_a_run_is_judged_by_the_most_frequent_class_that_its_record_has(history, accuracy, begins):
    rounds = history(0.1, *[accuracy] * 5)
    fair = {"balanced-accuracy": 0.25, "auroc": 0.625, "test-examples": 40}
    rounds[-1] |= {"confusion": {"classes": ["ill"], "counts": [[1]], "most-frequent": MOST}, **fair}
    summary = summarise(rounds)
    assert summary["baseline"] == MOST
    assert baseline_in(rounds, "auroc") == 50.0
    first, second, *_ = judge(summary)
    assert first.startswith(begins)
    assert all(part in first for part in ("'ill'", "40 test samples", "75.0%"))
    assert all(part in second for part in ("balanced accuracy 25.0% (50.0%)", "AUROC 62.5% (50.0%)"))


OF_PATIENTS = {"test-examples": 24, "test-units": 6, "test-effective": 3.5}


def test_of_samples_of_several_patients_the_interval_is_that_of_the_effective_size(history):
    """24 samples alone would tell 67% from 50%; 3.5 cannot."""
    rounds, sets = history(*[2 / 3] * 5), {"asked": 0.9, "coverage": 0.9, "size": 1.5, "effective": 2.5}
    rounds[-1] |= {"sets": sets, "confusion": {"classes": ["ill"], "counts": [[1]], "most-frequent": MOST}}
    rounds[-1] |= OF_PATIENTS
    summary = summarise(rounds)
    assert (summary["test-samples"], summary["test-units"]) == (24, 6)
    assert summary["interval"] == list(share_interval(2 / 3, 3.5) or ())
    low, high = share_interval(0.9, 2.5) or (0, 0)
    assert f"95% interval {low:.1%} to {high:.1%}" in " ".join(judge(summary))
    assert "for all 24 test samples of 6 patients" in judge(summary)[0]
    half = 50 * (summary["interval"][1] - summary["interval"][0])
    tests = Sampling.of(rounds)
    assert describe_interval(200 / 3, tests) == f"±{half:.1f} points for 24 test samples of 6 patients at 95%"


def test_a_single_patient_has_no_interval_which_is_said(history):
    rounds = history(0.9)
    rounds[0] |= {"confusion": {"classes": ["ill"], "counts": [[1]], "most-frequent": MOST}}
    rounds[0] |= {"test-examples": 24, "test-units": 1}
    summary = summarise(rounds)
    assert "interval" not in summary
    assert judge(summary)[0].endswith("no interval, as one patient says nothing of others")


def test_a_regression_is_judged_by_the_mean_and_a_record_of_before_by_nothing(history):
    rounds = history(None)
    rounds[0] |= {"r2": -0.5, "rmse": 3.0, "mean-of-labels": {"r2": 0.0, "rmse": 2.5}}
    (line,) = judge(summarise(rounds, "rmse"))
    assert line.startswith("Not better than predicting the mean of the labels for all test samples: RMSE 2.5")
    assert judge(summarise(rounds, "loss")) == judge(summarise([], "r2")) == []
    rounds[0] |= {"r2": 0.5}
    (line,) = judge(summarise(rounds, "r2"))
    assert line.startswith("Better than")
    assert "no interval" in line
    assert baseline_of([{"r2": 0.5, "rmse": 1.0}]) == {}
    before = history(0.5)
    before[0]["confusion"] = {"classes": ["0", "1"], "counts": [[3, 0], [1, 0]]}
    assert judge(summarise(before)) == []


@pytest.mark.parametrize(("share", "uneven"), [(0.6, False), (0.63, True)])
def test_two_classes_are_uneven_from_five_in_eight(share, uneven):
    assert is_uneven({"accuracy": share, "balanced-accuracy": 0.5}) is uneven


@pytest.mark.parametrize("folds", [[150] * 4, []])
def test_the_epochs_of_a_mixture_follow_from_its_labels_also_if_it_reports_no_folds(history, folds):
    config = RunConfig(method="mixture", dataset="rbf", model="sigmoid", target_samples=600, rounds=3)
    records = history(0.5, 0.5, 0.5)
    records[-1]["mixture"] = {"members": {}, "folds": folds}
    assert summarise_run(config, records)["epochs"]["target"] == 4 * (3 + 10)


def test_cases_of_several_samples_of_a_patient_are_patients(record):
    """A test set of 40 samples of 10 patients, of whom one with four samples is ill."""
    y, patients = np.repeat([0, 1], [36, 4]), np.repeat(np.arange(10), 4)
    counts = np.array([[36, 0], [3, 1]])
    known = {"counts": counts, **units_by_class(y, 2, patients)}
    assert units_by_class(y, 2, None) == units_by_class(y, 2, np.arange(40)) == {}
    last = record(1, 37 / 40) | {"auroc": 0.8, "test-examples": 40, "test-units": 10}
    summary = summarise([last | read_details({"confusion": known}, ["well", "ill"])], "auroc")
    assert summary["classes"]["ill"]["units"] == 1
    assert support_of(summary) == "1 of 10 patients ill"
    assert "ill 1" in " ".join(describe_classes(summary))
    wrong = {**known, "units": np.array([9, 5])}  # more patients than samples
    assert "units" not in read_confusion(wrong, ["well", "ill"])["confusion"]


def test_cases_of_several_labels_are_patients_too(record):
    """Twelve of 40 samples have the first label, and are of three patients."""
    y, patients = np.array([[i < 12, i % 2] for i in range(40)], np.float32), np.repeat(np.arange(10), 4)
    figures = figures_of_labels(np.random.default_rng(0).normal(size=(40, 2)), y)
    known = {"figures": figures, "examples": np.array(40), **units_by_label(y, patients)}
    details = read_details({"confusion": known}, ["mass", "edema"])
    last = record(1) | {"auroc": 0.8, "test-examples": 40, "test-units": 10} | details
    summary = summarise([last], "auroc")
    assert [each["units"] for each in summary["labels"].values()] == [3, 10]
    assert support_of(summary) == "3 of 10 patients mass"
    assert "mass 3" in " ".join(describe_classes(summary))
    wrong = read_details({"confusion": {**known, "units": np.array([13, 5])}}, ["mass", "edema"])
    assert "units" not in wrong["labels"]["labels"]["mass"]
