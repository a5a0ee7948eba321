"""Random halves of a target's labels, to which its heads are fitted: what fewer labels were worth.

A half is judged by the labels that it leaves out. Their figure stands next to the one of all labels, each
held out, and says nothing about further ones: a forecast from both was wrong by 3 points where the gain was
4, and its 80% intervals held 36 to 93% of the gains, by data set.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.logistic import Heads, fit_logistic
from fda_flower.aggregation.ridge import fit_temperature
from fda_flower.aggregation.ridge_kinds import Kind, fit_kinds
from fda_flower.aggregation.sums import Array
from fda_flower.aggregation.units import Units

HALVES, SLOW = 10, 5
"""Number of halves, and with logistic heads, which take longer."""

FEWEST, MOST = 16, 256
"""Units from which there are halves, and rows up to which there are: with more, a test set says it better."""

JUDGED = 250
"""Labels that the halves of logistic heads judge together: of many, fewer halves suffice."""


def random_halves(units: Units, heads: Heads, seed: int) -> list[NDArray[np.bool_]]:
    """Return for each of some random halves of the units whether each row is in it, shape ``(n,)``.

    Of an odd number of units a half has the smaller part. There are none with fewer units than `FEWEST`, nor
    with more rows than `MOST`.

    Examples
    --------
    >>> patients = Units.of(40, np.arange(40) // 2)
    >>> first, *rest = random_halves(patients, "both", seed=0)
    >>> len(rest), int(first.sum()), bool((first[::2] == first[1::2]).all())
    (9, 20, True)
    """
    rows = len(units.numbers)
    if units.count < FEWEST or rows > MOST:
        return []
    number = min(SLOW, max(1, 2 * JUDGED // rows)) if heads == "logistic" else HALVES
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(units.count) for _ in range(number)]
    return [(order < units.count // 2)[units.numbers] for order in orders]


def outputs_of_half(
    half: NDArray[np.bool_],
    kinds: Sequence[Kind],
    targets: Array,
    labels: NDArray[np.integer] | None,
    heads: Heads,
    groups: NDArray[Any] | None = None,
) -> Array:
    """Return the outputs for the rows that a half leaves out, of the fit to the rows in it, ``(m, C)``.

    The other parameters are as for `fit_kinds`, or with logistic `heads` for `fit_logistic`. Rows without
    labels have no part in it. The outputs of classes are scaled so that their softmax is calibrated.
    """
    parts, own = [kind.of_rows(half) for kind in kinds], None if groups is None else groups[half]
    classes = None if labels is None else labels[half]
    factor, fitted = 1.0, list[Array]()
    if heads != "logistic":
        fit = fit_kinds(parts, targets[half], classes, heads, own)
        fitted = fit.heads
        if classes is not None:
            factor = fit_temperature(fit.held_out, classes, fit.usual, Units.of(len(classes), own))
    elif classes is not None:
        fitted = fit_logistic(parts, classes, own).heads
    pairs = zip(kinds, fitted, strict=True)
    return np.asarray(factor * np.sum([kind.rows[~half] @ head for kind, head in pairs], axis=0))
