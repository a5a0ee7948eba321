"""The replies of one round become updates; what cannot be used is dropped, logged and recorded."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Literal

from flwr.app import Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.common.logger import log

from fda_flower.aggregation import Layers, Update
from fda_flower.errors import ConfigError
from fda_flower.records import Record
from fda_flower.strategies.exchange import Asked, answers
from fda_flower.strategies.node import Node
from fda_flower.strategies.replies import BadReplyError, content_of, read_number, read_update, release

OnLargeUpdate = Literal["clip", "drop"]

ReadExtra = Callable[[RecordDict, Node, Update, Record], None]


@dataclass(frozen=True)
class NormLimit:
    """A limit for ``‖Δ‖``, the norm of an update.

    Attributes
    ----------
    max_norm : float, optional
        Default: none.
    on_large_update : {"clip", "drop"}
        Scale a longer update down to the limit, or drop its reply.

    Raises
    ------
    ConfigError
        If `max_norm` is not above 0, or `on_large_update` is another word.
    """

    max_norm: float | None = None
    on_large_update: OnLargeUpdate = "clip"

    def __post_init__(self) -> None:
        if self.max_norm is not None and not self.max_norm > 0:
            raise ConfigError(f"max_update_norm is {self.max_norm}, it must be above 0")
        if self.on_large_update not in ("clip", "drop"):
            raise ConfigError(f"on_large_update is '{self.on_large_update}': choose clip or drop")

    def factor(self, update: Update) -> float:
        """By which the update is to be scaled, 1 within the limit; a `BadReplyError` if it is dropped."""
        if self.max_norm is None or (norm := update.norm) <= self.max_norm:
            return 1.0
        if self.on_large_update == "drop":
            raise BadReplyError(f"its update's norm is {norm:.4g}, the limit is {self.max_norm:g}")
        return self.max_norm / norm


@dataclass(frozen=True)
class Collector:
    """Reads the replies to one round's messages.

    Attributes
    ----------
    before : callable
        The model that a node was sent.
    buffers : Collection[str]
        Names of its buffers.
    limit : NormLimit
        Of each update.
    record : dict
        The round's record, which is added to.
    read_extra : callable
        Called with each good reply's content, node, update and entry of the record, before the update is
        scaled; it may refuse the reply by a `BadReplyError`. Then the content's arrays are freed.
    """

    before: Callable[[Node], Layers]
    buffers: Collection[str]
    limit: NormLimit
    record: Record
    read_extra: ReadExtra

    def __call__(
        self, asked: Sequence[Asked], replies: Iterable[Message]
    ) -> tuple[Update | None, dict[str, Update]]:
        """The target's update, if there is a good one, and the sources' by domain, in the order asked."""
        target: Update | None = None
        sources: dict[str, Update] = {}
        for node, reply in answers(asked, replies):
            try:
                update = self._read(node, reply)
            except BadReplyError as error:
                self.record["dropped"].append({"domain": node.domain, "reason": str(error)})
                log(
                    WARNING,
                    "Round %d: dropped the reply of %s: %s",
                    self.record["round"],
                    node.domain,
                    error,
                )
                continue
            finally:
                release(reply)
            if node.is_target:
                target = update
            else:
                sources[node.domain] = update
        return target, sources

    def _read(self, node: Node, reply: Message | None) -> Update:
        if reply is None:
            raise BadReplyError("no reply within the timeout")
        content = content_of(reply)
        self.record["bytes-received"] += sum(
            records.count_bytes() for records in content.array_records.values()
        )
        update = read_update(reply, self.before(node), self.buffers, node.role)
        entry: Record = {
            "domain": node.domain,
            "examples": update.examples,
            "steps": update.steps,
            "train-loss": read_number(content, "train-loss", 0) or None,
        }
        factor = self.limit.factor(update)
        if factor != 1:
            entry["clipped"] = factor
            log(WARNING, "The update of %s is clipped to %.3g of its norm", node.domain, factor)
        self.read_extra(content, node, update, entry)
        if node.is_target:
            self.record["target"] = entry
        else:
            self.record["sources"][node.domain] = entry
        return update if factor == 1 else update.scaled(factor)


def train_metrics(record: Record) -> MetricRecord:
    """What of a round's record Flower's result has: the replies dropped, each source's loss and β."""
    metrics: dict[str, MetricRecordValues] = {"dropped": len(record["dropped"])}
    for domain, entry in record["sources"].items():
        for key in ("train-loss", "beta"):
            if entry.get(key) is not None:
                metrics[f"{key}.{domain}"] = entry[key]
    return MetricRecord(metrics)
