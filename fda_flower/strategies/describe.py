"""Describe: no training; sites say of their rows what tells whether they are alike."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from flwr.app import ArrayRecord

from fda_flower.aggregation import Columns, Layers, bins, describing, widths_of
from fda_flower.aggregation.apart import Said
from fda_flower.aggregation.bins import Counts
from fda_flower.aggregation.columns import LIMBS
from fda_flower.aggregation.describing import Statistics, Totals, pooled
from fda_flower.errors import ConfigError
from fda_flower.records.alike import DESCRIBED, MEASURED, Alike
from fda_flower.records.record import Record
from fda_flower.strategies.base import (
    Aggregated,
    ClientUpdate,
    DomainAdaptationStrategy,
    Node,
    Round,
    Sources,
)
from fda_flower.strategies.columns import count_columns
from fda_flower.strategies.replies import BadReplyError
from fda_flower.strategies.round import readable
from fda_flower.strategies.secure_sums import SecureSum
from fda_flower.wire import private, protocol
from fda_flower.wire.asked.describe import CompareWithRest, CountRows, DescribeRows, MaskStatistics
from fda_flower.wire.protocol import TrainRequest, to_record
from fda_flower.wire.questions import Question
from fda_flower.wire.secure_sums import FEWEST, KEYS, MOST

Read = TypeVar("Read")

SEVERAL = ("multilabel", "survival")
"""The tasks with a share of units for each label, or of events by each horizon; a regression has none."""

ALL, REST = "all sites", "the others"
"""Names in the record of a run with masked sums."""


class Describe(DomainAdaptationStrategy):
    """Statistics of the sites before training: how alike they are, and whether a column is in another unit.

    Nobody trains, and the model is unchanged. Each node, whatever role it reports, first says the numbers
    of its rows, classes and missing values, and each column's mean and deviation; then, given these over all
    sites, how many of its patients lie in a few bins. Counts are multiples of the site's rule ``min-cell``.

    A round's record has ``described``, the content of ``describe.json``: what each site says, and a sentence
    on each site and the target, or on each pair of sites where every site is a target. No sentence says whom
    to take: on tables no distance tells who helps.

    Parameters
    ----------
    secure : bool
        Whether sites mask what they say, so that the server sees only totals; see
        `fda_flower.wire.secure_sums`. Each site then compares itself with the rest, in its own log.
    report : {"full", "none"}
        With masks: whether a site also sends the distances of its columns from the rest.
    """

    questions: ClassVar[tuple[type[Question], ...]] = (
        DescribeRows,
        CountRows,
        MaskStatistics,
        CompareWithRest,
    )
    trains = frozenset({"source"})
    has_target: ClassVar[bool] = False
    asks_again = True
    learns_from_sources = False
    without_patients = "but statistics have no noise"
    needs_all_sources = "compares all sites in one round"
    refused_buffers: ClassVar = {"target": "the model has no statistics"}

    secure: bool = False
    report: Literal["full", "none"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        asks = protocol.MASKED_SUMS if self.secure else protocol.OPEN_SUMS
        self.nodes.asks = dict.fromkeys(("source", "target"), asks)
        if self.secure:
            private.check([private.MASKS])

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options: sums are either open or masked."""
        return self.questions[2:] if self.secure else self.questions[:2]

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if masks are for features of images, or for too few or many sites."""
        nodes = list(nodes)
        if self.secure and not has_tables(nodes):
            why = "secure is true, but masked statistics are of a table's columns"
            raise ConfigError(why, thing="secure", value=True, remedy="leave it out, or describe a table")
        if self.secure and not FEWEST <= len(nodes) <= MOST:
            needed = f"masked sums need {FEWEST} to {MOST}"
            why = f"secure is true, but {len(nodes)} sites are connected, and {needed}"
            raise ConfigError(
                why, thing="secure", value=len(nodes), remedy="leave it out, or wait for more sites"
            )

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request a site's statistics, or its keys."""
        if self.secure:
            return TrainRequest(round.arrays, round.config, question=self._masked(round, "moments"))
        return _without_model(round, DescribeRows(classes=len(names_of_classes(round.nodes))))

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Compare the sites; the model is unchanged."""
        nodes = [node for node in round.nodes if node.domain in sources]
        record = (
            self._of_totals(round, nodes, sources) if self.secure else self._of_sites(round, nodes, sources)
        )
        return Aggregated(round.model, record={DESCRIBED: record})

    def _of_sites(self, round: Round, nodes: Collection[Node], sources: Sources) -> Record:
        form = form_of(nodes, round.model)

        def first(answer: Any) -> Statistics:
            if len(answer.horizons) not in (0, form[1]):
                raise ValueError(f"it has {len(answer.horizons)} horizons, not {form[1]}")
            numbers = answer.rows, answer.units, answer.cell
            return Statistics.from_arrays(*numbers, answer.counts, answer.moments, form)

        sites = _read(round, sources, first)
        if len(sites) < 2:
            raise BadReplyError(f"{len(sites)} sites have usable statistics, and a comparison needs two")
        common, counts = pooled(sites), dict[str, Counts]()
        if has_tables(nodes):
            round.columns = sent(common)
            present = [node for node in nodes if node.domain in sites]
            question = _without_model(round, CountRows(classes=form[1]))
            _, replied = round.exchange(dict.fromkeys(present, question))
            counts = _read(round, replied, lambda each: Counts.from_arrays(each.counts, each.numbers, form))
        said: dict[str, Said] = {name: (site, counts.get(name)) for name, site in sites.items()}
        horizons = min(sources[name].answer.horizons for name in sites)
        return self._alike(said, common, nodes, [f"event by {each:g}" for each in horizons]).to_record()

    def _of_totals(self, round: Round, nodes: Collection[Node], sources: Sources) -> Record:
        """Return the record of masked sums: the totals, and what the sites tell of themselves."""
        form = form_of(nodes, round.model)
        words, updates = self._total(round, sources, "moments", form)
        with readable():
            total = Totals.of(words, form).statistics(1)
        common = Columns(total.means, total.deviations)
        round.columns = sent(common)
        request = TrainRequest(round.arrays, round.config, question=self._masked(round, "counts"))
        active = {node: request for node in nodes if node.domain in updates}
        _, replied = round.exchange(active)
        counted, _ = self._total(round, replied, "counts", form)
        with readable():
            counts = Counts.from_words(counted, form)
        record = self._alike({ALL: (total, counts)}, common, nodes).to_record() | {"said": len(updates)}
        del record["sites"][ALL]["min-cell"]
        compare = CompareWithRest(
            classes=form[1], totals={"moments": words, "counts": counted}, report=self.report
        )
        _, replied = round.exchange(dict.fromkeys(active, _without_model(round, compare)))
        names = names_of_columns(nodes)
        for name, update in replied.items():
            if update.answer.distances is not None:
                distances = update.answer.distances["distances"].tolist()
                far = dict(zip(names, distances, strict=True))
                record["pairs"].append({"sites": [name, REST], "distances": far})
        return record

    def _total(
        self, round: Round, replied: Sources, over: Literal["moments", "counts"], form: tuple[int, int]
    ) -> tuple[Any, Mapping[str, ClientUpdate]]:
        size = {"moments": describing, "counts": bins}[over].size_in_words(form)
        question = self._masked(round, over)
        return SecureSum(round, size, self.min_sources + 1, question=question, limbs=LIMBS).total(replied)

    def _masked(self, round: Round, over: Literal["moments", "counts"]) -> MaskStatistics:
        return MaskStatistics(stage=KEYS, over=over, classes=len(names_of_classes(round.nodes)))

    def _alike(
        self,
        said: Mapping[str, Said],
        common: Columns,
        nodes: Collection[Node],
        classes: Sequence[str] = (),
    ) -> Alike:
        names = names_of_columns(nodes) if has_tables(nodes) else []
        several = any(node.task in SEVERAL for node in nodes)
        return Alike(said, common, names, classes or names_of_classes(nodes), self.target, several)

    def conclusion(self, record: Record) -> list[str]:
        """Return what the output says of itself, and how help is measured."""
        described = record.get(DESCRIBED)
        return [] if described is None else [*described["not-claimed"], MEASURED]


def sent(common: Columns) -> ArrayRecord:
    """Return the record of a message with the means of all sites; 0 where none says any."""
    return to_record({name: np.nan_to_num(array) for name, array in common.to_arrays().items()})


def _without_model(round: Round, question: Question) -> TrainRequest:
    return TrainRequest(ArrayRecord(), round.config, question=question)


def _read(round: Round, replies: Sources, read: Callable[[Any], Read]) -> dict[str, Read]:
    """Return what replies say, by domain; drop the ones that cannot be used."""
    said, out = dict[str, Read](), dict[str, str]()
    for name, update in replies.items():
        try:
            with readable():
                said[name] = read(update.answer)
        except BadReplyError as error:
            out[name] = str(error)
    round.leave_out(out)
    return said


def form_of(nodes: Collection[Node], model: Layers) -> tuple[int, int]:
    """Return the numbers of columns, or of a network's features, and of classes; all nodes share them."""
    columns = count_columns(nodes) if has_tables(nodes) else sum(widths_of(model))
    return columns, len(names_of_classes(nodes))


def has_tables(nodes: Collection[Node]) -> bool:
    """Return whether the nodes have tables, whose columns have names and bins."""
    return all(node.has_table for node in nodes)


def names_of_columns(nodes: Iterable[Node]) -> list[str]:
    """Return the names of the columns, or their numbers."""
    first = next(iter(nodes))
    names = first.info.get(protocol.FEATURES) or ()
    return [str(name) for name in names] or [f"column {j + 1}" for j in range(count_columns([first]))]


def names_of_classes(nodes: Iterable[Node]) -> list[str]:
    """Return the names of the classes or labels, or their numbers; none of another task."""
    first = next(iter(nodes))
    if first.task == "regression":
        return []
    names = first.info.get(protocol.CLASS_NAMES) or range(int(first.info.get("classes", 0)))
    return [str(name) for name in names]
