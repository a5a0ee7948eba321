"""What a site asks for its privacy: words of its node configuration, or of a simulated run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from fda_flower.errors import ConfigError, check_choice

LOCAL, NOISE = "local", "noise"
"""What becomes of BatchNorm's running statistics."""

NONE, FIGURES, FULL = "none", "figures", "full"
"""What an evaluation's reply tells."""


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """How a site's replies are made private; by default they are sent as they are.

    Attributes
    ----------
    dp_clip : float, optional
        ``C``, the limit for the norm of what is sent.
    dp_noise : float
        ``z``, the noise multiplier: the standard deviation of the noise, divided by the sensitivity of what
        it is added to.
    dp_delta : float
        ``δ`` of the guarantee.
    max_epsilon : float, optional
        The site's budget: a request that would bring its ``ε`` above it is refused.
    dp_buffers : {"local", "noise"}
        BatchNorm's running statistics: the site sends back those that it received, or its own with noise.
    dp_report : {"none", "figures", "full"}
        What leaves of an evaluation, without noise: the number of samples, with the figures, or all.
    dp_allow : str
        Metrics of train replies that leave without noise, such as ``"train-loss,contribution-*"``.

    Raises
    ------
    ConfigError
        If a value cannot work, or would have no effect.

    Examples
    --------
    >>> PrivacySettings(dp_clip=1.0, dp_noise=2.0).on, PrivacySettings().on
    (True, False)
    """

    dp_clip: float | None = None
    dp_noise: float = 0.0
    dp_delta: float = 1e-5
    max_epsilon: float | None = None
    dp_buffers: str = LOCAL
    dp_report: str = FIGURES
    dp_allow: str = ""

    def __post_init__(self) -> None:
        for name, value in (("dp-clip", self.dp_clip), ("max-epsilon", self.max_epsilon)):
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value:g}, it must be a number above 0")
        if not 0 <= self.dp_noise < math.inf:
            raise ConfigError(f"dp-noise is {self.dp_noise:g}, it must be a number of at least 0")
        if not 0 < self.dp_delta < 1:
            raise ConfigError(f"dp-delta is {self.dp_delta:g}, it must be between 0 and 1, such as 1e-5")
        check_choice("dp-buffers", self.dp_buffers, (LOCAL, NOISE))
        check_choice("dp-report", self.dp_report, (NONE, FIGURES, FULL))
        if self.max_epsilon is not None and self.dp_noise == 0:
            raise ConfigError(
                f"max-epsilon is {self.max_epsilon:g}, but dp-noise is 0, which has no finite ε: give "
                "dp-noise, such as 1.0"
            )
        if not self.on:
            for each in fields(self):
                if getattr(self, each.name) != each.default:
                    raise ConfigError(
                        f"{each.name.replace('_', '-')} is {getattr(self, each.name)!r}, but without dp-clip "
                        "replies are sent as they are: give dp-clip, such as 1.0"
                    )

    @property
    def on(self) -> bool:
        """Whether replies are changed at all."""
        return self.dp_clip is not None

    @property
    def private(self) -> bool:
        """Whether they get noise, and so have a finite ``ε``."""
        return self.dp_noise > 0

    def allows(self, metric: str) -> bool:
        """Return whether the site lets a metric leave without noise."""
        return any(fnmatchcase(metric, pattern.strip()) for pattern in self.dp_allow.split(","))

    @classmethod
    def of_node(cls, node: Mapping[str, Any]) -> "PrivacySettings | None":
        """Return what a node configuration says; None if it has none of the words.

        A node that says one of them decides all of them.

        Examples
        --------
        >>> PrivacySettings.of_node({"domain": "a", "dp-clip": 1, "dp-noise": "0.5"}).dp_noise
        0.5
        """
        from fda_flower.options import read_options

        words = _words()
        given = {key: value for key, value in node.items() if key in words}
        if unknown := [key for key in node if key.startswith("dp-") and key not in words]:
            raise ConfigError(
                f"the node configuration has '{unknown[0]}': the words are {', '.join(sorted(words))}"
            )
        return cls(**read_options("the node configuration", cls, given, set())) if given else None


@cache
def _words() -> frozenset[str]:
    return frozenset(each.name.replace("_", "-") for each in fields(PrivacySettings))
