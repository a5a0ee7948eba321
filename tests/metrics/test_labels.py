"""Metrics of several labels: means over the labels that can be judged, as scikit-learn computes each."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from fda_flower.metrics import by_label, figures_of_labels, headline_metric, measure, metric_names, of_shares


@pytest.fixture
def judged():
    """Return logits with ties, and labels of which the last is rare."""
    rng = np.random.default_rng(0)
    return np.round(rng.normal(size=(80, 3)), 1), (rng.random((80, 3)) < (0.5, 0.2, 0.05)).astype(np.float32)


def test_metrics_are_means_over_labels_of_scikit_learns(judged):
    outputs, y = judged
    p, found = 1 / (1 + np.exp(-outputs)), measure(outputs, y, "multilabel")
    assert found["auroc"] == pytest.approx(roc_auc_score(y, outputs, average="macro"), abs=1e-12)
    assert found["auprc"] == pytest.approx(average_precision_score(y, outputs, average="macro"), abs=1e-12)
    each = [brier_score_loss(y[:, label], p[:, label]) for label in range(3)]
    assert found["brier"] == pytest.approx(np.mean(each), abs=1e-12)
    assert found["exact"] == np.mean(((outputs > 0) == (y > 0)).all(axis=1))


def test_the_calibration_error_is_of_the_probability_of_each_label():
    # Two bins: 0.1 with one of four right, 0.9 with two of two; and their mirror image.
    p = np.array([0.1, 0.1, 0.1, 0.1, 0.9, 0.9])
    held = np.array([0, 0, 0, 1, 1, 1])
    outputs = np.log(np.stack([p / (1 - p), (1 - p) / p], axis=1))
    expected = (4 * abs(0.25 - 0.1) + 2 * abs(1 - 0.9)) / 6
    found = measure(outputs, np.stack([held, 1 - held], axis=1), "multilabel")
    assert found["ece"] == pytest.approx(expected)


def test_a_label_that_all_samples_have_or_none_counts_for_nothing(judged):
    outputs, y = (np.hstack([each, each[:, :2]]) for each in judged)
    y[:, 3], y[:, 4] = 0, 1
    found, without = measure(outputs, y, "multilabel"), measure(judged[0], judged[1], "multilabel")
    assert {**found, "exact": 0} == {**without, "exact": 0}
    table = by_label(figures_of_labels(outputs, y), "abcde")
    assert table["d"] == {"support": 0, "auroc": None, "auprc": None, "brier": None, "ece": None}
    assert (table["e"]["support"], table["a"]["support"]) == (80, int(y[:, 0].sum()))
    assert [*measure(outputs, np.zeros_like(y), "multilabel")] == ["exact"]
    supports = y.sum(axis=0).astype(int).tolist()
    constant = measure(np.zeros_like(outputs) + np.log(0.2 / 0.8), y, "multilabel")
    assert of_shares(supports, 80)["auroc"] == constant["auroc"] == 0.5
    assert of_shares(supports, 80)["auprc"] == pytest.approx(constant["auprc"])
    assert of_shares([0, 4], 4) == {}


def test_outputs_that_are_not_finite_have_no_metrics(judged):
    outputs, y = judged
    outputs[3, 1] = np.nan
    assert measure(outputs, y, "multilabel") == {}
    assert [row["auroc"] is None for row in by_label(figures_of_labels(outputs, y), "abc").values()] == [
        False,
        True,
        False,
    ]


def test_the_headline_is_the_auroc():
    assert headline_metric(None, "multilabel") == "auroc"
    assert {*metric_names("multilabel")} == {"auroc", "auprc", "brier", "ece", "exact", "loss"}
