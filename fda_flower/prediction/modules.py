"""Predictors of several networks as one module of PyTorch, from inputs to outputs, for export."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fda_flower.aggregation import PRIOR, Mixture
from fda_flower.models.parts import features_of

if TYPE_CHECKING:
    from fda_flower.prediction.predictors import Neighbours


class WeightedModule(nn.Module):
    """The outputs of two networks, weighted; see `fda_flower.prediction.predictors.Weighted`."""

    def __init__(self, own: nn.Module, shared: nn.Module, alpha: float) -> None:
        super().__init__()
        self.own, self.shared, self.alpha = own, shared, alpha

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted outputs, shape ``(n, C)``."""
        mixed: Tensor = self.alpha * self.own(x) + (1 - self.alpha) * self.shared(x)
        return mixed


class MixedModule(nn.Module):
    """A mixture in float64; see `fda_flower.aggregation.Mixture.predict`."""

    def __init__(
        self, mixture: Mixture, models: Mapping[str, Sequence[nn.Module]], prior: Sequence[NDArray[Any]]
    ) -> None:
        super().__init__()
        self.mixture = mixture
        self.members = nn.ModuleDict(
            {member: nn.ModuleList(views) for member, views in models.items() if member in mixture.weights}
        )
        self.register_buffer("prior", torch.from_numpy(np.array(prior)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of the mixture's probabilities, or its numbers, shape ``(n, C)``."""
        total, lost = torch.zeros(()), torch.zeros((), dtype=torch.float64)
        for member, weight in self.mixture.weights.items():
            scaled = [self._scaled(member, outputs) for outputs in self._views(member, x)]
            others = scaled[1:] or scaled[:1]
            mean = (scaled[0] + sum(others[1:], others[0]) / len(others)) / 2
            term = weight * (mean if self.mixture.regression else mean.exp())
            counts = term.isfinite().all(dim=1, keepdim=True)
            total, lost = total + torch.where(counts, term, 0.0), lost + weight * (~counts).double()
        if self.mixture.regression:
            return (total / (1 - lost)).float()
        return (total / total.sum(dim=1, keepdim=True)).clamp_min(torch.finfo(torch.float64).tiny).log()

    def _views(self, member: str, x: Tensor) -> list[Tensor]:
        if member == PRIOR:
            assert isinstance(self.prior, Tensor)
            return [outputs.expand(x.shape[0], -1) for outputs in self.prior.unbind()]
        views = self.members[member]
        assert isinstance(views, nn.ModuleList)
        return [network(x) for network in views]

    def _scaled(self, member: str, outputs: Tensor) -> Tensor:
        if self.mixture.regression:
            return outputs.double()
        return (outputs.double() / self.mixture.temperatures.get(member, 1.0)).log_softmax(dim=1)


class NeighboursModule(nn.Module):
    """A network with its neighbours in float64; see `fda_flower.prediction.predictors.Neighbours`."""

    def __init__(self, network: nn.Module, known: "Neighbours") -> None:
        super().__init__()
        self.network, self.known = network, known
        self.register_buffer("keys", torch.from_numpy(known.keys))
        self.register_buffer("labels", torch.from_numpy(known.labels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed scores, shape ``(n, classes)``."""
        with features_of(self.network) as features:
            logits = self.network(x).double()
        assert isinstance(self.keys, Tensor)
        assert isinstance(self.labels, Tensor)
        queries, classes = features[0].double(), logits.shape[1]
        # ONNX has no operator for torch.cdist.
        squares = queries.square().sum(dim=1, keepdim=True) + self.keys.square().sum(dim=1)
        distances = (squares - 2 * queries @ self.keys.T).clamp_min(0)
        nearest, places = distances.topk(min(self.known.k, len(self.keys)), largest=False)
        kernels = torch.exp(-nearest / (self.keys.shape[1] * self.known.scale))
        sums = (kernels[:, :, None] * one_hot(self.labels, classes).double()[places]).sum(dim=1)
        totals = sums.sum(dim=1, keepdim=True)
        near = torch.where(totals > 0, sums / totals.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
        weights = self.known.weight * (totals > 0)
        mixed: Tensor = weights * near + (1 - weights) * logits.softmax(dim=1)
        return mixed.clamp_min(torch.finfo(torch.float64).tiny).log()
