"""Random features that need no training and no download: every site draws the same ones."""

from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu

from fda_flower.models.formulas import SEED, frequencies_of, waves

FILTERS, GRID = 64, 3
LEAST, SMALL_CONTRAST = 0.1, 0.01
"""What a response must exceed, and what is added to a patch's mean square."""


class RandomFilters(nn.Module):
    """Responses to random filters of mean 0 and length 1, relative to the contrast of each patch.

    ``z = Σ f x / √(Σ (x − x̄)² + 0.01 p)`` for a patch ``x`` of ``p`` numbers and a filter ``f``. A feature is
    the mean of ``max(z − 0.1, 0)`` or ``max(−z − 0.1, 0)`` over a cell of a 3x3 grid. The filters are 3x3 for
    images of up to 8 pixels, else 6x6.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = shape
        side = 3 if min(height, width) <= 8 else 6
        drawn = np.random.default_rng(SEED).standard_normal((FILTERS, channels, side, side))
        drawn -= drawn.mean(axis=(1, 2, 3), keepdims=True)
        drawn /= np.sqrt(np.square(drawn).sum(axis=(1, 2, 3), keepdims=True))
        self.filters = nn.Parameter(torch.from_numpy(drawn).float())
        self.register_buffer("ones", torch.ones(1, channels, side, side), persistent=False)
        for name, length in (("rows", height), ("columns", width)):
            self.register_buffer(name, _cells(length - side + 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map images, shape ``(n, channels, height, width)``, to features, shape ``(n, 1152)``."""
        number, ones = self.filters[0].numel(), self.ones
        assert isinstance(ones, Tensor)
        squares = conv2d(x * x, ones) - conv2d(x, ones).square() / number
        z = conv2d(x, self.filters) / (squares.clamp_min(0) + SMALL_CONTRAST * number).sqrt()
        responses = torch.cat([relu(z - LEAST), relu(-z - LEAST)], dim=1)
        return (self.rows @ responses @ self.columns.T).flatten(1)


def _cells(length: int) -> Tensor:
    """Return the matrix, shape ``(3, length)``, that averages over three parts of a line."""
    matrix = torch.zeros(GRID, length)
    for cell in range(GRID):
        begin, end = cell * length // GRID, -(-(cell + 1) * length // GRID)
        matrix[cell, begin:end] = 1 / (end - begin)
    return matrix


def conv3x64(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build `RandomFilters` and a linear layer, for images of 5x5 or more.

    References
    ----------
    Coates and Ng, "Learning feature representations with k-means", 2012, for filters without training and the
    contrast of patches.
    """
    return nn.Sequential(RandomFilters(shape), nn.Linear(2 * FILTERS * GRID**2, classes))


class RandomFourier(nn.Module):
    """Cosines and sines of random projections: ``cos(f·x / s√d)`` and ``sin(f·x / s√d)`` at scales ``s``.

    The frequencies ``f`` are Gaussian, so that the inner product of two rows approximates a sum of Gaussian
    kernels of widths ``s√d`` (Rahimi and Recht, "Random features for large-scale kernel machines", 2007).
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.from_numpy(frequencies_of(features)))

    def forward(self, x: Tensor) -> Tensor:
        """Map samples, shape ``(n, ...)``, to features, shape ``(n, 2048)``."""
        features: Tensor = waves(x.flatten(1) @ self.frequencies.T, torch)
        return features


def fourier(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build `RandomFourier` and a linear layer."""
    body = RandomFourier(prod(shape))
    return nn.Sequential(body, nn.Linear(2 * len(body.frequencies), classes))
