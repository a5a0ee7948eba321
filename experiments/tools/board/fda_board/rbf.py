"""A synthetic regression: sums of radial basis functions of points from a mixture of Gaussians."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fda_flower.datasets import Samples, Split
from fda_flower.errors import invalid

INPUTS, OUTPUTS, FUNCTIONS, GAUSSIANS = 50, 10, 100, 10
TEST_SHARE = 0.2
FEWEST = 10

WIDTH = 5.1
"""The factor of the widths for which the target's outputs have variance 1 on average over seeds."""


def load(data_dir: Path | None, seed: int, shift: float = 0.5, samples: int = 5000) -> dict[str, Split]:
    """Return points in R^50 with 10 real outputs each, for a source and the target.

    The target's outputs are ``y_k = Σ_i exp(−‖x − μ_ki‖² / (2 σ_ki)²)`` over 100 functions, with every entry
    of `μ` from U(−0.5, 0.5) and `σ` from 5.1 · U(−0.5, 0.5). The paper prints no factor for `σ`, but without
    one every function underflows in 50 dimensions; with this one the outputs have a variance of 1. `x` is
    drawn from a mixture of 10 Gaussians with unit covariance, whose centres, from U(−0.5, 0.5), are the same
    for both domains.

    Nor does the paper print how the source's functions deviate. Here, unrelated functions, drawn in the same
    way, replace a share `shift` of each output's functions, and are added or subtracted at random. (The signs
    make the shift: in 50 dimensions, sums of 100 positive functions hardly depend on their centres.)

    `seed` determines the functions and the points; the target does not depend on `shift`, the share of the
    source's functions that are not the target's: 0 is no shift, 1 an unrelated source. Of the `samples` of
    each domain 80 % are for training, with `y` of shape ``(n, 10)``.

    References
    ----------
    Jiang et al., "Principled Federated Domain Adaptation: Gradient Projection and Auto-Weighting",
    ICLR 2024, Appendix B.
    """
    if not 0 <= shift <= 1:
        raise invalid("option 'shift' of data set 'rbf'", shift, "give a share from 0 to 1")
    if samples < FEWEST:
        raise invalid("option 'samples' of data set 'rbf'", samples, f"give at least {FEWEST}")
    generator = torch.Generator().manual_seed(seed)
    centres = _uniform(generator, GAUSSIANS, INPUTS)
    target, other = (_functions(generator) for _ in range(2))
    signs = torch.randint(2, (OUTPUTS, FUNCTIONS), generator=generator) * 2.0 - 1
    replaced = torch.arange(FUNCTIONS) < round(shift * FUNCTIONS)
    source = torch.where(replaced[:, None], other, target)
    return {
        "source": _split(source, torch.where(replaced, signs, 1.0), centres, samples, generator),
        "target": _split(target, torch.ones_like(signs), centres, samples, generator),
    }


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5


def _functions(generator: torch.Generator) -> Tensor:
    """Draw centres, with the width in the last column; shape ``(outputs, functions, inputs + 1)``."""
    scale = torch.tensor([1.0] * INPUTS + [WIDTH], dtype=torch.float64)
    return scale * _uniform(generator, OUTPUTS, FUNCTIONS, INPUTS + 1)


def _split(
    functions: Tensor, signs: Tensor, centres: Tensor, count: int, generator: torch.Generator
) -> Split:
    component = torch.randint(GAUSSIANS, (count,), generator=generator)
    x = centres[component] + torch.randn(count, INPUTS, generator=generator, dtype=torch.float64)
    y = [_output(x, *parameters) for parameters in zip(functions, signs, strict=True)]
    samples = Samples(x.float().numpy(), torch.stack(y, dim=1).float().numpy())
    every, test = np.arange(count), round(TEST_SHARE * count)
    return Split(samples.take(every[test:]), samples.take(every[:test]), OUTPUTS)


def _output(x: Tensor, functions: Tensor, signs: Tensor) -> Tensor:
    # A matrix product's bits would depend on the number of threads.
    distance = torch.cdist(x, functions[:, :-1], compute_mode="donot_use_mm_for_euclid_dist")
    return (signs * torch.exp(-((distance / (2 * functions[:, -1])) ** 2))).sum(dim=1)
