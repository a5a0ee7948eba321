"""The base class of every strategy: it runs the rounds in Flower's four steps."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fda_flower.aggregation import Layers, Update, source_weights
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import json_safe
from fda_flower.names.options import read_list
from fda_flower.records.folder import Checkpoint, check_same_model
from fda_flower.records.progress import Progress
from fda_flower.records.record import Record, chosen_round
from fda_flower.strategies.averaging import ModelAverage, check_buffers, check_source_mean, read_source_mean
from fda_flower.strategies.checks import (
    check_aggregated,
    check_begin,
    check_driven,
    check_finite,
    check_initial,
    check_objects,
    check_start,
    is_same,
)
from fda_flower.strategies.columns import CommonColumns, sent_columns
from fda_flower.strategies.evaluations import DETAILS
from fda_flower.strategies.flowers_options import FlowersMembers, FlowersOptions, contents_of, made_by
from fda_flower.strategies.method import Aggregated, Sources
from fda_flower.strategies.nodes import Node, Nodes
from fda_flower.strategies.options import CommonOptions
from fda_flower.strategies.replies import BadReplyError, ClientUpdate, NotFiniteError, read_sizes
from fda_flower.strategies.round import Round, Updates
from fda_flower.strategies.selection import Selection
from fda_flower.wire import protocol
from fda_flower.wire.protocol import COLUMNS, EvaluateRequest, Keys, TrainRequest, to_layers, to_record
from fda_flower.wire.questions import Answer

# fmt: off
__all__ = ["Aggregated", "BadReplyError", "ClientUpdate", "DomainAdaptationStrategy", "Node",
           "Record", "Round", "Sources", "TrainRequest"]
# fmt: on
"""The names that a method's file needs."""

LEFT_OUT = 10
"""Multiple of a round's timeout for which a source that does not reply is left out."""


