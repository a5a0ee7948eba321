"""Predictors of a target: one or more networks, and the rule that combines their outputs.

The predictor that a client evaluates is the one that its model file holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fda_flower.aggregation import PRIOR, Layers, Mixture, mixed_scores, neighbour_probabilities
from fda_flower.errors import unknown
from fda_flower.models.devices import widest_float
from fda_flower.models.parts import features_of
from fda_flower.prediction.passes import Passes


class _WeightedModule(nn.Module):
    def __init__(self, own: nn.Module, shared: nn.Module, alpha: float) -> None:
        super().__init__()
        self.own, self.shared, self.alpha = own, shared, alpha

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.alpha * self.own(x) + (1 - self.alpha) * self.shared(x)
        return mixed


class _MixedModule(nn.Module):
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


class _NeighboursModule(nn.Module):
    """A network with its neighbours in float64; see `Neighbours`."""

    def __init__(self, network: nn.Module, known: "Neighbours") -> None:
        super().__init__()
        self.network, self.known = network, known
        self.register_buffer("keys", torch.from_numpy(known.keys))
        self.register_buffer("labels", torch.from_numpy(known.labels))

    def forward(self, x: Tensor) -> Tensor:
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


Groups = Mapping[str, Layers]
"""Arrays by group: of a network, or other arrays of a predictor."""

Build = Callable[[Layers], nn.Module]


@dataclass(frozen=True)
class Parts:
    """The arrays of each network, other arrays, and settings in JSON values."""

    networks: Groups
    others: Groups = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Predictor(ABC):
    """A way to predict; the first line of a subclass's docstring describes it."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """The contents of its file, for `from_parts`."""

    @abstractmethod
    def outputs(self, passes: Passes) -> Tensor:
        """Return the prediction, shape ``(n, C)``: scores whose softmax is the probabilities, or numbers."""

    @abstractmethod
    def module(self, build: Build) -> nn.Module:
        """Return a module from inputs to `outputs`, equal up to rounding.

        `build` makes a new network with given arrays.
        """

    @classmethod
    @abstractmethod
    def from_parts(cls, groups: Groups, settings: Mapping[str, Any]) -> "Predictor":
        """Return the predictor with these arrays and settings."""

    @staticmethod
    def of_kind(kind: str, groups: Groups, settings: Mapping[str, Any]) -> "Predictor":
        """Return the predictor of a kind; raise a `ConfigError` if the kind is unknown. See `from_parts`."""
        if kind not in PREDICTORS:
            raise unknown("kind of predictor", kind, PREDICTORS)
        return PREDICTORS[kind].from_parts(groups, settings)


@dataclass(frozen=True)
class Single(Predictor):
    """One network."""

    layers: Layers
    kind: ClassVar[str] = "network"

    @property
    def parts(self) -> Parts:
        """The network."""
        return Parts({"network": self.layers})

    def outputs(self, passes: Passes) -> Tensor:
        """Return the network's outputs."""
        return passes.outputs(self.layers)

    def module(self, build: Build) -> nn.Module:
        """Return the network."""
        return build(self.layers)

    @classmethod
    def from_parts(cls, groups: Groups, settings: Mapping[str, Any]) -> "Single":
        """Return the predictor of a network."""
        return cls(groups["network"])


@dataclass(frozen=True)
class Weighted(Predictor):
    """The outputs of two networks, ``v`` (own) and ``w`` (shared): ``a z_v + (1 − a) z_w`` (APFL)."""

    own: Layers
    shared: Layers
    alpha: float
    kind: ClassVar[str] = "weighted"

    @property
    def parts(self) -> Parts:
        """Both networks, and the weight."""
        return Parts({"own": self.own, "global": self.shared}, settings={"alpha": self.alpha})

    def outputs(self, passes: Passes) -> Tensor:
        """Return the weighted outputs."""
        shared = passes.outputs(self.shared)
        return self.alpha * passes.outputs(self.own) + (1 - self.alpha) * shared

    def module(self, build: Build) -> nn.Module:
        """Return both networks in one."""
        return _WeightedModule(build(self.own), build(self.shared), self.alpha)

    @classmethod
    def from_parts(cls, groups: Groups, settings: Mapping[str, Any]) -> "Weighted":
        """Return the predictor of two networks."""
        return cls(groups["own"], groups["global"], settings["alpha"])


