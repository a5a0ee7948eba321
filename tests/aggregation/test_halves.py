"""Random halves of the labels, and the fit to them."""

import numpy as np
import pytest

from fda_flower.aggregation import (
    Kind,
    fit_logistic,
    fit_ridge,
    fit_temperature,
    to_targets,
)
from fda_flower.aggregation.halves import outputs_of_half, random_halves
from fda_flower.aggregation.units import Units


@pytest.mark.parametrize(
    ("rows", "units", "heads", "number"),
    [
        *[(40, 40, "both", 10), (41, 41, "both", 10), (48, 16, "logistic", 5), (100, 50, "logistic", 5)],
        *[(200, 200, "logistic", 2), (45, 15, "both", 0), (15, 15, "logistic", 0), (257, 100, "both", 0)],
    ],
)
def test_halves_are_of_whole_units_which_are_neither_too_few_nor_many(rows, units, heads, number):
    of_units = Units.of(rows, np.arange(rows) % units)
    halves = random_halves(of_units, heads, seed=3)
    assert len(halves) == number
    for half in halves:
        members = [set(half[unit].tolist()) for unit in of_units.members]
        assert all(len(each) == 1 for each in members)
        assert sum(each == {True} for each in members) == units // 2
    again = random_halves(of_units, heads, seed=3)
    assert all(np.array_equal(one, other) for one, other in zip(halves, again, strict=True))
    assert len({half.tobytes() for half in halves}) == number


@pytest.mark.parametrize("heads", ["both", "shrunk", "logistic"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_half_has_the_fit_to_its_rows_alone_whatever_has_no_label(heads, grouped):
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.normal(size=(40, 5)), np.ones((40, 1))])
    labels, groups = rng.integers(3, size=40), np.arange(40) // 2 if grouped else None
    rows[np.arange(40), labels] += 1.5
    others = rng.normal(size=(200, 6))
    gram, solution = others.T @ others, rng.normal(size=(6, 3)) / 3
    kind, targets = Kind(rows, solution, gram, rng.normal(size=(30, 6))), to_targets(labels, 3)
    for half in random_halves(Units.of(40, groups), heads, seed=1):
        own = None if groups is None else groups[half]
        if heads == "logistic":
            (head,) = fit_logistic([Kind(rows[half], solution)], labels[half], own).heads
        else:
            fit = fit_ridge(rows[half], targets[half], solution, gram, heads, own)
            units = Units.of(int(half.sum()), own)
            head = fit.head * fit_temperature(fit.held_out, labels[half], units=units)
        outputs = outputs_of_half(half, [kind], targets, labels, heads, groups)
        np.testing.assert_allclose(outputs, rows[~half] @ head, atol=1e-9)
