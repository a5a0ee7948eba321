"""The synthetic regression of radial basis functions."""

import math

import numpy as np
import pytest
import torch
from fda_board.rbf import INPUTS, WIDTH, _functions, _output, load
from naming import names

from fda_flower.errors import ConfigError


def test_shapes_and_shares():
    for split in load(None, 0, samples=50).values():
        assert (split.train.x.shape, split.train.y.shape) == ((40, 50), (40, 10))
        assert (split.test.x.shape, split.test.y.shape) == ((10, 50), (10, 10))
    assert len(load(None, 0)["target"].train) == 4000


def test_an_output_is_the_sum_of_the_formula():
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    functions = torch.tensor([[0.0, 0.0, 0.5], [1.0, 0.0, -1.0]], dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    # Squared distances 0 and 1, 5 and 4; widths (2 · 0.5)² = 1 and (2 · 1)² = 4.
    expected = [1 - math.exp(-1 / 4), math.exp(-5) - math.exp(-1)]
    assert _output(x, functions, signs).tolist() == pytest.approx(expected)


def test_parameters_are_uniform_and_widths_wider():
    functions = _functions(torch.Generator().manual_seed(0))
    assert functions.shape == (10, 100, INPUTS + 1)
    centres, widths = functions[..., :-1], functions[..., -1]
    assert 0.499 < float(centres.abs().max()) <= 0.5
    assert 0.49 * WIDTH < float(widths.abs().max()) <= 0.5 * WIDTH


def test_outputs_have_unit_variance_on_average_and_inputs_are_a_mixture_around_the_origin():
    labels = [load(None, seed, samples=250)["target"].train.y for seed in range(16)]
    assert np.mean([y.var(axis=0, ddof=1).mean() for y in labels]) == pytest.approx(1, abs=0.1)
    # A unit covariance and centres of variance 1/12: the overall variance is 1.08.
    assert float(load(None, 0)["target"].train.x.var(axis=0, ddof=1).mean()) == pytest.approx(
        1 + 1 / 12, abs=0.04
    )


def test_the_source_departs_with_the_shift_and_the_target_stays():
    errors = []
    plain = load(None, 0, 0.0, 200)
    for shift in (0.0, 0.01, 0.1, 0.3, 0.6, 1.0):
        shifted = load(None, 0, shift, 200)
        assert np.array_equal(shifted["source"].train.x, plain["source"].train.x)
        errors.append(float(np.square(shifted["source"].train.y - plain["source"].train.y).mean()))
        for part in ("train", "test"):
            ours, others = getattr(shifted["target"], part), getattr(plain["target"], part)
            assert np.array_equal(ours.x, others.x)
            assert np.array_equal(ours.y, others.y)
    assert errors[0] == 0
    assert errors == sorted(set(errors))


@pytest.mark.parametrize(
    ("option", "value"), [("shift", -0.1), ("shift", 1.5), ("shift", math.nan), ("samples", 9)]
)
def test_an_option_out_of_range_is_refused(option, value):
    with pytest.raises(ConfigError, check=names(f"option '{option}' of data set 'rbf'", value)):
        load(None, 0, **{option: value})
