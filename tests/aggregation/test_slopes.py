"""Ridge's heads for survival: sums around a site's means, and heads near the sources."""

import numpy as np
import pytest

from fda_flower.aggregation import Sums
from fda_flower.aggregation.ridge import SOURCE_WEIGHTS, likelihoods
from fda_flower.aggregation.slopes import CONSTANT, CentredRows, Level, fit_slopes
from fda_flower.aggregation.sums import unpack
from fda_flower.aggregation.units import Units

WIDTH, OUTPUTS = 6, 3


def site(seed, n=80, level=0.0):
    rng = np.random.default_rng(seed)
    rows = np.pad(rng.normal(seed / 3, 0.4, (n, WIDTH - 1)), ((0, 0), (0, 1)), constant_values=1.0)
    slopes = np.random.default_rng(99).normal(size=(WIDTH, OUTPUTS))
    return rows, rows @ slopes + level + rng.normal(0, 0.7, (n, OUTPUTS))


def total(*levels):
    sites = [CentredRows.of(*site(seed, level=level)) for seed, level in enumerate(levels, 1)]
    return CentredRows.total(sites, WIDTH, OUTPUTS)


def fitted(rows, labels, events=12, paths="both", sums=None):
    start = (sums or total(0.0, 0.3)).start(gram=True, scaled=True)
    level = Level(start["level_x"], start["level_y"], start["deviation"])
    return fit_slopes(rows, labels, events, start["solution"], level, unpack(start["gram"]), paths)


def test_centred_sums_follow_from_open_ones():
    """``G − s sᵀ/n``, ``M − s qᵀ/n`` and ``squares − q²/n``, with n in the last corner."""
    rows, labels = site(1)
    centred, sums = CentredRows.of(rows, labels), Sums.of(rows, labels)
    s, q, n = sums.whole[-1], sums.products[-1], sums.rows
    gram = sums.whole - np.outer(s, s) / n
    gram[-1, -1] = n
    np.testing.assert_allclose(centred.whole, gram, atol=1e-9)
    np.testing.assert_allclose(centred.products, sums.products - np.outer(s, q) / n, atol=1e-9)
    np.testing.assert_allclose(centred.squares, sums.squares - q**2 / n, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([centred.level_x, centred.level_y]), [*s[:-1], *q], atol=1e-9)


def test_centred_sums_travel_and_add_up():
    """As arrays and as one vector; a site can subtract its own."""
    first, second = (CentredRows.of(*site(seed)) for seed in (1, 2))
    received = CentredRows.from_arrays(first.to_arrays(), WIDTH, OUTPUTS)
    np.testing.assert_array_equal(received.vector, first.rounded().vector)
    again = CentredRows.from_vector((first + second).vector, WIDTH, OUTPUTS) - second
    np.testing.assert_allclose(again.vector, first.vector, atol=1e-9)
    arrays = first.to_arrays()
    del arrays["level_x"]
    with pytest.raises(ValueError, match="have no 'level_x'"):
        CentredRows.from_arrays(arrays, WIDTH, OUTPUTS)


def test_the_level_of_a_source_takes_no_part_in_the_slopes():
    """A number added to all labels of one source changes no slope, and its mean label alone."""
    one, other = total(0.0, 0.0).start(True, True), total(0.0, 5.0).start(True, True)
    np.testing.assert_allclose(one["solution"], other["solution"], atol=1e-9)
    np.testing.assert_allclose(other["level_y"] - one["level_y"], 2.5)
    assert not one["solution"][-1].any()


def test_the_model_for_a_site_without_labels_has_the_level_of_all_rows():
    """At the sources' mean row it predicts their mean label."""
    sums = total(0.0, 0.3)
    mean = np.append(sums.level_x / sums.rows, 1.0)
    np.testing.assert_allclose(mean @ sums.head(True), sums.level_y / sums.rows)


@pytest.mark.parametrize("again", [False, True])
def test_left_out_residuals_are_those_of_refits(again):
    """To 1e-9 with the means of all rows, nearly with the means taken `again` without the row."""
    rows, labels = site(5, 60)
    start = total(0.0, 0.3).start(gram=True, scaled=True)
    fit = fitted(rows, labels).fit
    gram, solution = unpack(start["gram"]), start["solution"]
    for i in (0, 7, 59):
        rest = np.arange(60) != i
        means = rest if again else slice(None)
        x = rows[:, :-1] - rows[means, :-1].mean(axis=0)
        z = np.pad(x, ((0, 0), (0, 1)), constant_values=CONSTANT)
        y = (labels - labels[means].mean(axis=0)) / start["deviation"]
        for c, head in zip(SOURCE_WEIGHTS, fit.heads, strict=False):
            matrix = c * (gram + np.eye(WIDTH)) + z[rest].T @ z[rest]
            right = c * (gram + np.eye(WIDTH)) @ solution + z[rest].T @ y[rest]
            residual = y[i] - z[i] @ np.linalg.solve(matrix, right)
            np.testing.assert_allclose(head.residuals[i], residual, atol=1e-2 if again else 1e-9)


def test_only_heads_near_the_sources_are_averaged_by_the_number_of_events():
    """Seven pooled ones and the sources' own."""
    rows, labels = site(5, 30)
    fit = fitted(rows, labels, events=4).fit
    assert [head.path.name for head in fit.heads] == ["pooled"] * 7 + ["sources"]
    weights = likelihoods([head.residuals for head in fit.heads], Units.of(30), 2)
    np.testing.assert_allclose(fit.weights, weights)
    np.testing.assert_allclose(fit.heads[-1].residuals.mean(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize(("paths", "own"), [("both", 0.6), ("sources", 0.6), ("target", 1.0)])
def test_the_level_is_between_target_and_sources(paths, own):
    """With 30 labels they have 30 parts of 50, and without the sources all."""
    rows, labels = site(5, 30, level=1.0)
    sums = total(0.0, 0.3)
    fit, centre = fitted(rows, labels, paths=paths, sums=sums), rows.mean(axis=0)
    of_sources = centre @ sums.head(True)
    expected = own * labels.mean(axis=0) + (1 - own) * of_sources
    np.testing.assert_allclose(centre @ fit.head, expected, atol=1e-6 if paths == "sources" else 1e-2)


def test_too_few_events_leave_only_the_sources():
    """Several heads cannot be weighed with a single event."""
    rows, labels = site(5, 30)
    with pytest.raises(ValueError, match="30 rows with 1 events: leaving one out needs 2"):
        fitted(rows, labels, events=1)
    assert len(fitted(rows, labels, events=1, paths="sources").fit.heads) == 1
