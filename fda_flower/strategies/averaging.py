"""Averages of a run's models, of the sources, and of buffers."""

from typing import get_args

from fda_flower.aggregation import Average, Mean, Median, MovingAverage, SourceMean, TailAverage, TrimmedMean
from fda_flower.aggregation.updates import Layers
from fda_flower.errors import invalid
from fda_flower.names.options import as_written
from fda_flower.strategies.method import MethodHooks
from fda_flower.strategies.settings import Buffers


class ModelAverage:
    """The average of the run's models after the warm-up rounds; clients never train from it.

    The target also evaluates it; the round's record has its metrics as ``accuracy-average``,
    ``loss-average`` and so on. A held round adds nothing.

    Parameters
    ----------
    text : str, optional
        ``ema:C`` for the exponential moving average with the factor C, or ``tail:N`` for the mean of the
        last N models. Default: no average; all methods do nothing.

    Attributes
    ----------
    models : tuple[Layers, ...]
        The models that the average remembers, for the checkpoint.
    """

    def __init__(self, text: str | None) -> None:
        self.text = text
        self._rule = None if text is None else read_average(text)
        self.models: tuple[Layers, ...] = ()

    def check(self, rounds: int) -> None:
        """Raise a `ConfigError` if the tail is longer than the rounds after the warm-up."""
        if isinstance(self._rule, TailAverage) and self._rule.length > rounds:
            why = f"which is longer than the rounds after the warm-up, {rounds}"
            raise invalid("average", self.text, f"give tail:{rounds} or a shorter tail, or more rounds", why)

    def add(self, model: Layers) -> None:
        """Add a round's model to the average."""
        if self._rule is not None:
            self.models = self._rule.add(self.models, model)

    @property
    def model(self) -> Layers | None:
        """The average; None before the first model, or if there is no average."""
        return self._rule.average(self.models) if self._rule is not None and self.models else None


def read_average(text: str) -> Average:
    """Return the average that a setting describes, or raise a `ConfigError`.

    Examples
    --------
    >>> read_average("ema:0.9"), read_average("tail:5")
    (MovingAverage(factor=0.9), TailAverage(length=5))
    """
    kind, _, number = text.partition(":")
    try:
        if kind == "ema":
            return MovingAverage(float(as_written(number)))
        if kind == "tail":
            return TailAverage(int(as_written(number)))
    except ValueError:
        pass
    ema = "give ema:FACTOR with a factor between 0 and 1, such as ema:0.9"
    raise invalid("average", text, f"{ema}, or tail:N with a whole number of at least 1, such as tail:5")


def check_buffers(strategy: MethodHooks, buffers: str) -> None:
    """Raise a `ConfigError` unless the strategy supports the value of the option `buffers`."""
    silent = {"target": "the server gets no model that the target has trained"}
    refused = {**({} if "target" in strategy.trains else silent), **strategy.refused_buffers}
    if buffers in refused:
        remedy = f"choose {' or '.join(word for word in get_args(Buffers) if word not in refused)}"
        raise invalid("buffers", buffers, remedy, f"but with {type(strategy).__name__} {refused[buffers]}")


PLAIN: dict[str, SourceMean] = {"mean": Mean(), "median": Median()}
SHARE = 0.2
"""Default share that ``trimmed`` cuts at each end."""


def read_source_mean(text: str) -> SourceMean:
    """Return the mean that a setting describes, or raise a `ConfigError`.

    Examples
    --------
    >>> read_source_mean("median"), read_source_mean("trimmed"), read_source_mean("trimmed:0.34")
    (Median(), TrimmedMean(share=0.2), TrimmedMean(share=0.34))
    """
    if text in PLAIN:
        return PLAIN[text]
    kind, colon, number = text.partition(":")
    try:
        if kind != "trimmed":
            raise ValueError(text)
        return TrimmedMean(float(as_written(number)) if colon else SHARE)
    except ValueError:
        says = f"give mean, median, or trimmed:SHARE with a share between 0 and 0.5, such as trimmed:{SHARE}"
        raise invalid("source_mean", text, says) from None


def check_source_mean(strategy: MethodHooks, text: str, warmup_rounds: int) -> None:
    """Raise a `ConfigError` if a strategy never takes the plain mean that `source_mean` replaces."""
    if text != "mean" and not strategy.averages_sources and not warmup_rounds:
        remedy = "leave it out, give warmup_rounds, where it applies, or choose source-only or mixture"
        why = f"but {type(strategy).__name__} never takes a plain mean of the sources"
        raise invalid("source_mean", text, remedy, why)
