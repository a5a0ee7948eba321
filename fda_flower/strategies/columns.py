"""The common columns of a run on tables: before the first round, the sources say their means and deviations.

The strategy keeps the mean and deviation over the rows of all sources in its state, under `COLUMNS`, and
sends them with every message to a node of a table. A source that does not say its own, since its rules forbid
it or its client is a project's own, still receives the others'. One whose columns are out of line with the
others' takes no part in the run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.common import log

from fda_flower.aggregation import Columns, Layers, Moments, columns_out_of_line
from fda_flower.aggregation.columns import LIMBS, count_words
from fda_flower.strategies.method import MethodHooks
from fda_flower.strategies.nodes import Node, match_replies
from fda_flower.strategies.replies import BadReplyError, content_of
from fda_flower.strategies.round import Round, readable
from fda_flower.strategies.secure_sums import SecureSum
from fda_flower.wire import protocol
from fda_flower.wire.asked.columns import ColumnsDescribed, DescribeColumns
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import COLUMNS, TrainRequest, to_record
from fda_flower.wire.secure_sums import KEYS

OUT = "out-of-line/"
"""Prefix of the arrays of `COLUMNS` with the reasons why sources take no part, as bytes."""

WITHOUT = (
    "columns are standardised without the rows (where all sites kept to their own mean and deviation, a "
    "logistic regression of hospitals' tables lost 2.5 points of accuracy)"
)
"""Words of the log before the sources that do not say their columns."""


class CommonColumns(MethodHooks):
    """The part of a strategy that keeps the common columns, in its state."""

    @property
    def excluded(self) -> dict[str, str]:
        """The sources that take no part in the run, with the reason: their columns are out of line."""
        return excluded(self.state.get(COLUMNS))

    def agree_on_columns(self, round: Round, nodes: Sequence[Node]) -> None:
        """Let the sources of a run on tables say their columns in its first round, if it wants them."""
        known = not round.is_first or COLUMNS in self.state
        if known or self.columns == "own" or not self.learns_from_sources:
            return
        try:
            state = agreed(round, nodes, self.masks_columns)
        except BadReplyError as error:
            log(WARNING, "There are no common columns: %s", error)
            return
        if state:
            self.state[COLUMNS] = to_record(state)
            round.columns = sent_columns(self.state[COLUMNS])
            round.nodes = [node for node in round.nodes if node.domain not in self.excluded]


def count_columns(nodes: Iterable[Node]) -> int:
    """Return the number of columns, which all nodes with a table share; 0 without a table."""
    return next((int(node.info[COLUMNS]) for node in nodes if node.info.get(COLUMNS)), 0)


def agreed(round: Round, nodes: Sequence[Node], masked: bool = False) -> Layers:
    """Return the state `COLUMNS` from the answers of the sources among the nodes; empty without answers.

    Sources that are out of line, or lost within masked sums, take no part in the run. Masked sums hide who is
    out of line. Raises a `BadReplyError` if too few answer for a mask, or what is unmasked is no sum of rows.
    """
    target, features = [node for node in nodes if node.is_target], count_columns(nodes)
    sources = [node for node in nodes if not node.is_target]
    able = [node for node in sources if node.info.get(COLUMNS)]
    if not features or not able or not all(node.info.get(COLUMNS) for node in target):
        return {}
    if masked:
        columns, out = _masked(round, able, features)
        return _state(columns, out)
    silent = {node.domain: "it reports no columns" for node in sources if node not in able}
    said, out = dict[str, tuple[Columns, int]](), dict[str, str]()
    for node, reply in _described(round, able):
        try:
            content = content_of(reply)
        except BadReplyError as error:
            silent[node.domain] = str(error)
            continue
        try:
            with readable():
                answer = ColumnsDescribed.read(content)
                said[node.domain] = Columns.from_arrays(answer.columns, features), answer.rows
        except BadReplyError as error:
            out[node.domain] = str(error)
    round.warn(silent.items(), f"{WITHOUT} of")
    if not said:
        return {}
    out |= columns_out_of_line({domain: said[domain][0] for domain in sorted(said)})
    if said.keys() <= out.keys():
        raise BadReplyError(f"no source's are in line with the others': {out[min(said)]}")
    total = Moments.total(Moments.of(*said[domain]) for domain in said if domain not in out)
    round.record[COLUMNS] = sorted(said.keys() - out)
    return _state(total.columns, out)


def _state(columns: Columns, out: Mapping[str, str]) -> Layers:
    reasons = {f"{OUT}{domain}": np.frombuffer(reason.encode(), np.uint8) for domain, reason in out.items()}
    return {**columns.to_arrays(), **reasons}


def _described(round: Round, nodes: Iterable[Node]) -> Iterator[tuple[Node, Message | None]]:
    """Ask nodes for their columns, and yield each with its reply."""
    question = TrainRequest(ArrayRecord(), round.config, question=DescribeColumns())
    replies = round.send(round.messages(dict.fromkeys(nodes, question), protocol.TRAIN))
    return match_replies(round.sent, replies)


def _masked(round: Round, nodes: Sequence[Node], features: int) -> tuple[Columns, dict[str, str]]:
    """Return the columns of masked sums, and the sources that are not in them."""
    question = MaskSums(stage=KEYS, over="columns")
    keys = TrainRequest(round.arrays, round.config, question=question)
    _, replied = round.exchange(dict.fromkeys(nodes, keys))
    secure = SecureSum(round, count_words(features), question=question, limbs=LIMBS)
    words, updates = secure.total(replied)
    with readable():
        total = Moments.from_words(words)
        if total.rows != (rows := sum(update.examples for update in updates.values())):
            raise ValueError(f"the masked sums are of {total.rows:g} rows, but the sources report {rows}")
        columns = Columns.from_arrays(total.columns.to_arrays(), features)
    reasons = {each["domain"]: each["reason"] for each in round.record["dropped"]}
    round.record |= {"sources": {}, "dropped": [], COLUMNS: sorted(updates)}
    why = "it is not in the masked sum over columns, and a second sum needs the same sources"
    out = {
        node.domain: f"{why}: {reasons.get(node.domain, 'it was lost')}"
        for node in nodes
        if node.domain not in updates
    }
    return columns, out


def excluded(state: ArrayRecord | None) -> dict[str, str]:
    """Return the sources that take no part in the run, and why."""
    arrays = {} if state is None else protocol.to_layers(state)
    return {
        name.removeprefix(OUT): array.tobytes().decode()
        for name, array in arrays.items()
        if name.startswith(OUT)
    }


def sent_columns(state: ArrayRecord | None) -> ArrayRecord | None:
    """Return the record of a message with the common columns; None without any."""
    return None if state is None else ArrayRecord({name: state[name] for name in ("means", "deviations")})
