"""Ridge's sums with noise that protects each patient of a site, and what a server makes of them.

A site first releases the mean ``m`` of its features with a small `SHARE` of its privacy. Around ``m`` rows
are short, and so is what one patient changes: features that are never negative, such as ReLU's, have half of
their squared length in their mean. With ``φ`` the features of a row, ``‖φ‖ ≤ 1``, and ``y`` its targets, the
second release is of the sums of ``uuᵀ`` and ``w uyᵀ`` with

``u = (c, κ)``, ``c = (φ − m)/R``, scaled down to a length of 1 where it is longer,

where the radius ``R`` follows from ``m`` alone. The server takes the sums of all sites to one centre, which
changes nothing but the noise, and leaves the constant out of the ridge.

References
----------
Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018; Dong et al., "Gaussian
differential privacy", 2022, corollary 3.3, for two releases, the second of which depends on the first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.sums import Sums, diagonal, unpack
from fda_flower.aggregation.units import Units
from fda_flower.aggregation.updates import Layers, received

Array = NDArray[np.float64]

SHARE = 0.05
"""The share of the privacy budget ``1/z²`` that the release of the mean spends."""

CONSTANT, PRODUCTS, RADIUS = 0.4, 1.5, 0.7
"""``κ``, ``w``, and ``R`` over the rows' root mean square distance from the centre."""

SHORTEST = 0.05
"""The mean square distance is at least this."""

RIDGES_OF_NOISE = (1 / 16, 1 / 4, 1.0)
"""``ρ`` of noisy sums, over the largest eigenvalue of their noise; see `CentredSums.solution`."""

FARTHEST = 8.0
"""Standard deviations that noise may be longer than the root of its length, except with probability 1e-14."""

MOST_DEVIATION = 8
"""Multiple of the sources' lower median above which a claimed deviation is not believed: it would make the
ridge of all sources large. Sites with an ε of 1 and of 8 differ by 6."""

NAMES = ("gram", "products", "centre", "radius", "deviation")
"""The arrays of `PrivateSums` as they travel."""


def multipliers(noise: float) -> tuple[float, float]:
    """Return the noise multipliers of the two releases, which together are one of the multiplier `noise`.

    Examples
    --------
    >>> first, second = multipliers(2.0)
    >>> round(first**-2 + second**-2, 12)
    0.25
    """
    return noise / sqrt(SHARE), noise / sqrt(1 - SHARE)


def change_of_patient(classes: int) -> float:
    """Return ``Δ``, the largest change that one patient makes to the sums before `PrivateSums.noisy`.

    One row changes them by ``uuᵀ`` without its last number, which counts patients and has no noise, and by
    ``w uyᵀ``. With ``‖c‖ ≤ 1`` and ``‖y‖² = 1 − 1/C`` the squared norm is at most

    ``‖c‖⁴ + 2κ²‖c‖² + w²‖y‖²(‖c‖² + κ²) ≤ 1 + 2κ² + w²(1 − 1/C)(1 + κ²)``.

    A patient with ``k`` rows changes them by the mean over these rows, since each has the weight ``1/k``, and
    a mean is no longer than the longest of its vectors. ``m`` and ``R`` are fixed by the first release.

    Examples
    --------
    >>> round(change_of_patient(2), 3)
    1.62
    """
    square = CONSTANT**2
    return sqrt(1 + 2 * square + PRODUCTS**2 * (1 - 1 / classes) * (1 + square))


def patient_weights(groups: NDArray[Any]) -> Array:
    """Return ``1/k`` for each row, where ``k`` is the number of rows of its group; shape ``(n,)``.

    Raise a `ValueError` if a group has no name, as `Units.of` does.

    Examples
    --------
    >>> patient_weights(np.array([7, 3, 7])).tolist()
    [0.5, 1.0, 0.5]
    """
    return Units.of(len(groups), groups).shares


