"""Samples made of tensors, and their tensors."""

import torch

from fda_flower.datasets import Samples


def samples_of(x, y, noise=0.0, groups=None, **fields):
    """The samples of tensors."""
    return Samples(x.numpy(), y.numpy(), noise, None if groups is None else groups.numpy(), **fields)


def tensors(samples):
    """Inputs and labels as tensors, which share their memory."""
    return torch.from_numpy(samples.x), torch.from_numpy(samples.y)
