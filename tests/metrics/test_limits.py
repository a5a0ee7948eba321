"""The intervals of figures: by other ways to the same numbers, and by how often they hold the truth."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, log_expit
from scipy.stats import norm

from fda_flower.metrics import CONFIDENCE, intervals_of, measure, measure_with_intervals, paired_aurocs
from fda_flower.metrics.intervals import Z, whole_units
from fda_flower.metrics.limits import recall_interval
from fda_flower.metrics.ranking import auroc_interval, average_precision, placements, precision_interval


def two(rng, counts, apart=1.5):
    """Log-probabilities and classes of well and ill samples, whose scores are `apart`."""
    y = np.repeat([0, 1], counts)
    logit = apart * (rng.standard_normal(len(y)) + apart * y - apart / 2) + np.log(counts[1] / counts[0])
    return np.stack([log_expit(-logit), log_expit(logit)], axis=1), y


@pytest.mark.parametrize("area", [0.0, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize(("m", "n"), [(3, 100), (30, 30), (2.5, 7.5), (1, 1)])
def test_newcombes_ends_are_the_roots_that_are_not_0_or_1(area, m, n):
    def beyond(theta):
        share = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + ((m + n) / 2 - 1) * share) / (m * n)
        return (theta - area) ** 2 - Z**2 * variance

    low, high = auroc_interval(area, m, n)
    assert low == (0 if area == 0 else pytest.approx(brentq(beyond, 1e-15, min(area, 1 - 1e-9)), abs=1e-9))
    assert high == (1 if area == 1 else pytest.approx(brentq(beyond, max(area, 1e-9), 1 - 1e-15), abs=1e-9))
    assert auroc_interval(1 - area, n, m) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_figures_that_cannot_tell_have_no_interval():
    rng = np.random.default_rng(0)
    outputs, y = two(rng, (30, 5))
    known = intervals_of(outputs, y)
    assert list(known) == ["accuracy", "balanced-accuracy", "macro-f1", "auroc", "auprc", "brier"]
    assert intervals_of(outputs[y == 1], y[y == 1]).keys() == known.keys() - {"auroc"}
    assert "auprc" not in intervals_of(outputs[:31], y[:31]), "a class has one sample"
    outputs[0] = np.nan
    assert list(intervals_of(outputs, y)) == ["accuracy", "balanced-accuracy", "macro-f1"]

    numbers = rng.standard_normal((60, 2))
    assert list(intervals_of(numbers + 1, numbers, "regression")) == ["r2", "mae"]
    for few in (numbers[:40], np.ones((60, 2)), np.full((60, 2), np.inf)):
        assert intervals_of(few, few, "regression") == {}
    labels = (numbers > 0.5).astype(np.float32)
    assert list(intervals_of(numbers, labels, "multilabel")) == ["exact", "auroc", "auprc", "brier"]
    assert intervals_of(numbers, np.ones((60, 2)), "multilabel").keys() == {"exact"}


@pytest.mark.parametrize("task", ["classes", "regression", "multilabel"])
def test_an_interval_holds_its_figure_whatever_the_order_and_is_wider_where_patients_repeat(task):
    rng = np.random.default_rng(1)
    outputs, y = two(rng, (110, 10)) if task == "classes" else (rng.standard_normal((120, 3)),) * 2
    if task == "multilabel":
        y = (outputs + rng.standard_normal((120, 3)) > 1).astype(np.float32)
    if task == "regression":
        y = outputs + rng.standard_normal((120, 3))
    units, order = np.arange(120) % 60, rng.permutation(120)
    alone, in_pairs = intervals_of(outputs, y, task), intervals_of(outputs, y, task, units)
    figures = measure(outputs, y, task)
    assert measure_with_intervals(outputs, y, task, units) == (figures, in_pairs)
    assert alone == intervals_of(outputs, y, task, np.arange(120)[::-1])
    mixed = intervals_of(outputs[order], y[order], task, units[order])
    for name, (low, high) in alone.items():
        assert low <= figures[name] <= high
        assert in_pairs[name] == pytest.approx(mixed[name])
    # Twice the same rows tell no more than once.
    twice = intervals_of(np.tile(outputs, (2, 1)), np.concatenate([y, y]), task, np.tile(np.arange(120), 2))
    for name in alone.keys() - {"accuracy", "exact"}:
        assert twice[name] == pytest.approx(alone[name], rel=1e-9), name


def test_the_effective_number_of_samples_of_unequal_patients():
    side, units = np.repeat([True, False], [6, 4]), np.array([1, 1, 1, 1, 2, 3, 1, 4, 5, 5])
    assert (whole_units(side, units), whole_units(side, None)) == (36 / 18, 6)


def test_clopper_and_pearsons_ends_of_one_class_and_their_mover_of_two():
    right = np.arange(10) < 7
    low, high = recall_interval(right, [np.full(10, True)])
    assert (low, high) == pytest.approx((0.3475471, 0.9332605), abs=1e-7)  # SciPy 1.17's binomtest(7, 10)
    both = recall_interval(np.tile(right, 2), [np.arange(20) < 10, np.arange(20) >= 10])
    assert both == pytest.approx((0.7 - (0.7 - low) / 2**0.5, 0.7 + (high - 0.7) / 2**0.5))


def test_an_average_precision_of_1_has_a_lower_end():
    assert average_precision(np.arange(4.0), np.arange(4) > 1) == 1
    few, many = precision_interval(1.0, 3), precision_interval(1.0, 30)
    assert few is not None
    assert many is not None
    assert few[1] == 1
    assert 0 < few[0] < many[0] < 1
    assert precision_interval(0.5, 1) is None


def delongs(first, second, positive):
    """The variance of a difference, by the kernels of all pairs (DeLong et al. 1988, equations 4 to 7)."""
    kernels = [
        (each[positive][:, None] > each[~positive]) + 0.5 * (each[positive][:, None] == each[~positive])
        for each in (first, second)
    ]
    of_positive = np.cov([each.mean(axis=1) for each in kernels]) / positive.sum()
    of_negative = np.cov([each.mean(axis=0) for each in kernels]) / (~positive).sum()
    total = of_positive + of_negative
    return total[0, 0] + total[1, 1] - 2 * total[0, 1]


def test_delongs_interval_of_a_difference_is_that_of_all_pairs():
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1], [60, 35])
    scores = [(rng.standard_normal(95) + shift * y).round(1) for shift in (0.5, 1.5)]  # with ties
    rows: Any = [np.stack([-each, each]) for each in scores]
    ends = paired_aurocs(rows[0], rows[1], y)
    assert ends is not None
    low, high = ends
    areas = [placements(each, y == 1)[y == 1].mean() for each in scores]
    assert (low + high) / 2 == pytest.approx(areas[1] - areas[0])
    assert high - low == pytest.approx(2 * Z * delongs(scores[0], scores[1], y == 1) ** 0.5)
    twice: Any = [np.tile(each, 2) for each in rows]
    patients = np.tile(np.arange(95), 2)
    assert paired_aurocs(twice[0], twice[1], np.tile(y, 2), patients) == pytest.approx((low, high))
    assert paired_aurocs(rows[0], rows[1], np.repeat([0, 1], [66, 29])) is None
    assert paired_aurocs(twice[0], twice[1], np.tile(y, 2), patients // 4) is None, (
        "fewer than 30 patients are ill"
    )


def truth(apart, share):
    """The figures of `two` in all the world, by the densities of its scores."""
    at = np.linspace(-10, 12, 200_001)
    logit = apart * (at - apart / 2) + np.log(share / (1 - share))
    ill, well = (weight * norm.pdf(at - mean) * 1.1e-4 for weight, mean in ((share, apart), (1 - share, 0)))
    hits, rest = ill[logit > 0].sum(), well[logit <= 0].sum()
    above, below = [np.cumsum(each[::-1])[::-1] for each in (ill, well)], [well.cumsum(), ill.cumsum()]
    precisions = [
        (density * right / np.maximum(right + wrong, 1e-300)).sum() / density.sum()
        for density, (right, wrong) in ((ill, above), (well, below))
    ]
    f1 = 2 * hits / (hits + well[logit > 0].sum() + share), 2 * rest / (rest + 1 - hits)
    return {
        "balanced-accuracy": (hits / share + rest / (1 - share)) / 2,
        "macro-f1": np.mean(f1),
        "auroc": norm.cdf(apart / 2**0.5),
        "auprc": np.mean(precisions),
        "brier": (ill * expit(-logit) ** 2 + well * expit(logit) ** 2).sum(),
    }


@pytest.mark.parametrize(("counts", "apart"), [((97, 3), 2.0), ((90, 10), 1.0), ((50, 50), 3.0)])
def test_intervals_of_few_cases_hold_the_truth_in_nearly_all_test_sets(counts, apart):
    """A quick look: 300 test sets each; of 2,000, in many more settings, see `fda_flower.metrics.limits`."""
    rng, known = np.random.default_rng(3), truth(apart, counts[1] / sum(counts))
    held = dict.fromkeys(known, 0)
    for _ in range(300):
        intervals = intervals_of(*two(rng, counts, apart))
        for name, value in known.items():
            held[name] += intervals[name][0] <= value <= intervals[name][1]
    assert min(held.values()) / 300 >= CONFIDENCE - 0.025, held
