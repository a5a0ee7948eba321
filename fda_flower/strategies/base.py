"""The base of every strategy: the rounds of a run, in Flower's four steps, and what a method defines."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fda_flower.aggregation import Layers, Update, source_weights
from fda_flower.errors import ConfigError
from fda_flower.files import json_safe
from fda_flower.protocol import (
    BESIDE,
    LEARNING_RATE_FACTOR,
    OUTCOMES,
    SERVER_ROUND,
    EvaluateRequest,
    Keys,
    TrainRequest,
    to_layers,
    to_record,
)
from fda_flower.records import Record
from fda_flower.run_folder import RunFolder, check_same_model
from fda_flower.strategies.averaging import ModelAverage
from fda_flower.strategies.buffers import Buffers, check_buffers, with_buffers
from fda_flower.strategies.common_options import CommonOptions, check_numbers, check_rounds
from fda_flower.strategies.evaluation import read_sizes
from fda_flower.strategies.hooks import Aggregated, MethodHooks, Sources
from fda_flower.strategies.nodes import Node, Roster
from fda_flower.strategies.privacy import check_budgets
from fda_flower.strategies.progress import Progress
from fda_flower.strategies.round import Channel, Round, Updates, require_replies
from fda_flower.strategies.selection import Selection
from fda_flower.strategies.source_mean import check_source_mean, read_source_mean
from fda_flower.strategies.validation import (
    BadReplyError,
    ClientUpdate,
    NormLimit,
    NotFiniteError,
    Schedule,
    check_finite,
)

# fmt: off
__all__ = ["Aggregated", "BadReplyError", "ClientUpdate", "CommonOptions", "DomainAdaptationStrategy", "Node",
           "Record", "Round", "Sources", "TrainRequest"]
# fmt: on
"""What the file of a method needs."""


LEFT_OUT = 10
"""A source that does not reply is left out for this multiple of a round's timeout."""


