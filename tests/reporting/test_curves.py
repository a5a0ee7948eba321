"""ROC and calibration curves: points by other ways, and what a picture shows."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from fda_flower.metrics import share_interval
from fda_flower.reporting.curves import Curve, plot_curves
from fda_flower.reporting.html import charts


@pytest.fixture
def curve():
    rng = np.random.default_rng(0)
    ill = rng.random(120) < 0.05
    return Curve(np.round(np.clip(0.1 + 0.3 * ill + rng.normal(0, 0.1, 120), 0, 1), 2), ill)


def test_the_curve_and_its_area_are_scikit_learns(curve):
    others, own, _ = roc_curve(curve.positive, curve.probabilities, drop_intermediate=False)
    np.testing.assert_allclose(curve.roc, [others, own])
    value, (low, high) = curve.area
    assert value == pytest.approx(roc_auc_score(curve.positive, curve.probabilities))
    assert low < value < high


def test_each_bin_has_as_many_samples_and_its_interval(curve):
    order = np.argsort(curve.probabilities, kind="stable")
    assert len(curve.calibration) == 10
    for (mean, share, ends), rows in zip(curve.calibration, order.reshape(10, 12), strict=True):
        assert mean == pytest.approx(curve.probabilities[rows].mean())
        assert share == pytest.approx(curve.positive[rows].mean())
        assert ends == share_interval(share, 12)
    of_patients = Curve(curve.probabilities, curve.positive, np.arange(120) // 2)
    assert {ends for *_, ends in of_patients.calibration} == {None}


def test_the_picture_names_the_cases_and_says_that_they_are_few(curve):
    left, right = plot_curves({"ill": curve}).axes
    (label,) = left.get_legend_handles_labels()[1]
    assert label.startswith(f"ill ({curve.positive.sum()}, few): AUROC ")
    assert right.get_xlim() == right.get_ylim()
    assert len(plot_curves({}).axes) == 0


def test_a_confusion_matrix_has_counts_and_the_support_of_each_class():
    (axis,) = charts.matrix({"classes": ["ill", "well"], "counts": [[1, 3], [0, 40]]}).axes
    assert [text.get_text() for text in axis.texts] == ["1", "3", "0", "40"]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["ill (4)", "well (40)"]
