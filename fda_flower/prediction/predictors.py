"""Predictors of a target: one or more networks, and the rule that combines their outputs.

The predictor that a client evaluates is the one that its model file holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import PRIOR, Layers, Mixture, mixed_scores, neighbour_probabilities
from fda_flower.errors import unknown
from fda_flower.prediction.passes import Passes

if TYPE_CHECKING:
    from torch import nn

Groups = Mapping[str, Layers]
"""Arrays by group: of a network, or other arrays of a predictor."""

Build: TypeAlias = "Callable[[Layers], nn.Module]"


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
    def outputs(self, passes: Passes) -> NDArray[Any]:
        """Return the prediction, shape ``(n, C)``: scores whose softmax is the probabilities, or numbers."""

    @abstractmethod
    def module(self, build: Build) -> "nn.Module":
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

    def outputs(self, passes: Passes) -> NDArray[Any]:
        """Return the network's outputs."""
        return passes.outputs(self.layers)

    def module(self, build: Build) -> "nn.Module":
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

    def outputs(self, passes: Passes) -> NDArray[Any]:
        """Return the weighted outputs."""
        shared = passes.outputs(self.shared)
        return self.alpha * passes.outputs(self.own) + (1 - self.alpha) * shared

    def module(self, build: Build) -> "nn.Module":
        """Return both networks in one."""
        from fda_flower.prediction.modules import WeightedModule

        return WeightedModule(build(self.own), build(self.shared), self.alpha)

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
            member: [passes.outputs(layers) for layers in views] for member, views in self.models.items()
        }
        if PRIOR in self.mixture.weights:
            by_member[PRIOR] = [np.repeat(outputs, len(passes), axis=0) for outputs in self.prior]
        return by_member

    def outputs(self, passes: Passes) -> NDArray[Any]:
        """Return the logarithms of the mixture's probabilities, or its numbers."""
        mixed = self.mixture.predict(self.views(passes))
        if self.mixture.regression:
            return mixed.astype(np.float32)
        import torch  # whose logarithms have other bits than NumPy's

        return torch.from_numpy(mixed).clamp_min(np.finfo(mixed.dtype).tiny).log().numpy()

    def module(self, build: Build) -> "nn.Module":
        """Return all networks in one."""
        from fda_flower.prediction.modules import MixedModule

        models = {member: [build(layers) for layers in views] for member, views in self.models.items()}
        return MixedModule(self.mixture, models, self.prior)

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

    def outputs(self, passes: Passes) -> NDArray[Any]:
        """Return the mixed scores."""
        outputs, near = self.seen(passes)
        # Mixed float64 scores would have other bits.
        return mixed_scores(outputs, near, self.weight) if self.weight else outputs

    def seen(self, passes: Passes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the network's outputs, and the neighbours' probabilities, both ``(n, C)``."""
        outputs, features = passes.outputs_and_features(self.layers)
        return outputs, self.near(outputs.shape[1], features.astype(np.float64))

    def module(self, build: Build) -> "nn.Module":
        """Return the network with the known samples."""
        from fda_flower.prediction.modules import NeighboursModule

        network = build(self.layers)
        return NeighboursModule(network, self) if self.weight else network

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