class DomainAdaptationStrategy(MethodHooks, Strategy):
    """One round: have the clients train, check their replies, aggregate them, evaluate on the target.

    A subclass defines `aggregate`, and overrides others of the `MethodHooks` where its method needs it.

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
    source_mean : str, optional
        What averages the sources where a method takes their plain mean, and in warm-up rounds: ``"mean"``,
        ``"median"``, or ``"trimmed:SHARE"`` for the mean without that share at each end, by coordinate
        (`aggregation.Median`, `aggregation.TrimmedMean`). Weights of the sources have no say in the last two.
        Default: the method's, see `usual_source_mean`.
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

    Attributes
    ----------
    history : list[dict]
        The record of each finished round, as in ``rounds.jsonl``.
    round : Round
        The current round.
    num_rounds : int
        The rounds of the run.
    schedules : Mapping[str, Schedule]
        By role, what the clients were told to train with, if the server knows it: a source that claims a
        higher learning rate or more steps is dropped, since auto-weighting would trust it more.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        min_sources: int = 1,
        wait_for: int | None = None,
        wait_seconds: float = 60.0,
        query_timeout: float = 30.0,
        max_held_rounds: int = 3,
        max_update_norm: float | None = None,
        warmup_rounds: int = 0,
        learning_rate_factor: float = 1.0,
        average: str | None = None,
        buffers: Buffers = "mean",
        source_mean: str | None = None,
        buffer_names: Collection[str] | None = None,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        output: RunFolder | None = None,
        outcomes: bool = False,
        evaluate_every: int = 1,
        on_round: Callable[[Record], None] | None = None,
        select_by: str = "target",
        metric: str | None = None,
        patience: int | None = None,
        validation: Mapping[int, float] | None = None,
    ) -> None:
        counts = {"min_sources": min_sources, "max_held_rounds": max_held_rounds, "wait_for": wait_for}
        counts["evaluate_every"] = evaluate_every
        check_numbers(counts, warmup_rounds, learning_rate_factor, query_timeout)
        check_buffers(self, buffers)
        source_mean = self.usual_source_mean if source_mean is None else source_mean
        self.source_mean = read_source_mean(source_mean)
        check_source_mean(self, source_mean, warmup_rounds)
        self.min_sources = min_sources
        self.warmup_rounds = warmup_rounds
        self.learning_rate_factor = learning_rate_factor
        self.model_average = ModelAverage(average)
        self.selection = Selection(select_by, patience, metric, validation or {})
        self.buffers = buffers
        self.evaluate_every = evaluate_every
        self._source_mean = source_mean
        self.buffer_names = buffer_names
        self.progress = Progress(output, max_held_rounds, on_round)
        self.history = self.progress.history
        self.roster = Roster(target, query_timeout)
        self.state: dict[str, ArrayRecord] = {}
        self._limit = NormLimit(max_update_norm)
        self._always = {OUTCOMES: True} if outcomes else {}
        self._waiting = (wait_for or min_sources + 1, wait_seconds)
        self._keys = Keys(arrayrecord_key, configrecord_key)
        self.schedules: Mapping[str, Schedule] = {}
        self.num_rounds = 0
        self._timeout = 3600.0

    def settings(self) -> Record:
        """Return what defines the strategy, for the run's configuration and the log."""
        return {
            "min-sources": self.min_sources,
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
            **({} if self.buffers == "mean" else {"buffers": self.buffers}),
            **({} if self._source_mean == "mean" else {"source-mean": self._source_mean}),
            **({} if self._limit.max_norm is None else {"limit": str(self._limit)}),
            **self.model_average.settings(),
        }

    # The run

    def connect(self, grid: Grid) -> None:
        """Wait for the nodes and ask who they are (`Node.info`); `start` does it, unless it is done.

        Raises
        ------
        ConfigError, RunError
            If the method cannot work with these nodes; if roles are missing or claimed twice.
        """
        self.roster.gather(grid, *self._waiting)
        self.roster.require(self.min_sources)
        self.validate_nodes(self.roster.nodes)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run the rounds, from the checkpoint on if `output` is resumed.

        Parameters and result are those of Flower's ``Strategy.start``; the result's arrays are always
        the last global model. `should_stop`, new in Flower 1.43, works with older ones too: it is called
        after each round with the round and the result, and ends the run by returning true.

        Raises
        ------
        ConfigError
            If a setting cannot work, before any training.
        RunError
            If roles are missing or claimed twice, or the model was held for `max_held_rounds` rounds.
        """
        check_rounds(num_rounds, self.warmup_rounds)
        if should_stop is not None and self.ends_with_an_evaluation:
            raise ConfigError(
                f"should_stop is given, but {type(self).__name__} has its target evaluate in the last round, "
                "which must be known beforehand: leave it out"
            )
        self.model_average.check(num_rounds - self.warmup_rounds)
        self.num_rounds, self._timeout = num_rounds, timeout
        with closing(self.progress):
            result = Result(arrays=initial_arrays)
            done = self.resume(result)
            if done > num_rounds:
                raise ConfigError(f"the run has done {done} rounds, only {num_rounds} were asked for")
            check_same_model(result.arrays, initial_arrays)
            del initial_arrays  # else they would stay in memory to the end
            if not self.roster.nodes:
                self.connect(grid)
            self.begin(result.arrays, done)
            if evaluate_fn and done == 0 and (metrics := evaluate_fn(0, result.arrays)) is not None:
                result.evaluate_metrics_serverapp[0] = metrics
            for server_round in range(done + 1, num_rounds + 1):
                if self.selection.stops(self.history):
                    break
                begun = time.perf_counter()
                messages = self.configure_train(
                    server_round, result.arrays, train_config or ConfigRecord(), grid
                )
                replies = list(grid.send_and_receive(messages, timeout=timeout))
                trained = time.perf_counter()
                arrays, train_metrics = self.aggregate_train(server_round, replies)
                result.arrays = arrays or result.arrays
                aggregated = time.perf_counter()
                messages = self.configure_evaluate(
                    server_round, result.arrays, evaluate_config or ConfigRecord(), grid
                )
                metrics = self.aggregate_evaluate(
                    server_round, grid.send_and_receive(messages, timeout=timeout)
                )
                if self.evaluates_in(server_round):
                    self.model_average.evaluate(self.round)
                if train_metrics is not None:
                    result.train_metrics_clientapp[server_round] = train_metrics
                if metrics is not None:
                    result.evaluate_metrics_clientapp[server_round] = metrics
                if evaluate_fn and (own := evaluate_fn(server_round, result.arrays)) is not None:
                    result.evaluate_metrics_serverapp[server_round] = own
                    self.record["server"] = dict(own)
                self.record["seconds"] = {
                    "train": trained - begun,
                    "aggregate": aggregated - trained,
                    "evaluate": time.perf_counter() - aggregated,
                }
                self.finish_round(num_rounds)
                if should_stop is not None and should_stop(server_round, result):
                    break
            return result

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Write the run's configuration and first checkpoint, and log who takes part."""
        self.progress.begin(done, to_layers(arrays))
        self.summary()

    def summary(self) -> None:
        """Log what the strategy is and who takes part."""
        log(INFO, "%s: %s", type(self).__name__, self.settings())
        target = self.roster.target
        sources = ", ".join(node.domain for node in self.roster.sources)
        log(INFO, "Target: %s. Sources: %s", target.domain if target else "not connected", sources)

    # A round, in Flower's four steps

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a train message for each node that trains, each with records of its own."""
        self.roster.refresh(grid)
        self.validate_nodes(self.roster.nodes)
        self.round = self._new_round(server_round, arrays, config, grid)
        requests = {node: self._request(node, self.round) for node in self.round.nodes}
        return self.round.train_messages({node: r for node, r in requests.items() if r is not None})

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies and aggregate the usable ones; return no arrays if the round is held."""
        round, record, new = self.round, self.round.record, None
        record.update({"held": None, "target": None, "sources": {}, "dropped": []})
        record.update({"missing": self.roster.missing, "bytes-received": 0})
        updates = round.collect(replies)
        try:
            new = self._new_model(round, updates)
        except BadReplyError as error:
            record["held"] = str(error)
            log(WARNING, "Round %d: the model stays as it is: %s", server_round, error)
            check_budgets(record, list(round.spent), list(round.requests))
        self.roster.leave_out(round.silent, round.requests, LEFT_OUT * self._timeout)
        self.progress.note(record["held"])
        return new, round.train_metrics()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return an evaluate message for the target."""
        round = self.round
        asked = {**self._always, **self.evaluate_config, **self.asks_for_confusion(server_round)}
        if self.evaluates_trained and not round.warmup:
            asked[BESIDE] = True
        round.arrays, round.config = arrays, {**config, **asked, SERVER_ROUND: server_round}
        round.sent = {}
        if not self.evaluates_in(server_round):
            return []
        request = EvaluateRequest(arrays, round.config) if round.warmup else self.evaluate_request(round)
        if round.target is None or request is None:
            return []
        return round.evaluate_messages({round.target: request, **self.selection.requests(round)})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics of the model on the target's test set, and record them."""
        round = self.round
        metrics = round.read_evaluation(replies, self.evaluates_trained) if round.sent else None
        self.selection.judge(round, self.history, self.evaluates_trained)
        return metrics

    # The parts of it

    def resume(self, result: Result) -> int:
        """Take up the run that `output` holds: its model goes into `result`; return its rounds."""
        checkpoint = self.progress.open({"name": type(self).__name__, **self.settings()})
        if checkpoint is None:
            return 0
        self.load_state_dict(self.model_average.take_from(checkpoint.state))
        result.arrays = to_record(checkpoint.model)
        return checkpoint.round

    def preview(self, arrays: ArrayRecord, done: int, grid: Grid) -> list[EvaluateRequest]:
        """Return the requests of the first round after the warm-up, without sending them."""
        round = self._new_round(max(done, self.warmup_rounds) + 1, arrays, ConfigRecord(), grid)
        requests = [*(self._request(node, round) for node in round.nodes), self.evaluate_request(round)]
        return [request for request in requests if request is not None]

    def finish_round(self, num_rounds: int) -> None:
        """Write the round's record and the checkpoint; raise a `RunError` after too many held rounds."""
        record: Record = json_safe(dict(self.record))
        self.progress.finish(record, num_rounds, self.model, self._state, self.selection.is_chosen(record))

    def _state(self) -> dict[str, Layers]:
        return {**self.state_dict(), **self.model_average.state_dict()}

    def _new_round(
        self, server_round: int, arrays: ArrayRecord, config: Mapping[str, Any], grid: Grid
    ) -> Round:
        warmup = server_round <= self.warmup_rounds
        sent = {**config, **self._always, SERVER_ROUND: server_round}
        if self.learning_rate_factor != 1 and not warmup:
            sent[LEARNING_RATE_FACTOR] = self.learning_rate_factor
        channel = Channel(grid, self._timeout, self._keys, self._limit, self.buffer_names, self.schedules)
        record: Record = {"round": server_round, "warmup": warmup}
        if sizes := read_sizes(self.roster.nodes):
            record["sizes"] = sizes
        return Round(server_round, warmup, self.roster.nodes, arrays, sent, channel, record)

    def _request(self, node: Node, round: Round) -> TrainRequest | None:
        if round.warmup:
            return None if node.is_target else TrainRequest(round.arrays, round.config)
        return self.train_request(node, round)

    def _new_model(self, round: Round, updates: Updates) -> ArrayRecord:
        """Return the new model; a source that alone is why it would not be finite is dropped."""
        try:
            return self._commit(round, self._aggregate(round, updates))
        except NotFiniteError as error:
            target, sources = updates
            without = {left: {d: u for d, u in sources.items() if d != left} for left in sources}
            steps = {} if self.asks_again else self._steps(round, target, without)
            if not steps:
                raise
            left = min(steps, key=steps.__getitem__)
            new = self._commit(round, self._aggregate(round, (target, without[left])))
            del round.record["sources"][left]
            round.drop(left, BadReplyError(f"with it, {error}"))
            return new

    def _steps(
        self, round: Round, target: ClientUpdate | None, without: Mapping[str, dict[str, ClientUpdate]]
    ) -> dict[str, float]:
        """Return how far the model moves without each source, where that makes it finite."""
        steps = dict[str, float]()
        for left, others in without.items():
            with suppress(BadReplyError):
                model = self._aggregate(round, (target, others)).model
                check_finite(model)
                steps[left] = Update.between(round.model, model, 1).norm
        return steps

    def _aggregate(self, round: Round, updates: Updates) -> Aggregated:
        target, sources = updates
        require_replies(updates, {"source"} if round.warmup else self.trains, self.min_sources)
        # A hostile update may overflow; the new models are checked before they are used.
        with np.errstate(all="ignore"):
            if round.warmup:
                clients = list(sources.values())
                return Aggregated(self.source_mean(round.model, clients, source_weights(clients)))
            aggregated = self.aggregate(round, target, sources)
        return with_buffers(self.buffers, aggregated, target)

    def _commit(self, round: Round, aggregated: Aggregated) -> ArrayRecord:
        for layers in (aggregated.model, *aggregated.state.values()):
            check_finite(layers)
        self.state |= {name: to_record(layers) for name, layers in aggregated.state.items()}
        if not round.warmup:
            self.model_average.add(aggregated.model)
        round.model = aggregated.model
        return to_record(aggregated.model)
