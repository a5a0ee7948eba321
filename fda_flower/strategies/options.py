"""The options of every strategy."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

from flwr.app import MetricRecord, RecordDict

from fda_flower.names.options import (
    AboveZero,
    Bounds,
    Count,
    Natural,
    NotNegative,
    option_names,
    read_fields,
)
from fda_flower.records.folder import RunFolder
from fda_flower.records.record import Record
from fda_flower.strategies.participation import Participation, read_participation
from fda_flower.strategies.settings import StrategySettings

MetricsFn = Callable[[list[RecordDict], str], MetricRecord]

Fraction = Annotated[float, Bounds("above 0 and at most 1", lambda number: 0 < number <= 1)]


class CommonOptions(StrategySettings):
    """Options of every strategy, with its settings. A subclass annotates the options of its method.

    Parameters
    ----------
    target : str, optional
        The target's domain. Default: the node whose role is ``"target"``.
    fraction_train : float
        Fraction of the sources that take part in a round, drawn in each with `seed`; see
        `Participation`. The target always takes part.
    min_train_nodes : int
        Nodes that take part in a round at least, the target among them.
    seed : int
        Seed of the draws.
    wait_for : int, optional
        Nodes to wait for before the first round, Flower's ``min_available_nodes``; the target and
        `min_sources` are waited for, too. Default: `min_train_nodes`.
    wait_seconds : float, optional
        How long to wait for them; the run then begins with fewer, if it can. Default: without limit, as in
        Flower, but see `wire.internals.seconds_to_connect` for simulations.
    query_timeout : float
        How long a node may take to report its role before it is asked later.
    max_held_rounds : int
        Consecutive held rounds after which the run ends with an error and a checkpoint.
    buffer_names : Collection[str], optional
        Names of the arrays that are not parameters; may be set later. Default: `aggregation.find_buffers`.
    arrayrecord_key, configrecord_key : str
        Names of the records with the model and the settings, as in Flower's ``FedAvg``.
    output : RunFolder, optional
        Folder for the rounds' records and a checkpoint, and to resume from.
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : callable, optional
        A project's own functions of the contents of replies and ``"num-examples"``, as for Flower's
        ``FedAvg``: of all nodes that trained, and of the target that evaluated. Their metrics are added to
        the result.
    outcomes : bool
        Record which test samples the target classifies correctly.
    on_round : callable, optional
        Called with each round's record.
    validation : Mapping[int, float], optional
        Metrics known in advance, by round, for `Selection` to choose one.
    """

    target: str | None = None
    fraction_train: Fraction = 1.0
    min_train_nodes: Natural = 2
    seed: Natural = 0
    wait_for: Natural | None = None
    wait_seconds: NotNegative | None = None
    query_timeout: AboveZero = 30.0
    max_held_rounds: Count = 3
    buffer_names: Collection[str] | None = None
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    output: RunFolder | None = None
    train_metrics_aggr_fn: MetricsFn | None = None
    evaluate_metrics_aggr_fn: MetricsFn | None = None
    outcomes: bool = False
    on_round: Callable[[Record], None] | None = None
    validation: Mapping[int, float] | None = None

    @property
    def participation(self) -> Participation:
        """The draw of each round's sources."""
        return read_participation(self, self.fraction_train, self.min_train_nodes, self.seed)

    def change(self, **options: Any) -> None:
        """Change options before the first round; one that is None stays."""
        values = {name: value for name, value in options.items() if value is not None}
        for name, value in read_fields(type(self), values, {name: name for name in values}).items():
            setattr(self, name, value)
        _ = self.participation

    def settings(self) -> Record:
        """Return the strategy's definition as JSON; a run resumes only with the same settings."""
        settings: Record = {
            "min-sources": self.min_sources,
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
        }
        if self.buffers != "mean":
            settings["buffers"] = self.buffers
        if self.columns != "common":
            settings["columns"] = self.columns
        if self.source_mean != "mean":
            settings["source-mean"] = self.source_mean
        if self.max_update_norm is not None:
            settings["max-update-norm"] = self.max_update_norm
        if self.average is not None:
            settings["average"] = self.average
        if self.fraction_train < 1:
            draw = {"fraction-train": self.fraction_train, "min-train-nodes": self.min_train_nodes}
            settings |= draw | {"seed": self.seed}
        return settings | self.own_settings()

    def own_options(self) -> dict[str, Any]:
        """Return the method's own options by name."""
        names = (name for name in option_names(type(self)) if name not in COMMON)
        return {name: getattr(self, name) for name in names}

    def own_settings(self) -> Record:
        """Return the method's own options as JSON, by their names in a run's configuration."""
        return {
            name.replace("_", "-"): list(value) if isinstance(value, tuple) else value
            for name, value in self.own_options().items()
        }


COMMON = frozenset(option_names(CommonOptions))
"""Names of the options of every strategy."""

OF_RUNS = frozenset({"fraction_train", "min_train_nodes"})
"""Those that a run may set, as options of its method."""
