"""Networks that train in half precision."""

from typing import Any

import torch
from torch import Tensor, nn


def in_precision(network: nn.Module, precision: str) -> nn.Module:
    """Have a network train in a precision: its outputs are computed in it where gradients are taken.

    Its parameters, buffers and outputs stay float32, and so does whatever is computed without gradients:
    evaluations, and the statistics that are estimated for AdaBN.

    Parameters
    ----------
    network : Module
        Changed in place; it also has the names, and is of the class, that it had.
    precision : {"float32", "bf16"}
        Of the layers for which torch's autocast has bfloat16, such as convolutions and linear layers.

    Examples
    --------
    >>> network = in_precision(nn.Linear(3, 2), "bf16")
    >>> network(torch.ones(1, 3)).dtype, network.weight.dtype, isinstance(network, nn.Linear)
    (torch.float32, torch.float32, True)
    """
    if precision == "bf16":
        kind = type(network)
        # A wrapper would rename the arrays; a function in place of `forward` would be shared by copies.
        network.__class__ = type(kind.__name__, (_InBf16, kind), {})
    return network


class _InBf16(nn.Module):
    """Comes before a network's own class."""

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        """Return what the network's own class returns, as float32."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=torch.is_grad_enabled()):
            outputs: Tensor = super().forward(x, *more)
        return outputs.float()
