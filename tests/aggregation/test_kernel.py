"""The eigenvectors of rows' kernel, of few rows and of many, against the whole kernel inverted."""

import numpy as np
import pytest

from fda_flower.aggregation.kernel import FEW, Kernel
from fda_flower.aggregation.units import Units

RNG = np.random.default_rng(0)


@pytest.fixture(params=[30, FEW + 44], ids=["whole", "thin"])
def case(request):
    """Rows with a metric's factor, their kernel, and the dense ``(K + 0.7)⁻¹``."""
    rows = RNG.normal(size=(request.param, 4))
    factor = np.asarray(np.linalg.cholesky(np.cov(RNG.normal(size=(4, 9))) + np.eye(4)), np.float64)
    back = np.asarray(np.linalg.solve(factor @ factor.T, rows.T), np.float64)
    kernel = Kernel.of(rows, back, factor)
    assert kernel.thin == (len(rows) > FEW)
    return rows, kernel, np.linalg.inv(rows @ back + 0.7 * np.eye(len(rows)))


def test_the_inverse_is_that_of_the_whole_kernel(case):
    rows, kernel, whole = case
    inverse, values = kernel.inverse(0.7), RNG.normal(size=(len(rows), 2))
    np.testing.assert_allclose(inverse @ values, whole @ values, atol=1e-9)
    np.testing.assert_allclose(
        inverse.block(np.array([3, 1, 8])), whole[np.ix_([3, 1, 8], [3, 1, 8])], atol=1e-9
    )
    right = kernel.vectors.T @ rows if kernel.thin else rows
    np.testing.assert_allclose(inverse.left @ right, whole @ rows, atol=1e-9)


def test_residuals_without_a_unit_are_those_of_the_whole_kernel(case):
    rows, kernel, whole = case
    values = RNG.normal(size=(len(rows), 2))
    units = Units.of(len(rows), np.arange(len(rows)) // 3)
    left = kernel.left_out(0.7, values, kernel.project(values), units)
    for unit in (slice(0, 3), slice(9, 12)):
        expected = np.linalg.solve(whole[unit, unit], (whole @ values)[unit])
        np.testing.assert_allclose(left[unit], expected, atol=1e-9)
