"""Random numbers without PyTorch are PyTorch's."""

import numpy as np
import pytest
import torch

from fda_flower.datasets.drawing import Generator


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**40 + 7, 2**63 - 1])
def test_numbers_drawn_in_turns_are_those_of_pytorch(seed):
    ours, theirs = Generator(seed), torch.Generator().manual_seed(seed)
    for length in (0, 1, 2, 15, 16, 700, 1000):
        drawn = ours.permutation(length)
        assert drawn.dtype == np.int64
        assert drawn.tolist() == torch.randperm(length, generator=theirs).tolist()
        shares = ours.uniform(length)
        assert shares.dtype == np.float32
        assert np.array_equal(shares, torch.rand(length, generator=theirs).numpy())
        for end in (2**62, 2**63 - 1):
            assert ours.integer(end) == int(torch.randint(end, (1,), generator=theirs))
