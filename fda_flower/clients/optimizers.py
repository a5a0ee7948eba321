"""PyTorch's optimizers without its compiler."""

from inspect import unwrap
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)

WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods, beside ``step``, whose wrappers in `torch.optim` import the compiler."""


def uncompiled(kind: type[Kind]) -> type[Kind]:
    """Return an optimizer's class whose methods are called as they are written.

    `torch.optim` wraps them for code that ``torch.compile`` compiles. The wrappers import the compiler, also
    where nothing is compiled, and so cost each new process two seconds of processor time and 150 MB.

    Parameters
    ----------
    kind : type
        A class of `torch.optim`.

    Returns
    -------
    type
        A subclass of the same name, whose steps have the same bits. It does not know the option
        ``differentiable``.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = uncompiled(torch.optim.SGD)([weight], lr=0.5)
    >>> weight.grad = torch.tensor([1.0])
    >>> optimizer.step()
    >>> weight.tolist()
    [0.5]
    """
    methods: dict[str, Any] = {name: unwrap(getattr(kind, name)) for name in WRAPPED}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


Adam = uncompiled(torch.optim.Adam)
SGD = uncompiled(torch.optim.SGD)
