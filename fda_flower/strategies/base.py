"""The base of every strategy: one round of federated domain adaptation, its checks and its records."""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any, ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fda_flower.aggregation import Layers, Update, find_buffers, mean_update, source_weights
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import json_safe
from fda_flower.records import Record, headline
from fda_flower.run_folder import RunFolder, check_same_model
from fda_flower.strategies.collect import Collector, NormLimit, OnLargeUpdate, train_metrics
from fda_flower.strategies.exchange import Asked, Keys, answers, ask, by_our_names, taken_from
from fda_flower.strategies.node import Node
from fda_flower.strategies.replies import EVALUATION, BadReplyError, check_finite, read_metrics
from fda_flower.strategies.roster import Roster


class DomainAdaptationStrategy(Strategy):
    """One round: ask the clients to train, check their replies, combine them, evaluate on the target.

    A subclass says how to `combine` updates, and which roles have to train.

    Parameters
    ----------
    target : str, optional
        The target's domain. Default: the node that gives its role as ``"target"``.
    min_sources : int
        With fewer usable replies of sources the model stays as it is.
    wait_for : int, optional
        Nodes to wait for before the first round. Default: the target and `min_sources`.
    wait_seconds : float
        How long to wait for them.
    query_timeout : float
        Seconds that a node has to tell who it is. A node that does not answer is asked again later.
    max_held_rounds : int
        After so many rounds in a row that could not change the model, since the target's reply (or
        `min_sources` of sources) was missing or of no use, the run ends with an error and a checkpoint.
    max_update_norm : float, optional
        A limit for the norm of each client's update. Default: none.
    on_large_update : {"clip", "drop"}
        What happens to a longer one.
    warmup_rounds : int
        Rounds in which the sources alone train and are averaged, before the method begins (Jiang et al.,
        ICLR 2024, Section C.2). They are the first of the rounds asked for.
    learning_rate_factor : float
        Clients multiply their learning rate by it after the warm-up rounds (Section C.4).
    buffers : Collection[str], optional
        Names of the arrays that are no parameters; may be set later. Default: `aggregation.find_buffers`.
    arrayrecord_key, configrecord_key : str
        Names of the records with the model and the settings, as of Flower's ``FedAvg``.
    output : RunFolder, optional
        Where to write a line a round and a checkpoint, and to resume from.
    on_round : callable, optional
        Called with each round's record, for progress displays.

    Attributes
    ----------
    history : list[dict]
        The record of each round, as in ``rounds.jsonl``.
    record : dict
        That of the round that is going on.
    """

    trains: frozenset[str] = frozenset({"source", "target"})
    """The roles that train; the others are not asked to."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reference-code": {}, "paper": {}}
    """Settings that make the method what the authors' code does, or what the paper defines."""

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
        on_large_update: OnLargeUpdate = "clip",
        warmup_rounds: int = 0,
        learning_rate_factor: float = 1.0,
        buffers: Collection[str] | None = None,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        output: RunFolder | None = None,
        on_round: Callable[[Record], None] | None = None,
    ) -> None:
        if min_sources < 1:
            raise ConfigError(f"min_sources is {min_sources}, it must be at least 1")
        if max_held_rounds < 1:
            raise ConfigError(f"max_held_rounds is {max_held_rounds}, it must be at least 1")
        if warmup_rounds < 0:
            raise ConfigError(f"warmup_rounds is {warmup_rounds}, it must not be negative")
        if not query_timeout > 0:
            raise ConfigError(f"query_timeout is {query_timeout} seconds, it must be above 0")
        if not 0 < learning_rate_factor < math.inf:
            raise ConfigError(f"learning_rate_factor is {learning_rate_factor}, it must be a number above 0")
        self.min_sources = min_sources
        self.warmup_rounds = warmup_rounds
        self.learning_rate_factor = learning_rate_factor
        self.max_held_rounds = max_held_rounds
        self._limit = NormLimit(max_update_norm, on_large_update)
        self.history: list[Record] = []
        self.roster = Roster(target, query_timeout)
        self._waiting = (wait_for or min_sources + 1, wait_seconds)
        self.buffers = buffers
        self._keys = Keys(arrayrecord_key, configrecord_key)
        self.output = output
        self._on_round = on_round
        self._timeout = 3600.0
        self._held_rounds = 0
        self.model: Layers = {}
        self._sent = ArrayRecord()
        self._asked: list[Asked] = []
        self.record: Record = {}

    # What a method defines

    @abstractmethod
    def combine(
        self, model: Layers, target: Update | None, sources: Mapping[str, Update], record: Record
    ) -> Layers:
        """The new global model.

        Parameters
        ----------
        model : Layers
            The global model.
        target : Update or None
            The target's update; None where the target does not train.
        sources : Mapping[str, Update]
            The sources' updates by domain, in the order of domains; at least `min_sources`, or none
            where sources do not train.
        record : dict
            The round's record, to add to.
        """

    def settings(self) -> Record:
        """What defines the strategy, for the run's configuration and the log."""
        return {
            "min-sources": self.min_sources,
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
            **({} if self._limit.max_norm is None else {"limit": str(self._limit)}),
        }

    def extra_config(self, server_round: int, node: Node) -> ConfigRecord:
        """What a method asks of a client beside the training."""
        return ConfigRecord()

    def read_extra(self, reply: RecordDict, node: Node, update: Update, record: Record) -> None:
        """Read what a method asked for, of each good reply; a `BadReplyError` refuses it."""

    def start_of(self, node: Node, model: ArrayRecord) -> ArrayRecord:
        """What a node trains from: the global model, unless the method keeps others."""
        return model

    def before(self, node: Node) -> Layers:
        """The arrays of `start_of`."""
        return self.model

    def kept(self) -> dict[str, Layers]:
        """Models that the method keeps beside the global one, for the checkpoint."""
        return {}

    def restore(self, kept: Mapping[str, Layers]) -> None:
        """Go on with the models of a checkpoint."""

    def check_roster(self) -> None:
        """Raise an error if the method cannot work with these nodes; called before training."""

    # The run

    def connect(self, grid: Grid) -> None:
        """Wait for the nodes and ask who they are (`Node.info`); `start` does it, unless it is done.

        Raises
        ------
        ConfigError, RunError
            If the method cannot work with these nodes; if roles are missing or claimed twice.
        """
        self.roster.refresh(grid, *self._waiting)
        self.roster.require(self.min_sources)
        self.check_roster()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds, from the checkpoint on if `output` is resumed.

        Parameters and result are those of Flower's ``Strategy.start``; the result's arrays are always
        the last global model.

        Raises
        ------
        ConfigError
            If a setting cannot work, before any training.
        RunError
            If roles are missing or claimed twice, or the model was held for `max_held_rounds` rounds.
        """
        if num_rounds <= self.warmup_rounds:
            raise ConfigError(
                f"num_rounds is {num_rounds}, it must be at least {self.warmup_rounds + 1}"
                + (f" with {self.warmup_rounds} warm-up rounds" if self.warmup_rounds else "")
            )
        result, done = Result(arrays=initial_arrays), 0
        if self.output is not None:
            done = self.resume(self.output, result)
        if done > num_rounds:
            raise ConfigError(f"the run has done {done} rounds, only {num_rounds} were asked for")
        check_same_model(result.arrays, initial_arrays)
        del initial_arrays  # else they would stay in memory to the end
        self._timeout = timeout
        if not self.roster.nodes:
            self.connect(grid)
        if self.output is not None:
            self.output.begin(done)
        self.summary()
        if evaluate_fn and done == 0 and (metrics := evaluate_fn(0, result.arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = metrics
        for server_round in range(done + 1, num_rounds + 1):
            begun = time.perf_counter()
            messages = self.configure_train(server_round, result.arrays, train_config or ConfigRecord(), grid)
            replies = list(grid.send_and_receive(messages, timeout=timeout))
            trained = time.perf_counter()
            arrays, train_metrics = self.aggregate_train(server_round, taken_from(replies))
            result.arrays = arrays or result.arrays
            aggregated = time.perf_counter()
            messages = self.configure_evaluate(
                server_round, result.arrays, evaluate_config or ConfigRecord(), grid
            )
            metrics = self.aggregate_evaluate(server_round, grid.send_and_receive(messages, timeout=timeout))
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
        return result

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
        """A train message for each client whose role trains, each with records of its own."""
        self.roster.refresh(grid)
        self.check_roster()
        self._grid = grid
        self.model, self._sent = {}, arrays
        self.record = {"round": server_round, "warmup": server_round <= self.warmup_rounds}
        about = ConfigRecord({"server-round": server_round})
        if self.learning_rate_factor != 1 and not self.record["warmup"]:
            about["rate-factor"] = self.learning_rate_factor

        def ask_to_train(node: Node) -> Asked:
            start, more = self.start_of(node, arrays), self.extra_config(server_round, node)
            return ask(node, "train", start, config, about, more, keys=self._keys)

        self.ask_to_train = ask_to_train
        self._asked = [ask_to_train(node) for node in self.roster.nodes if node.role in self._training_now()]
        return [each.message for each in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, combine the good ones; no arrays if the model has to stay as it is."""
        record = self.record
        self.model = {name: array.numpy() for name, array in self._sent.items()}
        self._sent = ArrayRecord()
        record.update({"held": None, "target": None, "sources": {}, "dropped": []})
        record |= {"missing": self.roster.missing, "bytes-received": 0}
        new = None
        try:
            combined = self._combine_now(*self.collect(self._asked, replies), record)
            new = ArrayRecord({name: Array(array) for name, array in combined.items()})
            self.model = combined
        except BadReplyError as error:
            record["held"] = str(error)
            log(WARNING, "Round %d: the model stays as it is: %s", server_round, error)
        self._held_rounds = 0 if new is not None else self._held_rounds + 1
        return new, train_metrics(record)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """An evaluate message for the target."""
        target = self.roster.target
        about = ConfigRecord({"server-round": server_round})
        self._asked = [ask(target, "evaluate", arrays, config, about, keys=self._keys)] if target else []
        return [each.message for each in self._asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The global model's metrics on the target's test set."""
        if not self._asked:
            return None
        try:
            ((_, reply),) = answers(self._asked, replies)
            metrics = read_metrics(reply)
        except BadReplyError as error:
            log(WARNING, "Round %d: the target did not evaluate: %s", server_round, error)
            self.record["evaluation-failed"] = str(error)
            return None
        self.record.update({key: metrics[key] for key in EVALUATION if key in metrics})
        if others := {key: metrics[key] for key in metrics if key not in (*EVALUATION, "num-examples")}:
            self.record["metrics"] = others
        return metrics

    # The parts of it

    def resume(self, folder: RunFolder, result: Result) -> int:
        """The rounds that a folder holds; its model goes into `result`, the rest is taken up here."""
        checkpoint = folder.open({"name": type(self).__name__, **self.settings()})
        if checkpoint is None:
            return 0
        model, done, state = checkpoint
        self.restore(folder.load_kept())
        self.history = folder.read_rounds()[:done]
        result.arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
        self._held_rounds = state["held-rounds"]
        log(INFO, "Resumed after round %d from %s", done, folder.path)
        return done

    def _training_now(self) -> frozenset[str]:
        return frozenset({"source"}) if self.record["warmup"] else self.trains

    def collect(
        self, asked: Sequence[Asked], replies: Iterable[Message]
    ) -> tuple[Update | None, dict[str, Update]]:
        """The usable updates among the replies: the target's, and the sources' by domain."""
        buffers = find_buffers(self.model) if self.buffers is None else self.buffers
        found = by_our_names(replies, self._keys)
        return Collector(self.before, buffers, self._limit, self.record, self.read_extra)(asked, found)

    def send_and_collect(self, asked: Sequence[Asked]) -> tuple[Update | None, dict[str, Update]]:
        """Send messages, and `collect` the replies: for a method that asks more than once in a round."""
        return self.collect(
            asked, self._grid.send_and_receive([a.message for a in asked], timeout=self._timeout)
        )

    def _combine_now(self, target: Update | None, sources: Mapping[str, Update], record: Record) -> Layers:
        training = self._training_now()
        if "target" in training and target is None:
            raise BadReplyError("no usable reply of the target")
        if "source" in training and len(sources) < self.min_sources:
            raise BadReplyError(
                f"{len(sources)} usable replies of sources, at least {self.min_sources} needed"
            )
        # A hostile update may overflow; what comes of it is checked below.
        with np.errstate(all="ignore"):
            if record["warmup"]:
                updates = list(sources.values())
                combined: Layers = mean_update(self.model, updates, source_weights(updates))
            else:
                combined = self.combine(self.model, target, sources, record)
        check_finite(combined)
        return combined

    def finish_round(self, num_rounds: int) -> None:
        """Write the round's record and the checkpoint, and tell; a `RunError` after too many misses."""
        record: dict[str, Any] = json_safe(self.record)
        self.history.append(record)
        if self.output is not None:
            state = {"held-rounds": self._held_rounds}
            self.output.save_round(record, self.model, state, self.kept())
        if self._on_round is not None:
            self._on_round(record)
        log(INFO, "Round %d/%d: %s", record["round"], num_rounds, headline(record))
        if self._held_rounds >= self.max_held_rounds:
            raise RunError(
                f"the model could not be updated for {self._held_rounds} rounds in a row "
                f"({record['held']}): mend the clients, then resume"
            )
