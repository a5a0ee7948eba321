"""One round of a run: messages, replies and record."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from logging import WARNING
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, MetricRecordValues, RecordDict
from flwr.common import log

from fda_flower.aggregation import Layers, find_buffers
from fda_flower.errors import RunError, printable, unknown
from fda_flower.metrics import UNITS, of_mean
from fda_flower.names.words import by_reason, listed
from fda_flower.records.record import MEAN_OF_LABELS, TEST_EXAMPLES, UNCOVERED, Record
from fda_flower.strategies.evaluations import DETAILS, evaluated, left_out, read_details, read_metrics
from fda_flower.strategies.nodes import Node, match_replies
from fda_flower.strategies.replies import (
    NO_EVALUATION,
    BadReplyError,
    ClientUpdate,
    LackingError,
    NoEvaluationError,
    content_of,
    info_of,
    read_answer,
    read_arrays,
    read_update,
)
from fda_flower.wire import protocol
from fda_flower.wire.arrays import count_bytes
from fda_flower.wire.internals import AWAY, WITHOUT_ANSWER, entries_of
from fda_flower.wire.protocol import Config, EvaluateRequest, Keys, TrainRequest, split_held_out, to_layers

MOST_UNCOVERED = 100
"""Entries of a reply that the record names as unprotected."""


def record_privacy(record: Record, node: Node, info: Mapping[str, Any]) -> None:
    """Record the ``ε`` that a site tells, whether or not its reply is usable; ignore impossible values."""
    epsilon, delta, uncovered = (
        info.get(key) for key in (protocol.EPSILON, protocol.DELTA, protocol.UNCOVERED)
    )
    if not isinstance(epsilon, float) or not isinstance(delta, float):
        return
    if not (0 <= epsilon < float("inf") and 0 <= delta <= 1):
        return
    privacy: Record = {"epsilon": epsilon, "delta": delta}
    if info.get(protocol.OF_PATIENTS) is True:
        privacy["unit"] = "patient"
    known = record.setdefault("privacy", {}).get(node.domain, {})
    names = uncovered[:MOST_UNCOVERED] if isinstance(uncovered, list) else []
    if named := {*known.get(UNCOVERED, ()), *(printable(str(name)) for name in names)}:
        privacy[UNCOVERED] = sorted(named)
    record["privacy"][node.domain] = privacy


Updates = tuple[ClientUpdate | None, dict[str, ClientUpdate]]
"""The target's update, if usable, and the sources' by domain, sorted by domain."""


@dataclass
class Round:
    """One round of a run.

    Attributes
    ----------
    number : int
        1, 2, ...
    warmup : bool
        Whether only the sources train and are averaged.
    nodes : sequence of Node
        The nodes that take part, sorted by domain.
    arrays : ArrayRecord
        The global model, as sent.
    config : Mapping
        Settings for every node.
    record : Record
        The round's record; `aggregate` adds to it.
    send : callable
        Sends messages to the nodes and returns their replies.
    keys, max_norm, buffer_names, schedules
        As in the strategy.
    needs_all : str or None
        As in the strategy; see `whole`.
    model : Layers
        The global model; empty until the replies are read. While replies are aggregated it has no arrays that
        all of them lack; see `whole`.
    held_out : dict
        Nodes' metrics on their validation samples, by name.
    silent, spent : set of Node
        The nodes that did not reply to a train message, and those whose privacy budget is spent.
    run_id : int
        Flower's id of the run.
    is_first : bool
        Whether no round before has made a model: a failure that all nodes share then ends the run.
    away : set of Node
        The nodes that were silent, or that Flower says are not there.
    without_evaluation : set of Node
        Nodes whose app has no evaluation function; they are asked only questions again.
    warned : dict
        By domain and kind of failure (`warn`), the reason logged last. A failure is logged again only if the
        reason changes; the records have each.
    evaluations : Mapping[Node, EvaluateRequest]
        The requests of the last messages.
    columns : ArrayRecord or None
        The common columns, which messages bring to each node of a table; see `strategies.columns`.
    answer : Answer or None
        The target's answer to the question with which it evaluated the headline's model.
    """

    number: int
    warmup: bool
    nodes: Sequence[Node]
    arrays: ArrayRecord
    config: Config
    record: Record
    send: Callable[[Iterable[Message]], Iterable[Message]]
    keys: Keys = Keys()  # noqa: RUF009
    max_norm: float | None = None
    asked_of: Mapping[str, Collection[str]] | None = None
    buffer_names: Collection[str] | None = None
    needs_all: str | None = None
    schedules: Mapping[str, Any] = field(default_factory=dict)
    model: Layers = field(default_factory=dict)
    requests: dict[Node, TrainRequest] = field(default_factory=dict)
    sent: dict[Node, Message] = field(default_factory=dict)
    held_out: dict[Node, dict[str, float]] = field(default_factory=dict)
    silent: set[Node] = field(default_factory=set)
    spent: set[Node] = field(default_factory=set)
    run_id: int = 0
    is_first: bool = False
    away: set[Node] = field(default_factory=set)
    without_evaluation: set[Node] = field(default_factory=set)
    warned: dict[tuple[str, str], str] = field(default_factory=dict)
    evaluations: Mapping[Node, EvaluateRequest] = field(default_factory=dict)
    columns: ArrayRecord | None = None
    answer: Any = None

    @property
    def target(self) -> Node | None:
        """The target, if it is connected."""
        return next((node for node in self.nodes if node.is_target), None)

    @property
    def sources(self) -> list[Node]:
        """The sources, sorted by domain."""
        return [node for node in self.nodes if not node.is_target]

    def count_parameters(self) -> int:
        """Return the number of parameters of the round's model, without its buffers."""
        model = self.model or to_layers(self.arrays)
        buffers = self._buffers_of(model)
        return sum(array.size for name, array in model.items() if name not in buffers)

    def _buffers_of(self, model: Layers) -> Collection[str]:
        return find_buffers(model) if self.buffer_names is None else self.buffer_names

    def train_messages(self, requests: Mapping[Node, TrainRequest]) -> Iterable[Message]:
        """Return the messages that carry train requests; `collect` reads the replies."""
        self.requests |= requests
        return self.messages(requests, protocol.TRAIN)

    def messages(
        self, requests: Mapping[Node, EvaluateRequest], kind: str = protocol.EVALUATE
    ) -> Iterable[Message]:
        """Return the messages that carry requests; `read_evaluation` reads the replies."""
        left_out = self._without_evaluation(requests) if kind == protocol.EVALUATE else ()
        self._check_asked(requests, kind)
        self.evaluations = requests
        self.sent = {
            node: Message(self._content(node, request), node.id, request.message_type(kind))
            for node, request in requests.items()
            if node not in left_out
        }
        return list(self.sent.values())

    def _content(self, node: Node, request: EvaluateRequest) -> RecordDict:
        """Return the content of a message, with the common columns if the node has a table."""
        if self.columns is not None and node.info.get(protocol.COLUMNS):
            request = replace(request, records={**request.records, protocol.COLUMNS: self.columns})
        return request.content(self.keys)

    def _check_asked(self, requests: Mapping[Node, EvaluateRequest], kind: str) -> None:
        """Raise a `RunError` for a message that the strategy does not declare: sites would refuse it."""
        if self.asked_of is None:
            return
        for node, request in requests.items():
            if (name := request.message_type(kind)) in self.asked_of[node.role]:
                continue
            what, remedy = name, "name the role in its strategy's trained_plainly, or ask a question"
            if request.question is not None:
                what = type(request.question).__name__
                remedy = f"give its strategy questions = ({what},), and the question the role"
            why = f"the method asks {what} of a {node.role}, which it does not declare"
            raise RunError(why, thing="question", value=what, remedy=remedy)

    def _without_evaluation(self, requests: Mapping[Node, EvaluateRequest]) -> Collection[Node]:
        """Return the nodes not to ask for an evaluation, and log those whose apps say that they have none."""
        known = [node for node in requests if node.info.get(protocol.EVALUATES) is False]
        self.warn(((node.domain, NO_EVALUATION) for node in known), "no evaluation by")
        plain = {node for node, request in requests.items() if request.question is None}
        return {*known, *(plain & self.without_evaluation)}

    def exchange(self, requests: Mapping[Node, TrainRequest]) -> Updates:
        """Send further requests within a round, and return the updates in the replies."""
        return self.collect(self.send(self.train_messages(requests)))

    def ask_target(self, request: TrainRequest) -> ClientUpdate:
        """Send the target a further request within a round, and return the update in its reply.

        Raises a `BadReplyError` if it is not connected, or has no usable reply.
        """
        if self.target is None:
            raise BadReplyError("the target is not connected")
        update, _ = self.exchange({self.target: request})
        if update is None:
            raise BadReplyError("no usable reply of the target")
        return update

    def collect(self, replies: Iterable[Message]) -> Updates:
        """Return the usable updates in the replies; log the others and record them as dropped."""
        self.model = self.model or to_layers(self.arrays)
        target: ClientUpdate | None = None
        sources: dict[str, ClientUpdate] = {}
        dropped, without = list[tuple[str, str]](), list[tuple[str, str]]()
        matched = list(match_replies(self.sent, replies))
        needed = self._leave_out_arrays([reply for _, reply in matched if reply is not None])
        for node, reply in matched:
            record_privacy(self.record, node, info := info_of(reply))
            try:
                with readable():
                    update = self._read(node, reply, info)
            except BadReplyError as error:
                why = needed if isinstance(error, LackingError) else ""
                dropped.append((node.domain, f"{error}{why}"))  # the error itself would keep the arrays
                self._sort(node, reply)
                continue
            finally:
                release(reply)
            without.append((node.domain, left_out(reply)))
            if node.is_target:
                target = update
            else:
                sources[node.domain] = update
        if self.is_first:
            self._check_common_failure(dropped)
        self.drop_all(dropped)
        self._tell_left_out(without)
        return target, sources

    def _leave_out_arrays(self, replies: Iterable[Message]) -> str:
        """Leave arrays that all replies lack out of the model, with a warning; return why they are needed.

        Clients that train adapters or a head may return these alone, although they receive more.
        """
        lacking = {missing for reply in replies if (missing := self._missing_from(reply)) is not None}
        missing = lacking.pop() if len(lacking) == 1 else frozenset[str]()
        if not missing or missing >= self.model.keys() - self._buffers_of(self.model):
            return ""
        if why := self.needs_all or ("arrays without names" if all(map(str.isdigit, self.model)) else ""):
            return f", as all replies do, but {why}: return every array, or send those that are trained"
        first = next(name for name in self.model if name in missing)
        words = f"{len(missing)} of {len(self.model)} arrays, such as '{first}'; they keep the values sent"
        self.warn([("all replies", words)], "absent from")
        self.model = {name: array for name, array in self.model.items() if name not in missing}
        return ""

    def _missing_from(self, reply: Message) -> frozenset[str] | None:
        """Return the model's arrays that a reply lacks; None if it holds no arrays."""
        content = reply.content if reply.has_content() else RecordDict()
        record = content.get(self.keys.arrays, content.get(protocol.ARRAYS))
        return frozenset(self.model.keys() - record.keys()) if isinstance(record, ArrayRecord) else None

    def whole(self, model: Layers) -> Layers:
        """Return a new model with the arrays that all replies lacked, as they were sent."""
        if len(model) == len(self.arrays):
            return model
        return {name: model.get(name, array) for name, array in to_layers(self.arrays).items()}

    def read_evaluation(self, replies: Iterable[Message], suffix: str = "") -> MetricRecord | None:
        """Return the target's metrics of the model, and record them; None if there are none.

        A further model's metrics have a `suffix` in the record.
        """
        metrics, record = None, self.record
        failed, without = list[tuple[str, str]](), list[tuple[str, str]]()
        for node, reply in match_replies(self.sent, replies):
            record_privacy(record, node, info_of(reply))
            try:
                with readable():
                    if node.is_target:
                        metrics = self._read_target(node, reply, suffix)
                    else:
                        _, self.held_out[node] = split_held_out(read_metrics(reply))
                without.append((node.domain, left_out(reply, evaluation=True)))
            except BadReplyError as error:
                if node.is_target:
                    record[f"evaluation-failed{suffix}"] = str(error)
                    self._check_answers(node, str(error))
                if isinstance(error, NoEvaluationError):
                    self.without_evaluation.add(node)
                failed.append((node.domain, str(error)))
        self.warn(failed, "no evaluation by")
        self._tell_left_out(without)
        if self.config.get(protocol.CONFUSION) and "r2" in record:
            record[MEAN_OF_LABELS] = of_mean(record)
        return metrics

    def _check_answers(self, node: Node, reason: str) -> None:
        """Raise a `RunError` if a node's app does not answer the question of an evaluation, in any round."""
        question = self.evaluations[node].question
        if question and any(text.format(question.action) in reason for text in WITHOUT_ANSWER):
            why = f"'{node.domain}' does not answer the question by which the method evaluates: {reason}"
            remedy = f'add a function @app.evaluate("{question.action}") to its app, or choose another method'
            raise RunError(why, thing="client app", value=question.action, remedy=remedy)

    def _evaluated(self, content: RecordDict, metrics: MetricRecord) -> Record:
        """Return the record's entries for the target's evaluation."""
        details = (name for name in DETAILS if name in content and self.config.get(name))
        arrays = {name: read_arrays(content, name) for name in details}
        return {**evaluated(metrics), **read_details(arrays, self._class_names)}

    def drop(self, domain: str, error: BadReplyError) -> None:
        """Record an unused reply with its reason."""
        self.drop_all([(domain, str(error))])

    def drop_all(self, dropped: Iterable[tuple[str, str]]) -> None:
        """Record unused replies, given as domains and reasons, and log them."""
        dropped = list(dropped)
        self.record["dropped"] += [{"domain": domain, "reason": reason} for domain, reason in dropped]
        self.warn(dropped, "dropped the reply of")

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Drop sources whose replies are of no use after all, by domain with the reason."""
        for domain in reasons:
            del self.record["sources"][domain]
        self.drop_all(reasons.items())

    def note(self, entries: Mapping[str, Record], falls_back: str) -> None:
        """Add entries to the clients' records, by domain, and log each ``fallback`` among them."""
        clients = filter(None, [self.record["target"], *self.record["sources"].values()])
        records = {client["domain"]: client for client in clients}
        for domain, entry in entries.items():
            if domain not in records:
                raise unknown("domain of a client's record", domain, records)
            records[domain] |= entry
        fallbacks = (
            (domain, entry["fallback"]) for domain, entry in entries.items() if entry.get("fallback")
        )
        self.warn(fallbacks, falls_back)

    def warn(self, failed: Iterable[tuple[str, str]], what: str) -> None:
        """Log each reason once for all domains that share it, unless they had the same one before.

        `failed` holds domains and reasons.
        """
        new = [(domain, reason) for domain, reason in failed if self.warned.get((domain, what)) != reason]
        self.warned |= {(domain, what): reason for domain, reason in new}
        for nodes, reason in by_reason(new):
            log(WARNING, "Round %d: %s %s: %s", self.number, what, nodes, reason)

    def _tell_left_out(self, without: Iterable[tuple[str, str]]) -> None:
        """Log the metrics that are left out of replies, given as domains and `left_out`."""
        self.warn(((domain, names) for domain, names in without if names), "left out of the reply of")

    def _check_common_failure(self, dropped: Collection[tuple[str, str]]) -> None:
        """Raise a `RunError` if all nodes asked have failed for one reason, and are there."""
        reasons, domains = {reason for _, reason in dropped}, [node.domain for node in self.requests]
        if self.away or self.spent or len(reasons) != 1 or not 1 < len(domains) == len(dropped):
            return
        (reason,) = reasons
        raise RunError(
            f"all {len(domains)} nodes asked to train ({listed(domains)}) fail alike, so that no later round "
            f"can work; each: {reason}",
            thing="client app",
            value=reason,
            remedy="remove the cause, then start again",
        )

    def check_budgets(self) -> None:
        """Raise a `RunError` if spent privacy budgets make this held round impossible for good.

        A single source cannot end a run this way: either the target or all requested sources must refuse.
        """
        sources = {node for node in self.requests if not node.is_target}
        if self.target not in self.spent and not (sources and sources <= self.spent):
            return
        names = {node.domain for node in self.spent}
        dropped = (drop for drop in self.record["dropped"] if drop["domain"] in names)
        reasons = "; ".join(f"'{drop['domain']}': {drop['reason']}" for drop in dropped)
        raise RunError(
            f"round {self.number} cannot be done, since sites refuse: {reasons}. The model of the "
            "round before is kept: use it, or resume once the sites give a larger max-epsilon",
            thing="max-epsilon",
            value=sorted(names),
        )

    @property
    def _class_names(self) -> Sequence[str]:
        names = self.target.info.get(protocol.CLASS_NAMES) if self.target else None
        return [str(name) for name in names] if isinstance(names, list) else []

    def train_metrics(self) -> MetricRecord:
        """Return the metrics for Flower's result: dropped replies, loss and weight of each source.

        A project's own numbers, such as ``train_loss``, are averaged by examples, as Flower's FedAvg does.
        """
        metrics: dict[str, MetricRecordValues] = {"dropped": len(self.record["dropped"])}
        for domain, entry in self.record["sources"].items():
            found = {key: entry.get(key) for key in ("train-loss", "beta", "weight")}
            metrics |= {
                f"{key}.{domain}": float(str(value)) for key, value in found.items() if value is not None
            }
        entries = [*self.record["sources"].values(), *filter(None, [self.record["target"]])]
        return MetricRecord(_means(entries) | metrics)

    def _sort(self, node: Node, reply: Message | None) -> None:
        """Note of a node that has sent no usable reply whether it may do so later."""
        code = reply.error.code if reply is not None and reply.has_error() else None
        if reply is None:
            self.silent.add(node)
        if reply is None or code in AWAY:
            self.away.add(node)
        if code == protocol.BUDGET_CODE:
            self.spent.add(node)

    def _read_target(self, node: Node, reply: Message | None, suffix: str) -> MetricRecord:
        own, held_out = split_held_out(read_metrics(reply))
        found = self._evaluated(content_of(reply), MetricRecord(own))
        if suffix:
            found = {key: value for key, value in found.items() if key not in (TEST_EXAMPLES, UNITS)}
        else:
            self.held_out[node], self.answer = held_out, self._answer_in(node, reply)
        self.record |= {f"{key}{suffix}": value for key, value in found.items()}
        return MetricRecord(own)

    def _answer_in(self, node: Node, reply: Message | None) -> Any:
        """Return the answer to the question of an evaluate message; None without a question."""
        request = self.evaluations[node]
        if request.question is None:
            return None
        model = to_layers(request.arrays)
        buffers = self._buffers_of(self.model)
        parameters = {name: array for name, array in model.items() if name not in buffers}
        return read_answer(content_of(reply), request.question.answer, model, parameters)

    def _read(self, node: Node, reply: Message | None, info: Mapping[str, Any]) -> ClientUpdate:
        if reply is not None and reply.has_content():
            self.record["bytes-received"] += sum(map(count_bytes, _arrays_in(reply)))
            if self.keys.arrays != protocol.ARRAYS and self.keys.arrays in reply.content:
                reply.content[protocol.ARRAYS] = reply.content.pop(self.keys.arrays)
        request = self.requests[node]
        model = self.model if request.arrays is self.arrays else to_layers(request.arrays)
        buffers = self._buffers_of(self.model)
        schedule = self.schedules.get(node.role)
        update, entry = read_update(reply, node, request, model, buffers, self.max_norm, schedule, info)
        if node.is_target:
            self.record["target"] = entry
        else:
            self.record["sources"][node.domain] = entry
        return update


@contextmanager
def readable() -> Iterator[None]:
    """Turn any exception while reading a reply into a `BadReplyError`, since a node may send anything."""
    try:
        yield
    except BadReplyError:
        raise
    except Exception as error:
        raise BadReplyError(f"it cannot be read: {error!r}") from error


def release(reply: Message | None) -> None:
    """Free a reply's arrays at once; the message itself is part of cycles, so Python frees it later."""
    if reply is not None and reply.has_content():
        for record in _arrays_in(reply):
            entries_of(record).clear()


def _means(entries: Sequence[Record]) -> dict[str, MetricRecordValues]:
    """Return the means, by examples, of the nodes' own metrics, in exact sums, which never overflow."""
    found = dict[str, list[tuple[float, int]]]()
    for entry in entries:
        for name, value in entry.get("metrics", {}).items():
            found.setdefault(name, []).append((value, entry["examples"]))
    return {
        name: float(sum(Fraction(value) * examples for value, examples in pairs) / sum(n for _, n in pairs))
        for name, pairs in found.items()
    }


def _arrays_in(reply: Message) -> list[ArrayRecord]:
    return [record for record in reply.content.values() if isinstance(record, ArrayRecord)]
