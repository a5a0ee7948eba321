"""The figures of a model on a test set, by hand and beside scikit-learn's."""

import numpy as np
import pytest
from naming import names
from scipy.special import softmax
from scipy.stats import binomtest, rankdata
from sklearn import metrics as sklearn_metrics

from fda_flower.clients.measures import metrics_of
from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError
from fda_flower.metrics import (
    CONFIDENCE,
    METRICS,
    by_class,
    calibration_error,
    confusion,
    headline_metric,
    interval,
    measure,
    metric_names,
    of_mean,
    of_most_frequent,
)

LOGITS = np.log([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]])
CLASSES = np.array([0, 1, 1, 2])


def test_classes_by_hand():
    figures = measure(LOGITS, CLASSES, "classes")
    assert list(figures) == [name for name in metric_names("classes") if name != "loss"]
    assert figures["accuracy"] == 0.75
    assert figures["balanced-accuracy"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert figures["macro-f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    # Class 0: 0.7 is above all of 0.5, 0.2 and 0.3. Class 1: 0.4 and 0.6 are above 0.2 and 0.3.
    assert figures["auroc"] == 1
    assert figures["auprc"] == 1
    # Squares of 0.3, 0.2, 0.1; 0.5, 0.6, 0.1; 0.2, 0.4, 0.2; 0.3, 0.3, 0.6.
    assert figures["brier"] == pytest.approx((0.14 + 0.62 + 0.24 + 0.54) / 8)
    # Each probability has a bin of its own.
    assert figures["ece"] == pytest.approx((0.3 + 0.5 + 0.4 + 0.6) / 4)


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_knows_nothing_has_the_figures_that_are_measured_of_its_outputs(seed):
    generator = np.random.default_rng(seed)
    y = generator.choice([0, 1, 3], 50, p=[0.2, 0.5, 0.3])
    names_one = np.tile(np.eye(5)[np.bincount(y).argmax()], (50, 1))
    measured = measure(names_one, y, "classes")
    del measured["ece"]
    # The Brier score is that of the classes' shares, which logits of 0 and 1 are not.
    shares = np.log(np.maximum(np.bincount(y, minlength=5) / 50, 1e-300))
    measured["brier"] = measure(np.tile(shares, (50, 1)), y, "classes")["brier"]
    assert of_most_frequent(confusion(generator.normal(size=(50, 5)), y)) == pytest.approx(measured)

    numbers, model = generator.normal(size=(50, 2)), generator.normal(size=(50, 2))
    of_the_mean = measure(np.tile(numbers.mean(axis=0), (50, 1)), numbers, "regression")
    of_the_mean.pop("mae")
    found = of_mean(measure(model, numbers, "regression"))
    assert found == pytest.approx(of_the_mean, abs=1e-12)


def test_where_all_samples_are_of_one_class_naming_it_is_right_and_has_no_auroc():
    figures = of_most_frequent(np.array([[0, 4], [0, 0]]))
    assert figures == {"accuracy": 1.0, "balanced-accuracy": 1.0, "macro-f1": 1.0, "auprc": 1.0, "brier": 0.0}
    assert of_mean({"r2": 1.0, "rmse": 0.0}) == of_mean({"r2": -1.0}) == {"r2": 0.0}


@pytest.mark.parametrize("seed", range(5))
def test_the_bits_are_those_of_scikit_learn_and_scipy(seed):
    """They were computed by these libraries, whose import takes seconds; rounded logits have ties."""
    generator = np.random.default_rng(seed)
    y, logits = generator.choice([0, 1, 3], 100), generator.normal(size=(100, 5)).astype(np.float32).round(1)
    predicted, classes, figures = logits.argmax(axis=1), np.unique(y), measure(logits, y, "classes")
    both = sklearn_metrics.precision_recall_fscore_support(y, predicted, labels=classes, zero_division=0)
    assert figures["accuracy"] == sklearn_metrics.accuracy_score(y, predicted)
    assert figures["balanced-accuracy"] == np.mean(both[1])
    assert figures["macro-f1"] == np.mean(both[2])
    probabilities, positive = softmax(logits.astype(np.float64), axis=1), y[:, None] == classes
    assert figures["ece"] == calibration_error(probabilities.max(axis=1), predicted == y)
    count, ranks = positive.sum(axis=0), rankdata(probabilities[:, classes], axis=0)
    above = (ranks * positive).sum(axis=0) - count * (count + 1) / 2
    assert figures["auroc"] == (above / (count * (len(y) - count))).mean()
    areas = [sklearn_metrics.roc_auc_score(y == label, probabilities[:, label]) for label in classes]
    assert figures["auroc"] == pytest.approx(np.mean(areas))
    precisions = [
        sklearn_metrics.average_precision_score(y == label, probabilities[:, label]) for label in classes
    ]
    assert figures["auprc"] == pytest.approx(np.mean(precisions), abs=1e-12)
    losses = [sklearn_metrics.brier_score_loss(y == label, probabilities[:, label]) for label in range(5)]
    assert figures["brier"] == pytest.approx(sum(losses) / 2, abs=1e-12)
    counts = confusion(logits, y)
    assert (counts == sklearn_metrics.confusion_matrix(y, predicted, labels=np.arange(5))).all()
    columns = sklearn_metrics.precision_recall_fscore_support(
        y, predicted, labels=np.arange(5), zero_division=np.nan
    )
    found = np.array([list(each.values()) for each in by_class(counts).values()], np.float64)  # None is NaN
    np.testing.assert_array_equal(found, np.stack(columns, axis=1))


def test_logits_and_log_probabilities_have_the_same_figures():
    shifted = measure(LOGITS + np.arange(4)[:, None], CLASSES, "classes")
    assert shifted == pytest.approx(measure(LOGITS, CLASSES, "classes"))


def test_a_single_class_has_no_area():
    single = measure(LOGITS[:1], CLASSES[:1], "classes")
    assert "auroc" not in single
    assert single["accuracy"] == single["balanced-accuracy"] == single["macro-f1"] == 1


def test_outputs_that_are_not_finite_have_the_figures_of_the_predicted_class_alone():
    logits = LOGITS.copy()
    logits[0, 0] = np.nan
    assert set(measure(logits, CLASSES, "classes")) == {"accuracy", "balanced-accuracy", "macro-f1"}
    assert measure(np.array([[np.inf], [1.0]]), np.zeros((2, 1)), "regression") == {}


def test_numbers_by_hand():
    y, outputs = np.array([[0.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [2.0]])
    figures = measure(outputs, y, "regression")
    assert figures == pytest.approx({"r2": 1 - 5 / 8, "rmse": np.sqrt(5 / 3), "mae": 1.0})
    assert measure(outputs, y[:, 0], "regression") == figures
    # Of several outputs R² is that of all squares together.
    y, outputs = np.array([[0.0, 0.0], [2.0, 20.0]]), np.array([[1.0, 0.0], [2.0, 20.0]])
    figures = measure(outputs, y, "regression")
    assert figures["r2"] == pytest.approx(1 - 1 / (2 + 200))
    assert figures["rmse"] == 0.5


@pytest.mark.parametrize(("outputs", "r2"), [([[1.0, 3.0]], 0.0), ([[1.0, 2.0]], 1.0)])
@pytest.mark.parametrize("count", [1, 2])
def test_r2_of_labels_that_are_all_the_same_is_1_if_exact_else_0_in_a_record_too(outputs, r2, count):
    y, outputs = np.array([[1.0, 2.0]] * count), np.array(outputs * count)
    assert measure(outputs, y, "regression")["r2"] == r2
    samples = Samples(np.zeros((count, 1), np.float32), y)
    assert metrics_of(outputs, samples, 0.0)["r2"] == r2


def test_calibration_error_joins_the_samples_of_a_bin():
    confidence, right = np.array([0.9, 0.92, 0.55]), np.array([True, False, True])
    assert calibration_error(confidence, right) == pytest.approx((0.82 + 0.45) / 3)
    # 3/15 belongs to the third bin, 1 to the last.
    edge = np.array([0.2, 0.21]), np.array([True, False])
    assert calibration_error(*edge) == pytest.approx((0.8 + 0.21) / 2)
    assert calibration_error(np.array([1.0]), np.array([True])) == 0


def test_the_figures_of_each_class_have_their_names():
    figures = by_class(confusion(LOGITS, CLASSES), ["a", "b", "c"])
    assert figures["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}


@pytest.mark.parametrize("samples", [1, 2, 7, 450])
def test_interval_beside_scipy(samples):
    for right in range(0, samples + 1, max(1, samples // 10)):
        found = binomtest(right, samples).proportion_ci(CONFIDENCE, method="wilson")
        assert interval("accuracy", right / samples, samples) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize(
    ("name", "value", "samples"),
    [
        ("r2", 0.5, 100),
        ("balanced-accuracy", 0.5, 100),
        ("accuracy", 0.5, 0),
        ("accuracy", float("nan"), 9),
        ("accuracy", -0.5, 9),
    ],
)
def test_no_interval_where_the_number_of_samples_gives_none(name, value, samples):
    assert interval(name, value, samples) is None


def test_the_headline_is_the_default_of_the_task_or_a_name_of_it():
    assert headline_metric(None, "classes") == "accuracy"
    assert headline_metric(None, "regression") == "r2"
    assert headline_metric("loss", "regression") == headline_metric("loss", "classes") == "loss"
    with pytest.raises(ConfigError, check=names("metric", "auroc")):
        headline_metric("auroc", "regression")


def test_which_figure_is_best_and_which_cannot_be():
    assert METRICS["ece"].best([float("nan"), 0.3, 0.1]) == 0.1
    assert METRICS["accuracy"].best([0.2, 0.5]) == 0.5
    assert np.isnan(METRICS["accuracy"].best([float("nan")]))
    assert METRICS["accuracy"].allows(0.5)
    assert not METRICS["accuracy"].allows(7.5)
    assert METRICS["r2"].allows(-20.0)
