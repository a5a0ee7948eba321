"""Samples: what is taken, joined and counted of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from naming import names

from fda_flower.datasets import Samples
from fda_flower.errors import ConfigError

COUNT = 10


def make(noise=0.0):
    """Samples whose image is their number and whose class is ten times it."""
    y = np.arange(COUNT)
    return Samples(np.tile(y.astype(np.float32)[:, None, None, None], (1, 1, 2, 2)), 10 * y, noise)


def test_samples_are_taken_in_the_order_asked_for_and_joined_with_the_first_ones_noise():
    taken = make(noise=0.5).take(np.array([7, 2]), np.array([2]))
    assert (len(taken), taken.y.tolist(), taken.noise) == (3, [70, 20, 20], 0.5)
    assert taken.x[:, 0, 0, 0].tolist() == [7, 2, 2]
    both = taken.joined(make().take(np.array([1])).without_labels())
    assert (both.y.tolist(), both.noise) == ([70, 20, 20, -1], 0.5)
    assert both.x[:, 0, 0, 0].tolist() == [7, 2, 2, 1]


def test_groups_go_where_their_samples_go():
    four = Samples(np.zeros((4, 1)), np.arange(4), 0.5, np.array([7, 7, 8, 9]))
    part = four.take(np.array([3, 0]))
    assert part.groups.tolist() == [9, 7]
    assert part.joined(four).groups.tolist() == [9, 7, 7, 7, 8, 9]
    assert part.digest() != replace(part, groups=np.array([9, 9])).digest()


def test_samples_of_known_and_of_unknown_groups_are_not_joined():
    alone = Samples(np.zeros((2, 1)), np.arange(2))
    known = replace(alone, groups=np.arange(2))
    for first, second in ((alone, known), (known, alone)):
        with pytest.raises(ConfigError, match="the others have none", check=names("groups")):
            first.joined(second)


def test_units_are_the_groups_or_else_the_samples():
    samples = make()
    assert samples.units == COUNT
    assert replace(samples, groups=np.arange(COUNT) // 4).units == 3


@pytest.mark.parametrize("field", ["x", "y", "groups", "values"])
def test_a_tensor_is_refused_with_its_remedy(field):
    with pytest.raises(ConfigError, check=names(field, "Tensor", r"x.numpy()")):
        replace(make(), **{field: torch.zeros(COUNT)})


@pytest.mark.parametrize(
    ("field", "array"),
    [("x", np.zeros(COUNT, np.float16)), ("y", np.zeros(COUNT, bool)), ("groups", np.zeros(COUNT, np.int32))],
)
def test_an_array_of_another_type_is_refused_with_one_that_works(field, array):
    with pytest.raises(ConfigError, check=names(field, str(array.dtype), f"{field}.astype(")) as refused:
        replace(make(), **{field: array})
    fitting = str(refused.value).split("astype('")[1].removesuffix("')")
    replace(make(), **{field: array.astype(fitting)})
