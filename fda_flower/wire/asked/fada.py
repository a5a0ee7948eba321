"""FADA's questions and answers. A source's has features of samples, which sites do not send by default."""

from collections.abc import Mapping
from typing import Annotated

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError
from fda_flower.names.options import Count, NotNegative, Share
from fda_flower.wire.questions import Answer, Figure, Like, Question
from fda_flower.wire.releases import Release

VECTORS = "features"
"""Name of the array of features, shape ``(samples, features)``."""


class Disentangled(Answer):
    """What a source has learned: `features` of some of its samples, by the model in its reply.

    `fresh_start` says whether it had no disentangler of a round before.
    """

    features: Annotated[Layers, Release.SAMPLES]
    fresh_start: Annotated[bool, Release.NOTHING]

    def __post_init__(self) -> None:
        forms = {
            name: (array.dtype.name, array.ndim, array.size > 0) for name, array in self.features.items()
        }
        if forms != {VECTORS: ("float32", 2, True)}:
            raise ConfigError("its features are no float32 array of a row for each sample", thing="features")


class Disentangle(Question):
    """FADA's sources: train, disentangle the features, and send some, of at most `vectors` samples.

    `identifier` is the domain identifier of the round before, if there is one. `adversarial`,
    `mutual_information` and `reconstruction` weigh the losses of these names.
    """

    action = "disentangle"
    roles = ("source",)
    answer = Disentangled
    answered_by = "fda_flower.clients.fada:disentangle"
    remedy = "choose a method that sends no features of samples, such as kd3a"

    adversarial: NotNegative
    mutual_information: NotNegative
    reconstruction: NotNegative
    vectors: Count
    identifier: Layers | None = None


class Aligned(Answer):
    """The target's `gain` by each source's update, and the domain `identifiers` that it has trained.

    `dispersion` is the mean over samples before any update.
    """

    dispersion: Figure
    gain: Annotated[Mapping[str, float], Release.FIGURES]
    identifiers: Annotated[Mapping[str, Layers], Release.MODEL]


class Align(Question):
    """FADA's target: weigh the sources' `models`, and align the features of their mean with the sources'.

    `features` are those in the sources' answers, `identifiers` the domain identifiers of the round before.
    Gains are over at least `vectors` samples. `adversarial` multiplies each step of the target's body.
    """

    action = "align"
    roles = ("target",)
    answer = Aligned
    answered_by = "fda_flower.clients.fada:align"

    adversarial: Share
    vectors: Count
    models: Mapping[str, Annotated[Layers, Like("model")]]
    features: Mapping[str, Layers]
    identifiers: Mapping[str, Layers]
