"""Noise: the mechanism for a whole site, and what a site's mod and its client say for each patient."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import invalid
from fda_flower.site.accountant import Steps, noise_of_steps
from fda_flower.wire.protocol import MEAN_NOISE, OF_PATIENTS

Randomness = Callable[[int], bytes]
"""Returns that many random bytes: ``os.urandom``, or in a simulation a generator's ``bytes``."""

DRAWS = 4
"""Number of normal draws in each sample, whose sum is divided by √4; see `gaussian`."""


def gaussian(count: int, draw: Randomness) -> NDArray[np.float64]:
    """Return standard normal numbers.

    Each is the sum of four draws over 2. The gaps between floating-point numbers, which could identify a
    single draw, then reveal nothing (Holohan and Braghin, 2021).
    """
    pairs = -(-count // 2)
    words = np.frombuffer(draw(8 * 2 * pairs * DRAWS), np.uint64).reshape(DRAWS, 2, pairs)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    result: NDArray[np.float64] = normal.sum(axis=0)[:count] / np.sqrt(DRAWS)
    return result


@dataclass
class Mechanism:
    """The Gaussian mechanism for everything that leaves a site in one reply.

    Two data sets of a site are neighbours if all of the site's data are replaced. Vectors of norm up to ``C``
    may then differ by ``2 C``, their sensitivity, and the standard deviation of the noise is ``2 z C``.

    Attributes
    ----------
    clip, noise : float
        ``C`` and ``z``.
    draw : callable
        Source of the random bytes.
    releases : int
        How often the mechanism was used; all uses compose.

    Examples
    --------
    >>> mechanism = Mechanism(1.0, 0.0, bytes)
    >>> mechanism.vectors({"w": np.array([3.0, 4.0])})["w"].round(3).tolist()
    [0.6, 0.8]
    """

    clip: float
    noise: float
    draw: Randomness
    releases: int = 0

    @property
    def deviation(self) -> float:
        """``2 z C``, the standard deviation of the noise on a vector."""
        return 2 * self.noise * self.clip

    def vectors(self, layers: Layers) -> dict[str, NDArray[np.float64]]:
        """Release arrays as one vector, clipped to the norm ``C``."""
        arrays = {name: finite_or_zero(array).astype(np.float64) for name, array in layers.items()}
        factor = factor_to(self.clip, norm_of(arrays))
        released = {
            name: factor * array + self._noise(array.shape, self.deviation) for name, array in arrays.items()
        }
        self.releases += 1
        return released

    def parts(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Release numbers of at least 0, scaled to a sum of at most ``C²``; the result is never negative.

        Two such vectors differ by at most ``√2 C²``.
        """
        numbers, most = finite_or_zero(values).astype(np.float64), self.clip**2
        total = float(numbers.sum())
        scaled = numbers * (1.0 if total <= most else most / total)
        self.releases += 1
        return np.maximum(scaled + self._noise(values.shape, np.sqrt(2) * self.noise * most), 0)

    def number(self, value: float) -> float:
        """Release a number, clipped to ``[0, C²]``, with the sensitivity ``C²``; it is never negative."""
        most = self.clip**2
        cut = float(np.clip(finite_or_zero(np.array(value)), 0, most))
        self.releases += 1
        return max(cut + float(self._noise((), self.noise * most)), 0.0)

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return standard normal numbers for one release of a vector of known sensitivity."""
        self.releases += 1
        return gaussian(count, self.draw)

    def _noise(self, shape: tuple[int, ...], deviation: float) -> NDArray[np.float64]:
        if deviation == 0:
            return np.zeros(shape)
        return deviation * gaussian(int(np.prod(shape)), self.draw).reshape(shape)


def norm_of(layers: Mapping[str, NDArray[Any]]) -> float:
    """Return the norm of arrays as one vector, of their finite numbers."""
    with np.errstate(over="ignore"):
        squares = (np.square(finite_or_zero(array), dtype=np.float64).sum() for array in layers.values())
        return float(np.sqrt(sum(squares)))


def factor_to(limit: float, norm: float) -> float:
    """Return the factor that scales a vector down to a norm; 1 within it."""
    return 1.0 if norm <= limit else limit / norm


def finite_or_zero(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array with 0 for any number that is not finite, which clipping cannot limit.

    An error in its place would depend on the data, and no noise covers that.
    """
    return np.where(np.isfinite(array), array, np.zeros((), array.dtype))


PREFIX = f"{OF_PATIENTS}-"


def remove_claims(content: RecordDict) -> None:
    """Remove from a message what the site's mod alone tells its client."""
    content.pop(MEAN_NOISE, None)
    for record in content.values():
        if not isinstance(record, ConfigRecord):
            continue
        for name in [name for name in record if name == OF_PATIENTS or name.startswith(PREFIX)]:
            del record[name]


STEPS = "private-steps"
"""The record of a train reply with the steps that had noise; the site's mod takes it out."""


@dataclass(frozen=True)
class PatientPrivacy:
    """How the steps of a training protect each patient; the site's mod puts it into the message's settings.

    `clip` is ``C``, the limit for the norm of a patient's gradient. `noise` is the multiplier ``z``; at 0 it
    is chosen by `max_epsilon`, the ``ε`` of all rounds, `delta`, and the run's `rounds`, 0 if the site does
    not know them. With `open_model` the site lets a model leave without noise. The noise follows from the
    `seed` in a simulation; at a site, where it is -1, noise is the operating system's.
    """

    clip: float
    noise: float
    delta: float
    max_epsilon: float = 0.0
    rounds: int = 0
    open_model: bool = False
    seed: int = -1

    def settings(self) -> dict[str, Any]:
        """Return the entries of a message's settings."""
        return {OF_PATIENTS: True} | {f"{PREFIX}{name}": value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PatientPrivacy | None":
        """Return what a message's settings say; None if the site does not protect its patients."""
        if not config.get(OF_PATIENTS):
            return None
        return cls(**{each.name: config[f"{PREFIX}{each.name}"] for each in fields(cls)})

    def randomness(self) -> Randomness:
        """Return where noise, and the draw of patients, come from."""
        return os.urandom if self.seed < 0 else np.random.default_rng(self.seed).bytes

    def noise_for(self, rate: float, steps: int) -> float:
        """Return ``z`` for a training that draws a share of the patients in each of a round's steps.

        Raises a `ConfigError` if it is to be chosen, and the number of rounds is not known.
        """
        if self.noise:
            return self.noise
        if not self.rounds:
            remedy = "give dp-noise, such as 1.0"
            raise invalid("dp-noise", 0, remedy, "and the site does not know how many rounds there are")
        return noise_of_steps(self.max_epsilon, self.delta, rate, steps * self.rounds)


def steps_record(noise: float, rate: float, steps: int) -> Layers:
    """Return the record of a train reply with the steps that had noise."""
    return {"noise": np.array(noise), "rate": np.array(rate), "steps": np.array(steps)}


def read_steps(arrays: Layers) -> Steps:
    """Return the steps of the record."""
    return float(arrays["noise"]), float(arrays["rate"]), int(arrays["steps"])
