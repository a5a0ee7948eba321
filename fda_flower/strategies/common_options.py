"""The options that every strategy takes."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from fda_flower.errors import ConfigError
from fda_flower.options import Bounds, Count, Natural, Positive, WithOptions, option_names
from fda_flower.records import Record
from fda_flower.run_folder import RunFolder

Buffers = Literal["mean", "target", "adabn"]
AboveZero = Annotated[float, Bounds("above 0", lambda number: number > 0)]


class CommonOptions(WithOptions):
    """The options of every strategy; what a subclass annotates are the options of its method.

    Parameters
    ----------
    target : str, optional
        The target's domain. Default: the node whose role is ``"target"``.
    min_sources : int
        With fewer usable replies of sources the round is held: the model stays as it is.
    wait_for : int, optional
        Nodes to wait for before the first round. Default: the target and `min_sources`.
    wait_seconds : float
        How long to wait for them.
    query_timeout : float
        Seconds that a node has to tell who it is. A node that does not answer is asked again later.
    max_held_rounds : int
        After so many held rounds in a row the run ends with an error and a checkpoint.
    max_update_norm : float, optional
        A limit for the norm of each client's update: a longer one is scaled down. Default: none.
    warmup_rounds : int
        Rounds in which only the sources train and are averaged, before the method begins (Jiang et al.,
        ICLR 2024, Section C.2). They are the first of the rounds asked for.
    learning_rate_factor : float
        Clients multiply their learning rate by it after the warm-up rounds (Section C.4).
    average : str, optional
        ``ema:C`` or ``tail:N``: the target also evaluates an average of the models after the warm-up
        rounds, see `ModelAverage`. Default: none.
    buffers : {"mean", "target", "adabn"}
        What BatchNorm's running statistics are in the global model: the clients' mean, or after the warm-up
        the target's own; with ``"adabn"`` the mean, and the target estimates them anew before it evaluates.
    source_mean : str
        What averages the sources where a method takes their plain mean, and in warm-up rounds: ``"mean"``,
        ``"median"``, or ``"trimmed:SHARE"`` for the mean without that share at each end, by coordinate
        (`aggregation.Median`, `aggregation.TrimmedMean`). Weights of the sources have no say in the last two.
    buffer_names : Collection[str], optional
        Names of the arrays that are not parameters; may be set later. Default: `aggregation.find_buffers`.
    arrayrecord_key, configrecord_key : str
        Names of the records with the model and the settings, as of Flower's ``FedAvg``.
    output : RunFolder, optional
        Where to write the rounds' records and a checkpoint, and to resume from.
    outcomes : bool
        Record which test samples the target gets right.
    evaluate_every : int
        The target evaluates in every so many rounds, and in the last 5.
    on_round : callable, optional
        Called with each round's record, for progress displays.
    select_by, metric, patience, validation
        How samples held out choose a round, and end the run; see `Selection`.
    """

    target: str | None = None
    min_sources: Count = 1
    wait_for: Count | None = None
    wait_seconds: float = 60.0
    query_timeout: AboveZero = 30.0
    max_held_rounds: Count = 3
    max_update_norm: AboveZero | None = None
    warmup_rounds: Natural = 0
    learning_rate_factor: Positive = 1.0
    average: str | None = None
    buffers: Buffers = "mean"
    source_mean: str = "mean"
    buffer_names: Collection[str] | None = None
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    output: RunFolder | None = None
    outcomes: bool = False
    evaluate_every: Count = 1
    on_round: Callable[[Record], None] | None = None
    select_by: Literal["target", "sources"] = "target"
    metric: str | None = None
    patience: Count | None = None
    validation: Mapping[int, float] | None = None

    def own_options(self) -> dict[str, Any]:
        """Return the options of the method itself, by name."""
        names = (name for name in option_names(type(self)) if name not in COMMON)
        return {name: getattr(self, name) for name in names}

    def own_settings(self) -> Record:
        """Return the same by the names that a run's configuration has, as JSON."""
        return {
            name.replace("_", "-"): list(value) if isinstance(value, tuple) else value
            for name, value in self.own_options().items()
        }


COMMON = frozenset(option_names(CommonOptions))
"""The names of the options that every strategy takes."""


def check_rounds(num_rounds: int, warmup_rounds: int) -> None:
    """Raise a `ConfigError` if the warm-up rounds leave no round to the method."""
    if num_rounds <= warmup_rounds:
        raise ConfigError(
            f"num_rounds is {num_rounds}, it must be at least {warmup_rounds + 1}"
            + (f" with {warmup_rounds} warm-up rounds" if warmup_rounds else "")
        )