class DomainAdaptationStrategy(
    CommonOptions, CommonColumns, FlowersMembers, Strategy, metaclass=FlowersOptions
):
    """Base class: in each round, train the clients, check replies, aggregate, and evaluate on the target.

    A subclass defines `aggregate` and overrides other `MethodHooks` as needed. Its annotated attributes are
    the method's options, in addition to `CommonOptions`.

    Attributes
    ----------
    history : list[dict]
        The record of each finished round, as in ``rounds.jsonl``.
    mean_of_sources : SourceMean
        The plain mean of the sources' updates, or its replacement by the option `source_mean`.
    schedules : Mapping
        By role, the clients' learning rate, batch size and epochs, if the server knows them, as a
        `clients.settings.LocalTraining`. A source that claims a higher rate or more steps is dropped,
        since auto-weighting would trust it more.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer_names is not None:
            self.buffer_names = read_list("buffer_names", self.buffer_names, '["bn1.running_mean"]')
        check_objects(self)
        check_buffers(self, self.buffers)
        _ = self.participation
        self.mean_of_sources = read_source_mean(self.source_mean)
        check_source_mean(self, self.source_mean, self.warmup_rounds)
        self.model_average = ModelAverage(self.average)
        self.selection = Selection(self.patience, self.metric, self.validation or {})
        self.progress = Progress(self.output, self.max_held_rounds, self.on_round)
        self.history = self.progress.history
        self.nodes = Nodes(self.target, self.query_timeout, self.has_target)
        self.state: dict[str, ArrayRecord] = {}
        self._keys = Keys(self.arrayrecord_key, self.configrecord_key)
        self.schedules: Mapping[str, Any] = {}
        self._timeout: float | None = 3600.0
        self._without_evaluation: set[Node] = set()
        self._warned: dict[tuple[str, str], str] = {}
        self._has_moved = self._is_connected = self._has_begun = self._is_driven = self._is_whole = False
        self._clock: list[float] = []

    @property
    def record(self) -> Record:
        """The record of the current round."""
        return self.round.record

    @property
    def model(self) -> Layers:
        """The global model."""
        return self.round.model

    # The run

    def connect(self, grid: Grid, timeout: float | None = None) -> None:
        """Wait for the nodes and query their roles (`Node.info`); `start` calls this if necessary.

        Connected nodes have `timeout` seconds to reply; by default as in `Nodes.gather`.
        """
        expected = max(self.wait_for or 0, self.min_train_nodes, self.min_sources + 1)
        self.nodes.gather(grid, expected, self.min_sources, self.wait_seconds, timeout)
        self.nodes.require(self.min_sources)
        self.validate_nodes(self.nodes.connected)
        self._is_connected = True

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run the rounds, from the checkpoint if `output` is resumed.

        Parameters and result are the same as in Flower's ``Strategy.start``, except that the result's arrays
        are always the last global model. `should_stop`, new in Flower 1.43, works with older versions too: it
        receives the round and the result after each round, and ends the run by returning true.

        A second call with the arrays that the first has returned continues its run: messages and records
        count on, and the method's state stays, so that many short calls are one long run. With other arrays
        it is a new run, with the strategy's options and nothing of the first. The result, `evaluate_fn` and
        `should_stop` count the rounds of each call from 1, as in Flower.

        Raises
        ------
        ConfigError
            If a setting or the method cannot work; raised before any training.
        RunError
            If roles are missing or claimed twice, `max_held_rounds` rounds in a row were held, or `aggregate`
            returns another model; at once if all clients fail for the same reason before a first model.
        """
        before = self.take_up(initial_arrays)
        num_rounds = check_start(self, num_rounds, should_stop, before)
        self.num_rounds, self._timeout = before + num_rounds, timeout
        with closing(self.progress):
            result = Result(arrays=initial_arrays)
            done = max(0, self.resume(result) - before)
            if done > num_rounds:
                why = f"the run has done {done} rounds, only {num_rounds} were asked for"
                raise ConfigError(why, thing="num_rounds", value=num_rounds)
            check_initial(to_layers(initial_arrays), self.buffer_names)
            check_same_model(result.arrays, initial_arrays)
            del initial_arrays  # otherwise they stay in memory until the end
            if not self.nodes.connected:
                self.connect(grid)
            self.begin(result.arrays, before + done)
            if evaluate_fn and done == 0 and (metrics := evaluate_fn(0, result.arrays)) is not None:
                result.evaluate_metrics_serverapp[0] = metrics
            for number in range(done + 1, num_rounds + 1):
                server_round = before + number
                if self.selection.stops(self.history):
                    break
                begun = time.perf_counter()
                messages = self.configure_train(
                    server_round, result.arrays, train_config or ConfigRecord(), grid
                )
                replies = list(grid.send_and_receive(messages, timeout=timeout))
                trained = time.perf_counter()
                arrays, train_metrics = self.aggregate_train(server_round, replies)
                result.arrays = result.arrays if arrays is None else arrays
                aggregated = time.perf_counter()
                config = evaluate_config or ConfigRecord()
                messages = self.configure_evaluate(server_round, result.arrays, config, grid)
                evaluated = grid.send_and_receive(messages, timeout=timeout)
                metrics = self.aggregate_evaluate(server_round, evaluated)
                self.evaluate_further()
                if train_metrics is not None:
                    result.train_metrics_clientapp[number] = train_metrics
                if metrics is not None:
                    result.evaluate_metrics_clientapp[number] = metrics
                if evaluate_fn and (own := evaluate_fn(number, result.arrays)) is not None:
                    result.evaluate_metrics_serverapp[number] = own
                    self.record["server"] = dict(own)
                self.finish_round(self.num_rounds, begun, trained, aggregated)
                if should_stop is not None and should_stop(number, result):
                    break
            return result

    def take_up(self, arrays: ArrayRecord | None) -> int:
        """Return the number of rounds of the run that continues with these arrays.

        Otherwise forget the run, if there was one: the next begins as with a new strategy of the same
        options.
        """
        continues = self._is_whole and arrays is not None and is_same(to_layers(arrays), self.model)
        if self.output is not None:
            self.output.continues = continues
        if continues:
            log(INFO, "The run continues after round %d, with the model it has returned", self.round.number)
            return self.round.number
        if self._has_begun:
            log(INFO, "A new run, since its model is not the one the last has returned")
            known = self.nodes, self._is_connected, self.schedules
            self.__post_init__()
            self.nodes, self._is_connected, self.schedules = known
        return 0

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Write the run's configuration and first checkpoint, and log the participants."""
        check_begin(self, arrays)
        self._has_begun = True
        self.progress.begin(done, to_layers(arrays))
        self.summary()

    def summary(self) -> None:
        """Log the strategy and the participants."""
        log(INFO, "%s: %s", type(self).__name__, self.settings())
        if self._is_connected:
            drawn = self.participation.described(len(self.nodes.sources))
            log(INFO, "%s%s", self.nodes.described, drawn)

    def _begin_driven(self, server_round: int, arrays: ArrayRecord) -> None:
        """Begin a run whose rounds another loop than `start` drives, such as the one of a wrapper."""
        check_driven(self, self.resume(Result(arrays=arrays)))
        check_initial(to_layers(arrays), self.buffer_names)
        self._is_driven = True
        self.begin(arrays, server_round - 1)

    # A round, in Flower's four steps

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a train message for each node that trains, each with its own records."""
        if self._is_connected:
            self.nodes.refresh(grid)
            self.validate_nodes(self.nodes.connected)
        else:
            self.connect(grid)
        if self._is_driven and server_round <= self.round.number:
            self.take_up(None)
        if not self._has_begun:
            self._begin_driven(server_round, arrays)
        self._clock, self._is_whole = [time.perf_counter()], False
        self.round = self._new_round(server_round, arrays, config, grid)
        self.agree_on_columns(self.round, self.nodes.connected)
        return self.round.train_messages(self._requests(self.round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies and aggregate the usable ones; return no arrays if the round is held."""
        self._clock.append(time.perf_counter())
        round, record, new, replies = self.round, self.round.record, None, list(replies)
        record["missing"] = self.nodes.missing
        round.drop_all(self.excluded.items())
        updates = round.collect(replies)
        round.note(self._of_answers(round, updates), self.falls_back)
        try:
            new = self._new_model(round, updates)
        except BadReplyError as error:
            record["held"], round.model = str(error), round.whole(round.model)
            log(WARNING, "Round %d: the model is unchanged: %s", server_round, error)
            round.check_budgets()
        self.nodes.leave_out(round.silent, round.requests, LEFT_OUT * (self._timeout or math.inf))
        self.progress.note(record["held"])
        self._has_moved |= new is not None
        self._clock.append(time.perf_counter())
        own = made_by(self.train_metrics_aggr_fn, MetricRecord, contents_of(replies), protocol.NUM_EXAMPLES)
        return new, MetricRecord({**round.train_metrics(), **own})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return an evaluate message for the target."""
        round = self.round
        if len(self._clock) == 1:  # as Flower's wrappers for differential privacy do after an error
            raise RunError(
                f"{type(self).__name__} has received no replies of round {server_round} for its aggregation",
                thing="strategy",
                value=type(self).__name__,
                remedy="call super().aggregate_train if you have one of your own; else the client's error is "
                "above: auto-weighting does not work in Flower's wrappers for differential privacy",
            )
        settings = {**config, **self._evaluate_config(round), protocol.SERVER_ROUND: server_round}
        round.arrays, round.config, round.sent = arrays, settings, {}
        if not self.evaluates_in(server_round):
            return []
        request = EvaluateRequest(arrays, round.config) if round.warmup else self.evaluate_request(round)
        if round.target is None or request is None:
            return []
        return round.messages({round.target: request})

    def _evaluate_config(self, round: Round) -> protocol.Config:
        """Return the settings of every evaluate message; a round that may be the last has the confusion."""
        may_be_last = self.num_rounds in (0, round.number) or self.selection.may_stop(self.history)
        wanted = {
            protocol.OUTCOMES: self.outcomes,
            protocol.ADABN: self.buffers == "adabn",
            protocol.CONFUSION: may_be_last,
        }
        return {name: True for name, is_asked in wanted.items() if is_asked}

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics of the model on the target's test set, and record them."""
        replies = list(replies)
        metrics = self.evaluation(replies)
        own = made_by(
            self.evaluate_metrics_aggr_fn, MetricRecord, contents_of(replies), protocol.NUM_EXAMPLES
        )
        if self._is_driven:
            self.evaluate_further()
            self.finish_round(self.num_rounds, *self._clock)
        return MetricRecord({**(metrics or {}), **own}) if own else metrics

    def evaluation(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics of the model on the target's test set, and record them, in the last step."""
        round = self.round
        metrics = round.read_evaluation(replies) if self.evaluates_in(round.number) else None
        if round.answer is not None:
            round.record |= self.evaluated(round.answer)
        self.selection.judge(round, self.history)
        return metrics

    def evaluate_further(self) -> None:
        """Let the target evaluate further models after the headline, and record their metrics."""
        round, target = self.round, self.round.target
        if target is None or not self.evaluates_in(round.number):
            return
        requests = {} if round.warmup else dict(self.further_requests(round))
        if (average := self.model_average.model) is not None:
            requests["average"] = self.global_request(round, to_record(average))
        for ending, request in requests.items():
            config = {name: value for name, value in request.config.items() if name not in DETAILS}
            request = replace(request, config={**config, protocol.BESIDE: True})
            round.read_evaluation(round.send(round.messages({target: request})), f"-{ending}")

    # Parts of a round

    def resume(self, result: Result) -> int:
        """Restore the run in `output`: put its model into `result` and return its number of rounds."""
        checkpoint = self.progress.open({"name": type(self).__name__, **self.settings()})
        if checkpoint is None:
            return 0
        self.selection.check_judged(self.history)
        self.load_state_dict(checkpoint.state)
        self.model_average.models = tuple(checkpoint.averaged)
        result.arrays = to_record(checkpoint.model)
        return checkpoint.round

    def preview(self, arrays: ArrayRecord, done: int, grid: Grid) -> list[EvaluateRequest]:
        """Return the requests of the first round after the warm-up without sending them."""
        round = self._new_round(max(done, self.warmup_rounds) + 1, arrays, ConfigRecord(), grid)
        evaluation = self.evaluate_request(round)
        return [*self._requests(round).values(), *([evaluation] if evaluation else [])]

    def finish_round(self, num_rounds: int, begun: float, trained: float, aggregated: float) -> None:
        """Write the round's record, with its times, and the checkpoint.

        Raises
        ------
        RunError
            After too many held rounds.
        """
        self.record["seconds"] = {
            "train": trained - begun,
            "aggregate": aggregated - trained,
            "evaluate": time.perf_counter() - aggregated,
        }
        record: Record = json_safe(dict(self.record))
        self.progress.finish(record, num_rounds, self._checkpoint, chosen_round([record]) == record["round"])
        self._is_whole = True

    def _checkpoint(self) -> Checkpoint:
        state, averaged = self.state_dict(), self.model_average.models
        return Checkpoint(self.round.number, self.model, state, averaged=averaged)

    def _new_round(
        self, server_round: int, arrays: ArrayRecord, config: Mapping[str, Any], grid: Grid
    ) -> Round:
        warmup = server_round <= self.warmup_rounds
        sent = {**config, protocol.SERVER_ROUND: server_round}
        if self.learning_rate_factor != 1 and not warmup:
            sent[protocol.LEARNING_RATE_FACTOR] = self.learning_rate_factor
        headline = self.selection.headline(self.nodes.target, self.history)
        record: Record = {"round": server_round, "warmup": warmup, **headline}
        before: Record = next((each["sizes"] for each in reversed(self.history) if "sizes" in each), {})
        if (sizes := read_sizes(self.nodes.connected)) != before and sizes:
            record["sizes"] = sizes
        able = [node for node in self.nodes.connected if node.domain not in self.excluded]
        nodes, drawn = self.participation.of(able, server_round)
        record |= {**drawn, "held": None, "target": None, "sources": {}, "dropped": []}
        record |= {"missing": self.nodes.missing, "bytes-received": 0}
        return Round(
            server_round,
            warmup,
            nodes,
            arrays,
            sent,
            record,
            partial(grid.send_and_receive, timeout=self._timeout),
            keys=self._keys,
            max_norm=self.max_update_norm,
            asked_of={role: self.asked_of(role) for role in ("source", "target")},
            buffer_names=self.buffer_names,
            needs_all=self.needs_all,
            schedules=self.schedules,
            without_evaluation=self._without_evaluation,
            warned=self._warned,
            run_id=grid.run.run_id,
            is_first=not self._has_moved and all(each["held"] for each in self.history),
            columns=sent_columns(self.state.get(COLUMNS)),
        )

    def _requests(self, round: Round) -> dict[Node, TrainRequest]:
        if round.warmup:
            return {node: TrainRequest(round.arrays, round.config) for node in round.sources}
        return {node: self.train_request(node, round) for node in round.nodes if self.asks(node, round)}

    def _of_answers(self, round: Round, updates: Updates) -> dict[str, Record]:
        """Return the entries of the clients' records for their answers, by domain."""
        target, sources = updates
        answered = [each for each in (target, *sources.values()) if each and isinstance(each.answer, Answer)]
        return {client.domain: self.answered(client.domain, client.answer) for client in answered}

    def _new_model(self, round: Round, updates: Updates) -> ArrayRecord:
        """Return the new model; drop a source that alone makes it non-finite."""
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
            round.leave_out({left: f"with it, {error}"})
            return new

    def _steps(
        self, round: Round, target: ClientUpdate | None, without: Mapping[str, dict[str, ClientUpdate]]
    ) -> dict[str, float]:
        """Return the step without each source, for those whose removal makes it finite."""
        steps = dict[str, float]()
        for left, others in without.items():
            with suppress(BadReplyError):
                model = self._aggregate(round, (target, others)).model
                check_finite(model)
                steps[left] = Update.between(round.model, model, 1).norm
        return steps

    def _aggregate(self, round: Round, updates: Updates) -> Aggregated:
        target, sources = updates
        roles = {"source"} if round.warmup else self.trains
        if "target" in roles and target is None:
            raise BadReplyError("no usable reply of the target")
        if "source" in roles and len(sources) < self.min_sources:
            raise BadReplyError(
                f"{len(sources)} usable replies of sources, at least {self.min_sources} needed"
            )
        # A hostile update may overflow; the new models are checked before use.
        with np.errstate(all="ignore"):
            if round.warmup:
                clients = list(sources.values())
                return Aggregated(self.mean_of_sources(round.model, clients, source_weights(clients)))
            aggregated = self.aggregate(round, target, sources)
        check_aggregated(type(self).__name__, aggregated, round.model)
        if self.buffers != "target":
            return aggregated
        assert target is not None, "a method whose target does not train refuses the word"
        model = {name: target.buffers.get(name, array) for name, array in aggregated.model.items()}
        return replace(aggregated, model=model)

    def _commit(self, round: Round, aggregated: Aggregated) -> ArrayRecord:
        for layers in (aggregated.model, *aggregated.state.values()):
            check_finite(layers)
        self.state |= {name: to_record(layers) for name, layers in aggregated.state.items()}
        round.model = round.whole(aggregated.model)
        if not round.warmup:
            self.model_average.add(round.model)
        round.record |= aggregated.record
        round.note(aggregated.clients, self.falls_back)
        for warning in aggregated.warnings:
            log(WARNING, "Round %d: %s", round.number, warning)
        return to_record(round.model)
