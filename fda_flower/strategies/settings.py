"""The settings of every strategy that a run has too, checked without importing Flower."""

from typing import Literal

from fda_flower.names.options import AboveZero, Count, Natural, Positive, WithOptions

Buffers = Literal["mean", "target", "adabn"]
StandardisedBy = Literal["common", "own"]


class StrategySettings(WithOptions):
    """The settings of every strategy, each of them also a run's.

    Parameters
    ----------
    warmup_rounds : int
        The first rounds, where only the sources train and are averaged (Jiang et al., ICLR 2024, C.2).
    learning_rate_factor : float
        Factor on the clients' learning rate after the warm-up rounds (Section C.4).
    average : str, optional
        ``ema:C`` or ``tail:N``: the target also evaluates an average of the models, see `ModelAverage`.
    buffers : {"mean", "target", "adabn"}
        BatchNorm's running statistics in the global model: the clients' mean; the target's own after the
        warm-up; or the mean, with the target estimating its own before it evaluates.
    columns : {"common", "own"}
        What standardises a table's columns: the mean and deviation over the rows of all sources, which these
        say before the first round, or each site's own; see `strategies.columns`.
    source_mean : str
        Replacement for the plain mean of the sources: ``"median"`` or ``"trimmed:SHARE"``, by coordinate and
        unweighted (`aggregation.Median`, `aggregation.TrimmedMean`). Default: ``"mean"``.
    metric, patience
        How validation samples of the target choose a round and end the run; see `Selection`.
    min_sources : int
        With fewer usable replies of sources the round is held: the model is unchanged.
    max_update_norm : float, optional
        Limit on the norm of each client's update; a longer one is scaled down. Default: none.
    evaluate_every : int
        The target evaluates every this many rounds, and in the last 5.
    """

    warmup_rounds: Natural = 0
    learning_rate_factor: Positive = 1.0
    average: str | None = None
    buffers: Buffers = "mean"
    columns: StandardisedBy = "common"
    source_mean: str = "mean"
    metric: str | None = None
    patience: Count | None = None
    min_sources: Count = 1
    max_update_norm: AboveZero | None = None
    evaluate_every: Count = 1