@dataclass(frozen=True)
class Mixed(Predictor):
    """A mixture of members, each with one network or several views; see `fda_flower.aggregation.Mixture`.

    Attributes
    ----------
    mixture : Mixture
        Weights and temperatures.
    models : Mapping[str, Sequence of Layers]
        For each member with a weight, the network of all labels, then the networks without a fold.
    prior : Sequence of NDArray
        Outputs of the member `PRIOR` by view, each of shape ``(1, C)``; used if it has a weight.
    """

    mixture: Mixture
    models: Mapping[str, Sequence[Layers]]
    prior: Sequence[NDArray[Any]] = ()
    kind: ClassVar[str] = "mixture"

    @property
    def parts(self) -> Parts:
        """The networks, ``MEMBER/VIEW``, the prior's outputs by view, and the mixture."""
        models = self.models.items()
        networks = {f"{member}/{i}": layers for member, views in models for i, layers in enumerate(views)}
        prior = {str(view): outputs for view, outputs in enumerate(self.prior)}
        views = {member: len(views) for member, views in models}
        return Parts(networks, {PRIOR: prior}, {"mixture": asdict(self.mixture), "views": views})

    def views(self, passes: Passes) -> dict[str, list[NDArray[Any]]]:
        """Return the outputs of each member's views."""
        by_member = {
            member: [passes.outputs(layers).cpu().numpy() for layers in views]
            for member, views in self.models.items()
        }
        if PRIOR in self.mixture.weights:
            by_member[PRIOR] = [np.repeat(outputs, len(passes), axis=0) for outputs in self.prior]
        return by_member

    def outputs(self, passes: Passes) -> Tensor:
        """Return the logarithms of the mixture's probabilities, or its numbers."""
        mixed = torch.from_numpy(self.mixture.predict(self.views(passes)))
        if self.mixture.regression:
            return mixed.float().to(passes.device)
        logarithms = mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()
        return logarithms.to(widest_float(passes.device)).to(passes.device)

    def module(self, build: Build) -> nn.Module:
        """Return all networks in one."""
        models = {member: [build(layers) for layers in views] for member, views in self.models.items()}
        return _MixedModule(self.mixture, models, self.prior)

    @classmethod
    def from_parts(cls, groups: Groups, settings: Mapping[str, Any]) -> "Mixed":
        """Return the predictor of a mixture."""
        fields = dict(settings["mixture"])
        mixture = Mixture(**{**fields, "left_out": tuple(fields["left_out"])})
        models = {
            member: [groups[f"{member}/{view}"] for view in range(count)]
            for member, count in settings["views"].items()
        }
        prior = groups.get(PRIOR, {})
        return cls(mixture, models, [prior[str(view)] for view in range(len(prior))])


MIX = "probabilities"
"""What `Neighbours` mixes, as its file says."""


@dataclass(frozen=True)
class Neighbours(Predictor):
    """A network, mixed with the labels of the nearest known samples (kNN-Per).

    Attributes
    ----------
    layers : Layers
        The network's arrays.
    keys, labels : NDArray
        Features of the known samples, float64, shape ``(n, features)``, and their classes.
    k, scale : int, float
        Number of neighbours, and the scale of the kernel.
    weight : float
        ``λ``; at 0 the network predicts alone.
    """

    layers: Layers
    keys: NDArray[Any]
    labels: NDArray[Any]
    k: int
    scale: float
    weight: float
    kind: ClassVar[str] = "neighbours"

    @property
    def parts(self) -> Parts:
        """The network, the known samples and the settings."""
        settings = {"k": self.k, "scale": self.scale, "weight": self.weight, "mix": MIX}
        known = {"keys": self.keys, "labels": self.labels}
        return Parts({"network": self.layers}, {"known": known}, settings)

    def outputs(self, passes: Passes) -> Tensor:
        """Return the mixed scores."""
        outputs, near = self.seen(passes)
        if not self.weight:
            # Mixed float64 scores would have other bits.
            return outputs
        mixed = mixed_scores(outputs.cpu().numpy(), near, self.weight)
        return torch.from_numpy(mixed).to(widest_float(outputs.device)).to(outputs.device)

    def seen(self, passes: Passes) -> tuple[Tensor, NDArray[Any]]:
        """Return the network's outputs, and the neighbours' probabilities, both ``(n, C)``."""
        outputs, features = passes.outputs_and_features(self.layers)
        return outputs, self.near(outputs.shape[1], features.cpu().double().numpy())

    def module(self, build: Build) -> nn.Module:
        """Return the network with the known samples."""
        network = build(self.layers)
        return _NeighboursModule(network, self) if self.weight else network

    def near(
        self, classes: int, queries: NDArray[Any] | None = None, groups: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the neighbours' probabilities for queries, by default for each key among the others.

        With `groups`, the unit of each key, such as a patient, the others are those of other units.
        """
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(algorithm="brute").fit(self.keys)
        same = 1 if groups is None else int(np.unique(groups, return_counts=True)[1].max())
        count = min(self.k + (queries is None) * (same - 1), len(self.keys) - (queries is None))
        distances, places = search.kneighbors(queries, count)
        if queries is None and groups is not None and same > 1:
            own = groups[places] == groups[:, None]
            order = np.argsort(own, axis=1, kind="stable")[:, : self.k]
            distances = np.where(own, np.inf, distances)  # so that they weigh nothing
            distances, places = (np.take_along_axis(each, order, axis=1) for each in (distances, places))
        features = self.keys.shape[1]
        return neighbour_probabilities(distances, self.labels[places], classes, features, self.scale)

    @classmethod
    def from_parts(cls, groups: Groups, settings: Mapping[str, Any]) -> "Neighbours":
        """Return the predictor of a network and known samples."""
        known, own = groups["known"], dict(settings)
        if (mix := own.pop("mix")) != MIX:
            raise ValueError(f"it mixes {mix}, which this version does not: take an earlier one")
        return cls(groups["network"], known["keys"], known["labels"], **own)


PREDICTORS: dict[str, type[Predictor]] = {kind.kind: kind for kind in (Single, Weighted, Mixed, Neighbours)}
"""The predictors by kind. Add one with a class and its name here."""