def within(vectors: Array, length: float) -> Array:
    """Return the vectors, shape ``(n, d)``, those longer than `length` scaled down to it."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors * (length / np.maximum(norms, length)))


def noisy_centre(features: Array, weights: Array, noise: Array) -> tuple[Array, float]:
    """Return ``m`` and ``R`` from the sum of features over patients with `noise` added.

    One patient more changes the sum by the mean of its rows, of length 1 at most. What follows looks at the
    noisy sum alone: its squared length is as much too large as the noise's variance, so that it is shrunk.

    `features` has shape ``(n, d)``, rows of length 1 at most. The sum of their `weights` is the number of
    patients, which leaves without noise. `noise`, shape ``(d + 1,)``, ends with its deviation; a
    `ValueError` says that it has another shape, in which one number could be added to all features.
    """
    if noise.shape != (features.shape[1] + 1,):
        raise ValueError(f"noise has the shape {noise.shape}, but a row has {features.shape[1]} features")
    patients = round(weights.sum())
    mean = (weights @ features + noise[:-1]) / patients
    noisy_square = float(mean @ mean)
    square = max(noisy_square - len(mean) * (noise[-1] / patients) ** 2, 0.0)
    centre = mean * min(square / noisy_square, noisy_square**-0.5) if square else np.zeros_like(mean)
    return centre, RADIUS * sqrt(max(1 - square, SHORTEST))


@dataclass(frozen=True)
class PrivateSums:
    """Sums over the patients of one site, around a centre.

    Attributes
    ----------
    gram : array
        The upper triangle of ``Σ uuᵀ``, row by row, shape ``(d(d+1)/2,)`` for ``d - 1`` features. Its last
        number counts the patients.
    products : array
        ``w Σ uyᵀ``, shape ``(d, C)``.
    centre : array
        ``m``, shape ``(d - 1,)``.
    radius : float
        ``R``.
    deviation : float
        Of the noise; 0 before there is any.
    """

    gram: Array
    products: Array
    centre: Array
    radius: float
    deviation: float = 0.0

    @classmethod
    def of(
        cls, rows: NDArray[np.floating], targets: Array, groups: NDArray[Any] | None, noise: Array
    ) -> "PrivateSums":
        """Return sums that one patient changes by `change_of_patient` at most.

        `rows` and `targets` have shape ``(n, d)`` and ``(n, C)``; see `fda_flower.aggregation.to_targets`.
        `groups` is the patient of each row, shape ``(n,)``; by default each row is another one. `noise` is of
        the mean; see `noisy_centre`.
        """
        weights = np.ones(len(rows)) if groups is None else patient_weights(groups)
        features = within(np.asarray(rows[:, :-1], np.float64), 1.0)
        centre, radius = noisy_centre(features, weights, np.asarray(noise, np.float64))
        around = np.pad(within((features - centre) / radius, 1.0), ((0, 0), (0, 1)), constant_values=CONSTANT)
        scales = np.sqrt(weights)[:, None]
        sums = Sums.of(scales * around, scales * targets)
        sums.gram[-1] = round(weights.sum())
        return cls(sums.gram, PRODUCTS * sums.products, centre, radius)

    def noisy(self, normal: Array, deviation: float) -> "PrivateSums":
        """Return the sums with noise on all but the number of patients.

        The noise is isotropic in the Frobenius norm of the gram, so an off-diagonal entry, which occurs
        twice, has the deviation over √2. The products' rows are shifted to sum to 0, like the rows of ``y``.
        `normal` are standard normal numbers, as many as in `gram` and `products`, or a `ValueError` says so.
        """
        if normal.shape != (size := self.gram.size + self.products.size,):
            raise ValueError(f"noise has the shape {normal.shape}, but the sums have {size} numbers")
        of_gram, of_products = np.split(deviation * normal, [len(self.gram)])
        scales = np.full(len(self.gram), 0.5**0.5)
        scales[diagonal(len(self.products))] = 1
        scales[-1] = 0
        products = self.products + of_products.reshape(self.products.shape)
        products -= products.mean(axis=1, keepdims=True)
        return replace(self, gram=self.gram + scales * of_gram, products=products, deviation=deviation)

    @property
    def rows(self) -> float:
        """The number of patients."""
        return float(self.gram[-1])

    def to_arrays(self, dtype: type[np.floating] = np.float32) -> dict[str, NDArray[Any]]:
        """Return the sums by name, as they travel in float32."""
        return {name: np.asarray(getattr(self, name), dtype) for name in NAMES}

    @classmethod
    def from_arrays(cls, arrays: Layers, width: int, outputs: int) -> "PrivateSums":
        """Return the sums that somebody has sent, with `width` ``d`` and `outputs` ``C``.

        A `ValueError` says why no patients can have them.
        """
        shapes = ((width * (width + 1) // 2,), (width, outputs), (width - 1,), (), ())
        values = received(arrays, dict(zip(NAMES, shapes, strict=True)), "its sums")
        gram, products, centre, radius, deviation = (np.asarray(array, np.float64) for array in values)
        sums = cls(gram, products, centre, float(radius), float(deviation))
        sums._check()
        return sums

    def _check(self) -> None:
        """Raise a `ValueError` if a number is larger than rows of length 1 allow."""
        if not (self.rows > 0 and self.rows == round(self.rows)):
            raise ValueError(f"its sums are of {self.rows:g} rows")
        if not 0 < self.radius <= 1.001 * RADIUS or np.linalg.norm(self.centre) > 1.001:
            raise ValueError(f"'radius' of its sums is {self.radius:g}, or its centre is longer than a row")
        if not 0 <= self.deviation <= self.rows:
            raise ValueError(f"its noise of {self.deviation:g} drowns the sums of {self.rows:g} rows")
        square = 1 + CONSTANT**2  # ‖u‖² at most
        for vector, longest in ((self.gram[:-1], square), (self.products, PRODUCTS * sqrt(square))):
            noise = self.deviation * (sqrt(vector.size) + FARTHEST)
            if np.linalg.norm(vector) > 1.001 * self.rows * longest + noise:
                raise ValueError("its sums of products are larger than rows of length 1 have")


def check_deviation(claimed: float, all_claimed: Iterable[float]) -> None:
    """Raise a `ValueError` if a source claims far more noise than most sources."""
    usual = median_low(all_claimed)
    if claimed > MOST_DEVIATION * usual:
        says = f"more than {MOST_DEVIATION} times the sources' lower median of {usual:g}"
        raise ValueError(f"its noise has the deviation {claimed:g}, {says}")


@dataclass(frozen=True)
class CentredSums:
    """Sums over rows around a centre ``m``, with the noise of all sites.

    Attributes
    ----------
    gram, ones, products, counts : array
        ``Σ(φ − m)(φ − m)ᵀ``, ``Σ(φ − m)``, ``Σ(φ − m)yᵀ`` and ``Σy``, shapes ``(d, d)``, ``(d,)``, ``(d, C)``
        and ``(C,)`` for ``d`` features.
    rows : float
        How many they are.
    centre : array
        ``m``, shape ``(d,)``.
    variance : float
        Of the noise on the diagonal of `gram`.
    """

    gram: Array
    ones: Array
    products: Array
    counts: Array
    rows: float
    centre: Array
    variance: float

    @classmethod
    def of(cls, sums: Sums | PrivateSums) -> "CentredSums":
        """Return the sums of one site around its own centre, without the scales; open sums are around 0."""
        if isinstance(sums, Sums):
            whole, products, centre, radius = sums.whole, sums.products, np.zeros(len(sums.products) - 1), 1.0
            last, weight, deviation = 1.0, 1.0, 0.0
        else:
            whole, products, centre, radius = unpack(sums.gram), sums.products, sums.centre, sums.radius
            last, weight, deviation = CONSTANT, PRODUCTS, sums.deviation
        return cls(
            radius**2 * whole[:-1, :-1],
            radius / last * whole[:-1, -1],
            radius / weight * products[:-1],
            products[-1] / (last * weight),
            sums.rows,
            centre,
            (radius**2 * deviation) ** 2,
        )

    @property
    def mean(self) -> Array:
        """The mean of all rows, as far as the noise lets it be known; shape ``(d,)``."""
        return self.centre + self.ones / self.rows

    def around(self, centre: Array) -> "CentredSums":
        """Return the same sums around another centre."""
        by = self.centre - centre
        cross = np.outer(by, self.ones)
        return replace(
            self,
            gram=self.gram + cross + cross.T + self.rows * np.outer(by, by),
            ones=self.ones + self.rows * by,
            products=self.products + np.outer(by, self.counts),
            centre=centre,
        )

    def __add__(self, other: "CentredSums") -> "CentredSums":
        other = other.around(self.centre)
        added = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("gram", "ones", "products", "counts", "rows", "variance")
        }
        return replace(self, **added)

    @classmethod
    def total(cls, sums: Iterable[Sums | PrivateSums]) -> "CentredSums":
        """Return the sums over all rows around their mean; the order of sites decides the last bits."""
        total: CentredSums | None = None
        for each in map(cls.of, sums):
            total = each if total is None else total + each
        if total is None:
            raise ValueError("there are no sums")
        return total.around(total.mean)

    def solution(self) -> Array:
        """Return three solutions, shape ``(3, d + 1, C)``, since the share of noise in the gram is unknown.

        Eigenvalues of the gram below ``ρ`` are raised to ``ρ``, and ``ρ`` is the ridge on all but the
        constant. The largest ``ρ`` is the noise's own largest eigenvalue, ``√2 s √d`` (Wigner's semicircle),
        below which no eigenvalue stands out; the others are `RIDGES_OF_NOISE` of it, and none is below 1.
        """
        values, vectors = np.linalg.eigh(self.gram)
        largest = sqrt(2 * len(values) * self.variance)
        ridges = np.maximum(largest * np.array(RIDGES_OF_NOISE), 1.0)[:, None, None]
        raised = np.maximum(values[:, None], ridges) + ridges
        weights = vectors @ (vectors.T @ self.products / raised)
        constant = self.counts / self.rows - self.centre @ weights
        return np.concatenate([weights, constant[:, None]], axis=1)
