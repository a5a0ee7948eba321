import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fda_flower import RunConfig
from fda_flower.metrics import interval
from fda_flower.records.record import curve, figure_of, headline
from fda_flower.reporting import summarise, write_summary
from fda_flower.reporting.summary import describe_interval, summarise_run


def test_accuracies_are_in_percent_and_nan_where_the_target_did_not_evaluate(history):
    first, second, third = curve(history(0.5, None, 0.25))
    assert (first, third) == (50.0, 25.0)
    assert math.isnan(second)


def test_last5_is_the_mean_of_the_last_five_rounds_and_best_the_highest(history):
    summary = summarise(history(0.1, 0.9, 0.3, 0.4, 0.5, 0.6, 0.7))
    assert summary["last5"] == pytest.approx(50.0)
    assert summary["best"] == pytest.approx(90.0)
    assert summary["rounds"] == 7


def test_last5_of_fewer_rounds_is_the_mean_of_all(history):
    assert summarise(history(0.1, 0.2))["last5"] == pytest.approx(15.0)
    assert summarise(history(0.125))["last5"] == 12.5


def test_rounds_without_an_accuracy_are_left_out_of_both(history):
    # The last five rounds are the 2nd to the 6th; three of them are known.
    summary = summarise(history(1.0, 0.2, None, 0.4, None, 0.6))
    assert summary["last5"] == pytest.approx(40.0)
    assert summary["best"] == pytest.approx(100.0)


def test_without_an_accuracy_in_the_last_five_rounds_there_is_no_last5(history):
    summary = summarise(history(0.3, None, None, None, None, None))
    assert summary["last5"] is None
    assert summary["best"] == pytest.approx(30.0)


@pytest.mark.parametrize("rounds", [0, 3])
def test_without_any_accuracy_there_is_neither(history, rounds):
    summary = summarise(history(*[None] * rounds))
    assert (summary["last5"], summary["best"], summary["rounds"]) == (None, None, rounds)


def test_the_averaged_model_has_scores_of_its_own_without_the_warm_up_rounds(history):
    first, second, third = history(0.5, 0.25, 0.75)
    averaged = [{**first, "warmup": True}, {**second, "accuracy-average": 0.5}, third]
    summary = summarise(averaged)
    assert summary["average"] == {"last5": 50.0, "best": 50.0}
    assert (summary["last5"], summary["best"]) == (50.0, 75.0)
    assert "average" not in summarise([first, second, third])


def test_held_rounds_dropped_replies_and_seconds_are_summed(record):
    summary = summarise(
        [
            record(1, 0.1, seconds=2.0),
            record(2, 0.1, held="no usable reply of the target", dropped=["target"], seconds=3.0),
            record(3, 0.1, held="0 usable replies of sources", dropped=["a", "b"], seconds=4.0),
        ]
    )
    assert summary["held-rounds"] == 2
    assert summary["dropped"] == 3
    assert summary["seconds"] == pytest.approx(2.5 + 3.5 + 4.5)


def test_the_numbers_are_plain_so_that_they_are_json(history):
    summary = summarise(history(0.1, 0.2))
    assert {type(value) for value in summary.values()} <= {int, float, str, dict}
    assert json.loads(json.dumps(summary)) == summary


@pytest.mark.parametrize(
    ("values", "last5"), [((0.25, 0.75), 50.0), ((None, None), None)], ids=["known", "unknown"]
)
def test_write_summary_writes_the_numbers(history, tmp_path, values, last5):
    config = RunConfig(method="fedavg", seed=7)
    model: dict[str, NDArray[Any]] = {"weight": np.zeros((2, 3), np.float32), "steps": np.zeros((), np.int64)}
    summary = summarise_run(config, history(*values), model)
    write_summary(tmp_path, config, summary)
    text = (tmp_path / "summary.json").read_text(encoding="utf-8")
    numbers = json.loads(text)
    assert summary.items() <= numbers.items()
    assert summary["parameters"] == 6
    assert "NaN" not in text
    assert text.endswith("}\n")
    assert numbers["method"] == "fedavg"
    assert numbers["label"] == "FedAvg"
    assert numbers["seed"] == 7
    assert numbers["last5"] == last5
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "summary.json",
    ]


def test_a_regression_is_judged_by_r2():
    record = {"r2": 0.25, "rmse": 2.0, "r2-average": 0.5}
    assert curve([record, {}], "r2") == pytest.approx([0.25, math.nan], nan_ok=True)
    assert (figure_of(record, "r2"), figure_of(record, "r2", "-average")) == (0.25, 0.5)
    assert headline(record) == "target R² 0.250, average 0.500"


def test_where_less_is_better_the_best_round_is_the_lowest(history):
    rounds = [
        each | {"rmse": rmse} for each, rmse in zip(history(None, None, None), (3.0, 1.0, 2.0), strict=True)
    ]
    summary = summarise(rounds, "rmse")
    assert (summary["metric"], summary["last5"], summary["best"]) == ("rmse", 2.0, 1.0)


def test_the_last_evaluation_is_there_in_full(history):
    first, second, third = history(0.5, 0.75, None)
    counts = {"classes": ["cat", "dog"], "counts": [[2, 0], [1, 1]]}
    size = {"target": {"labelled": 3, "unlabelled": 0, "train": 3, "test": 4}}
    evaluated = [
        {**first, "test-examples": 4, "confusion": {"classes": ["cat", "dog"], "counts": [[0, 2], [0, 2]]}},
        {**second, "auroc": 0.9, "test-examples": 4, "confusion": counts, "sizes": size},
        third,
    ]
    summary = summarise(evaluated)
    assert summary["figures"] == {"accuracy": 0.75, "auroc": 0.9}
    assert summary["test-samples"] == 4
    assert summary["sizes"] == size
    assert summary["confusion"] == counts
    assert summary["classes"]["dog"] == {
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
        "support": 2,
    }
    ends = interval("accuracy", 0.625, 4)
    assert ends is not None
    assert summary["interval"] == [100 * end for end in ends]
    assert json.loads(json.dumps(summary)) == summary


def test_what_is_not_known_of_the_last_evaluation_is_left_out(history):
    summary = summarise(history(0.5))
    assert not {"test-samples", "interval", "confusion", "classes", "sizes"} & summary.keys()
    assert summary["figures"] == {"accuracy": 0.5}


def test_the_interval_in_words():
    # By hand: z = 1.96, n = 100, p = 0.5: half the width is z √(n p (1-p) + z²/4) / (n + z²).
    assert describe_interval(50.0, 100) == "±9.6 points for 100 test samples at 95%"
    assert describe_interval(0.5, 100, "r2") == "100 test samples"
    assert describe_interval(50.0, 0) == describe_interval(None, 0) == ""


@pytest.mark.parametrize(("folds", "epochs"), [([150] * 4, 4 * (3 + 10)), ([], 4 * (3 + 10))])
def test_the_epochs_of_a_mixture_follow_from_its_labels_also_if_it_reports_no_folds(history, folds, epochs):
    config = RunConfig(method="mixture", dataset="rbf", model="sigmoid", target_samples=600, rounds=3)
    records = history(0.5, 0.5, 0.5)
    records[-1]["mixture"] = {"members": {}, "folds": folds}
    assert summarise_run(config, records)["epochs"]["target"] == epochs
