"""What averages the sources' updates where a method takes their plain mean: the option `source_mean`."""

from fda_flower.aggregation import Mean, Median, SourceMean, TrimmedMean
from fda_flower.errors import ConfigError
from fda_flower.strategies.hooks import MethodHooks

PLAIN: dict[str, SourceMean] = {"mean": Mean(), "median": Median()}
TRIMMED = "trimmed"
SHARE = 0.2
"""The share that ``trimmed`` cuts at each end, without a number of its own."""


def read_source_mean(text: str) -> SourceMean:
    """Return the mean that a setting names, or raise a `ConfigError`.

    Examples
    --------
    >>> read_source_mean("median"), read_source_mean("trimmed"), read_source_mean("trimmed:0.34")
    (Median(), TrimmedMean(share=0.2), TrimmedMean(share=0.34))
    """
    if text in PLAIN:
        return PLAIN[text]
    kind, colon, number = text.partition(":")
    try:
        if kind != TRIMMED:
            raise ValueError(text)
        return TrimmedMean(float(number) if colon else SHARE)
    except ValueError:
        raise ConfigError(
            f"source_mean is '{text}': give mean, median, or trimmed:SHARE with a share between 0 and 0.5, "
            f"such as trimmed:{SHARE}"
        ) from None


def check_source_mean(strategy: MethodHooks, text: str, warmup_rounds: int) -> None:
    """Raise a `ConfigError` if a strategy never takes the sources' plain mean that the option replaces."""
    if text == "mean" or strategy.averages_sources or warmup_rounds:
        return
    raise ConfigError(
        f"source_mean is '{text}', but {type(strategy).__name__} never takes a plain mean of the sources: "
        "leave it out, give warmup_rounds, whose mean it then is, or choose source-only or mixture"
    )
