"""A table's rows for a linear layer: all columns, alone or with hinges; a row's squared length is about 1."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fda_flower.models import formulas
from fda_flower.models.formulas import KNOTS, knots_of


class PlainColumns(nn.Module):
    """Divides ``d`` columns by ``√d``: rows of standardised columns then have a mean squared length of 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of the same shape, ``(n, d)``."""
        rows: Tensor = formulas.plain_columns(x)
        return rows


class Hinges(nn.Module):
    """``h(z) = (z, max(z + 0.7, 0), max(z, 0), max(z − 0.7, 0)) / √(3d)`` of ``d`` columns ``z``.

    A linear layer on them is for each column a line with a bend at each knot, as in Friedman, "Multivariate
    adaptive regression splines", 1991. Where columns are standard normal, the mean squared length of ``h(z)``
    is 0.997. Each number follows from one other alone, so that a row has the same bits in any company.

    Examples
    --------
    >>> Hinges()(torch.tensor([[1.0]])) * 3**0.5
    tensor([[1.0000, 1.7000, 1.0000, 0.3000]], grad_fn=<MulBackward0>)
    """

    by_number = True

    def __init__(self, knots: Sequence[float] = KNOTS) -> None:
        super().__init__()
        self.knots = nn.Parameter(torch.tensor(knots))

    def forward(self, x: Tensor) -> Tensor:
        """Map rows, shape ``(n, d)``, to features, shape ``(n, 4d)``: first all ``z``, then knot by knot."""
        features: Tensor = formulas.bends(x, self.knots, torch)
        return features


def hinges(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build `Hinges` and a linear layer, for rows of a table; see `formulas.knots_of`."""
    knots = knots_of(shape[0])
    return nn.Sequential(Hinges(knots.tolist()), nn.Linear((1 + len(knots)) * shape[0], classes))
