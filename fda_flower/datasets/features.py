"""Functions for rows of features, such as patients or customers."""

import torch
from torch import Tensor


def balanced(labels: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the positions of `count` samples, spread evenly over the labels, and those of the others."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    due = (torch.arange(len(labels) + 1) * count + len(labels) - 1) // len(labels)
    chosen = due.diff() > 0
    return order[chosen], order[~chosen]
