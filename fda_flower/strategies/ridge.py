"""Ridge: in one round, a linear head in closed form from sums of the sources and the target's own rows.

Where every site is a target, each subtracts its own sums from the total, and keeps its head.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fda_flower.aggregation import (
    HEADS,
    LEAST_LABELS,
    CentredSums,
    Columns,
    Layers,
    Paths,
    PrivateSums,
    Sums,
    by_kind,
    check_deviation,
    head_in,
    paths_of,
    shape_of_head,
    widths_of,
    with_head,
    with_kinds,
)
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.words import counted
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Round, Sources
from fda_flower.strategies.benefit import UNITS, benefit_of_sources, units_of
from fda_flower.strategies.columns import in_common_columns
from fda_flower.strategies.features import OnFeatures
from fda_flower.strategies.replies import BadReplyError
from fda_flower.strategies.secure_sums import SecureSum
from fda_flower.wire import protocol
from fda_flower.wire.asked.ridge import FitHead, HeadFitted, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import TrainRequest, to_layers
from fda_flower.wire.questions import Question
from fda_flower.wire.secure_sums import FEWEST, KEYS, MOST, decode

RIDGE, SHARE, WEIGHTS = "ridge", "share", "weights"

FEWEST_LABELS = "fewest-labels"
"""Entries of the record."""

WIDEST = 8192
"""Largest number of features; with more, a source's sums would take hundreds of megabytes."""

ENOUGH = 3
"""Labels per class from which leaving one out measures the sources' benefit reliably."""

Array = NDArray[np.float64]

Form = tuple[int, int]
"""``d``, the length of a row, and ``C``, the number of outputs."""


class Ridge(OnFeatures):
    """One linear head: an average of ridge regressions between the sources' solution and the target's own.

    The run's model is a linear layer on rows of unit length. Each source sends sums over its rows, without
    training. The server adds them up and solves for the sources' head ``W_S``. The target receives ``W_S``
    and the sum ``Σ G_i``, and replies with its head, the average of the heads on two paths from ``W_S``, each
    weighed by its exact leave-one-out error on the target's labels; see `fda_flower.aggregation.fit_ridge`.
    The head is scaled so that the softmax of its outputs is calibrated. One round suffices: another gives the
    same result.

    With ``unlabelled`` the target fits its head a second time, to its samples without labels, as if the first
    fit's probabilities were their labels, and averages both fits by their likelihood. A model may have
    several kinds of rows, such as the features of two networks: sources send sums over each, and the target
    averages the kinds' outputs; see `fda_flower.aggregation.fit_kinds`.

    A row of a table is its columns, which each site standardises. Sources also send their columns' means and
    deviations, and the server moves all sums to the common ones; see `fda_flower.aggregation.Columns`.

    A round's record has ``ridge``: ``share``, the share of ``W_S`` in the heads that shrink it;
    ``source-weight``, the weight of the sources' rows in the heads that pool; the ``weights`` of all heads;
    the ``temperature``, a factor on the outputs; ``unlabelled``, the number of samples without labels, and
    ``unlabelled-share``, the weight of the fit to them; the weights of several ``kinds``; and the
    leave-one-out accuracy (for a regression R²) on the target's labels: ``held-out``, and without the sources
    or the target ``held-out-target`` and ``held-out-sources``.

    Parameters
    ----------
    paths : {"both", "shrunk", "target", "sources", "pooled"}
        Which heads are averaged. With ``shrunk``, the first path, the target receives only ``W_S``, which is
        small. The others are alternatives: the target's own ridge regressions; ``W_S``; and the ridge
        regression of all rows together (AFL, Fed3R).
    per_source : bool
        Whether the first path also has a share of each source's own head. The target sees these heads. It
        takes one kind of rows.
    unlabelled : bool
        Whether the target fits its head to its samples without labels, too.
    secure : bool
        Whether sources mask their sums, so that the server sees only totals over at least two sources; see
        `fda_flower.wire.secure_sums`. It needs three sources, and of ``n`` at least ``⌈2n/3⌉ + 1`` to stay.
    """

    questions: ClassVar[tuple[type[Question], ...]] = (SumRows, MaskSums, FitHead)
    trains = frozenset({"source"})
    asks_again = True
    refused_buffers: ClassVar = {"target": "the model has no statistics"}

    paths: Paths = "both"
    per_source: bool = False
    unlabelled: bool = True
    secure: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        roles = self.trains if self.has_target else {"source", "target"}
        asks = protocol.MASKED_SUMS if self.secure else protocol.OPEN_SUMS
        self.roster.asks = dict.fromkeys(sorted(roles), asks)
        if self.secure and self.per_source:
            why = "but with secure nobody sees a source's own head"
            raise invalid("per_source", self.per_source, "leave one of the two out", why)
        if self.secure and self.warmup_rounds:
            why = "in which the server sees each source's model, which secure is to prevent"
            raise invalid("warmup_rounds", self.warmup_rounds, "leave one of the two out", why)

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options: sums are either open or masked."""
        return tuple(each for each in self.questions if each is not (SumRows if self.secure else MaskSums))

    @property
    def without_patients(self) -> str | None:  # type: ignore[override]
        """Why noise cannot protect each patient: masked sums get none, and *pooled* would ignore it."""
        if self.secure:
            return "but with secure sites mask their sums, to which no noise is added"
        if self.paths == "pooled":
            return "but the paths 'pooled' use the sources' sums directly and ignore noise"
        return None

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if sums are masked for too few or many sources, or the target has too few."""
        nodes = list(nodes)
        sources = sum(not node.is_target for node in nodes)
        if self.secure and not FEWEST <= sources <= MOST:
            why = f"but {sources} sources are connected, and masked sums need {FEWEST} to {MOST}"
            remedy = "leave it out, or wait for more sources (wait_for)"
            raise ConfigError(f"secure is true, {why}", thing="secure", value=sources, remedy=remedy)
        for node in nodes:
            self._check_units(node)

    def _check_units(self, node: Node) -> None:
        """Raise a `ConfigError` if the target's labels are of too few patients to leave one out."""
        units = node.info.get(protocol.GROUPS)
        if node.is_target and isinstance(units, int) and units < LEAST_LABELS:
            why = f"'{node.domain}' has labels of {counted(units, 'patient')}, too few to leave one out"
            remedy = f"give those of at least {LEAST_LABELS}"
            raise ConfigError(why, thing="groups", value=units, remedy=remedy)

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if the target has too few labels to leave one out."""
        if role == "target" and samples < LEAST_LABELS:
            why = f"{who} has {samples} labelled samples, too few to leave one out"
            raise ConfigError(why, thing=who, value=samples, remedy=f"give at least {LEAST_LABELS}")

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Begin the run; raise a `ConfigError` if the model is not linear or has too many inputs.

        `per_source` takes one kind of rows.
        """
        super().begin(arrays, done)
        widths = widths_of(to_layers(arrays))
        if self.per_source and len(widths) > 1:
            why = f"but the model has {len(widths)} kinds of rows"
            raise invalid("per_source", True, "choose a model of one network", why)
        if (features := max(widths)) > WIDEST:
            megabytes = 2 * (features + 1) * (features + 2) / 1e6
            what = f"a sample has {features:,} numbers, so that a source would send {megabytes:,.0f} MB"
            remedy = "choose a pretrained model, which has fewer features"
            raise ConfigError(what, thing="model", value=features, remedy=remedy)

    def takes_noise(self, round: Round) -> bool:
        """Return whether sums with noise are of use: for classes, unless rows are only pooled."""
        regression = round.target is not None and bool(round.target.info.get(protocol.REGRESSION))
        return self.paths != "pooled" and not regression

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request sums or keys from a source; the target's turn is later."""
        question: Question = MaskSums(stage=KEYS)
        if not self.secure:
            question = SumRows(noise=self.takes_noise(round))
        return TrainRequest(round.arrays, round.config, question=question)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the sums up, solve, and let the target fit its head."""
        node = round.target
        if node is None:
            raise BadReplyError("the target is not connected")
        try:
            question = self._solve(round, sources, scaled=bool(node.info.get(protocol.REGRESSION)))
        except ValueError as error:
            raise BadReplyError(str(error)) from error
        request = TrainRequest(round.arrays, round.config, question=question, with_model=True)
        target, _ = round.exchange({node: request})
        if target is None:
            raise BadReplyError("no usable reply of the target")
        self._note(round, question.paths, target.answer)
        return Aggregated(with_head(round.model, *head_in(target.model)))

    def _named(self, round: Round) -> list[str]:
        """Return the sources whose own heads the target receives."""
        return list(round.record["sources"]) if self.per_source else []

    def _solve(self, round: Round, sources: Sources, scaled: bool) -> FitHead:
        """Return the question to the target; drop sources whose sums are unusable.

        With `scaled` labels it has their mean and deviation. The path *pooled* uses the sums directly, so
        with noise only the path *shrunk* remains.
        """
        forms, noise = forms_of(round.model), self.takes_noise(round)
        sources, columns = self._in_common_columns(round, sources, forms)
        add_up = self._secure_totals if self.secure else partial(self._totals, noise=noise)
        totals, solutions = add_up(round, sources, forms), dict[str, Array]()
        if isinstance(totals[0], CentredSums):
            paths: Paths = "shrunk" if self.paths == "both" else self.paths
            starts = [{"solution": totals[0].solution()}]
            for domain in self._named(round):
                own = read_sums(sources, forms, domain, noise)[0]
                solutions[domain] = CentredSums.total([own]).solution()
        else:
            paths, starts = (
                self.paths,
                [total.start("pooled" in paths_of(self.paths), scaled) for total in totals],
            )
            for domain in self._named(round):
                single = _ready(read_open(sources, forms, domain)[0], forms[0])
                solutions[domain] = (single.scaled(*totals[0].scale) if scaled else single).solution()
        return FitHead(
            paths=paths,
            start=with_kinds([in_float32(start) for start in starts]),
            solutions=in_float32(solutions) if solutions else None,
            columns=columns.to_arrays() if columns else None,
            unlabelled=self.unlabelled,
        )

    def _in_common_columns(
        self, round: Round, sources: Sources, forms: Sequence[Form]
    ) -> tuple[Sources, Columns | None]:
        """Return `in_common_columns`; drop the sources that its checks name."""
        usable = partial(self.usable, round)
        return in_common_columns(sources, lambda domain: read_open(sources, forms, domain), usable)

    def _totals(
        self, round: Round, sources: Sources, forms: Sequence[Form], noise: bool
    ) -> list[Sums] | list[CentredSums]:
        """Return the total of the sources' sums over each kind of rows; with noise over the first alone."""
        domains = self.usable(round, list(sources), partial(read_sums, sources, forms, noise=noise))
        if any(is_private(sources, domain) for domain in domains):
            # Read again each time: all sums as float64 would be too much memory.
            first = partial(_first_sums, sources, forms)
            read = ((domain, first(domain)) for domain in domains)
            claimed = {domain: sums.deviation for domain, sums in read if isinstance(sums, PrivateSums)}
            believed = self.usable(round, domains, partial(_check_deviation, claimed))
            return [CentredSums.total(map(first, believed))]
        try:
            return _added(sources, forms, domains)
        except ValueError:
            most = len(domains)
            domains = self.usable(round, domains, lambda domain: _check_each(sources, forms, domain, most))
            return _added(sources, forms, domains)

    def _secure_totals(self, round: Round, sources: Sources, forms: Sequence[Form]) -> list[Sums]:
        """Return the total of masked sums over each kind of rows."""
        totals, _ = self.unmasked(round, sources, forms)
        return [_ready(total, form) for total, form in zip(totals, forms, strict=True)]

    def unmasked(self, round: Round, sources: Sources, forms: Sequence[Form]) -> tuple[list[Sums], list[str]]:
        """Request masked sums; return their totals, without seeing any of them, and the domains in them."""
        sizes = [len(Sums.zero(*form).vector) for form in forms]
        words, updates = SecureSum(round, sum(sizes), self.min_sources).total(sources)
        parts = np.split(decode(words), np.cumsum(sizes)[:-1])
        totals = [Sums.from_vector(part, *form) for part, form in zip(parts, forms, strict=True)]
        rows = sum(each.examples for each in updates.values())
        for total in totals:
            if total.rows != rows:
                raise ValueError(
                    f"the sums are of {total.rows:g} rows, but the sources report {rows} examples"
                )
        return totals, list(updates)

    def usable(self, round: Round, domains: list[str], check: Callable[[str], object]) -> list[str]:
        """Return the domains whose sums pass a check, and drop the others; raise if too few are left."""
        usable = []
        for domain in domains:
            try:
                check(domain)
                usable.append(domain)
            except ValueError as error:
                del round.record["sources"][domain]
                round.drop(domain, BadReplyError(str(error)))
        least = self.min_sources + (not self.has_target)
        if len(usable) < least:
            raise BadReplyError(f"{len(usable)} usable replies of sources, at least {least} needed")
        return usable

    def _note(self, round: Round, paths: Paths, answer: HeadFitted) -> None:
        """Write the target's numbers into the record."""
        numbers = {key: value for key, value in vars(answer).items() if isinstance(value, int | float)}
        entry: Record = {key.replace("_", "-"): value for key, value in numbers.items()}
        if answer.kinds:
            entry["kinds"] = list(answer.kinds)
        weights = {name: answer.weights.get(name) for name in names_of_heads(paths)}
        round.record[RIDGE] = {"paths": paths, **entry, **units_of(round.target), WEIGHTS: weights}
        if self.secure:
            round.record[RIDGE]["secure"] = True
        for domain in self._named(round):
            round.record["sources"][domain][SHARE] = (answer.shares or {}).get(domain)

    def conclusion(self, record: Record) -> list[str]:
        """Return a line on the sources' benefit, by leave-one-out on the target's labels."""
        entry = record.get(RIDGE, {})
        lines = benefit_of_sources(entry, "r2" in record)
        if lines and entry.get(FEWEST_LABELS, ENOUGH) < ENOUGH:
            what = "patients" if UNITS in entry else "labels"
            why = f"since a class has fewer than {ENOUGH} {what} and each is held out"
            return [f"{lines[0]}; that is optimistic, {why}"]
        return lines


def forms_of(model: Layers) -> list[Form]:
    """Return the form of each kind of rows of a linear model."""
    outputs, _ = shape_of_head(model)
    return [(width + 1, outputs) for width in widths_of(model)]


def names_of_heads(paths: Paths) -> list[str]:
    """Return the names of the averaged heads in order."""
    return [f"{path}-{strength:g}" for path, strength in HEADS[paths]]


def is_private(sources: Sources, domain: str) -> bool:
    """Whether the sums in a source's reply protect patients."""
    return "centre" in sources[domain].answer.sums


def read_open(sources: Sources, forms: Sequence[Form], domain: str) -> list[Sums]:
    """Return the sums without noise in a source's reply; raise a `ValueError` if they are unusable."""
    if is_private(sources, domain):
        raise ValueError("its sums have noise, which takes classes, one target, and paths but 'pooled'")
    update = sources[domain]
    kinds = by_kind(update.answer.sums)
    if len(kinds) != len(forms):
        raise ValueError(f"its sums are over {len(kinds)} kinds of rows, not {len(forms)}")
    sums = [Sums.from_arrays(arrays, *form) for arrays, form in zip(kinds, forms, strict=True)]
    for each in sums:
        if each.rows != np.float32(update.examples):
            reports = f"but it reports {update.examples} examples"
            raise ValueError(f"its sums are of {each.rows:g} rows, {reports}")
    return sums


def read_sums(
    sources: Sources, forms: Sequence[Form], domain: str, noise: bool
) -> list[Sums] | list[PrivateSums]:
    """Return the sums in a source's reply, with `noise` also those that protect patients.

    The latter are over the first kind of rows alone.
    """
    if not (noise and is_private(sources, domain)):
        return read_open(sources, forms, domain)
    update = sources[domain]
    sums = PrivateSums.from_arrays(update.answer.sums, *forms[0])
    if sums.rows > update.examples:  # patients, each with one row or more
        raise ValueError(f"its sums are of {sums.rows:g} patients, but it reports {update.examples} examples")
    return [sums]


def _first_sums(sources: Sources, forms: Sequence[Form], domain: str) -> Sums | PrivateSums:
    """Return a source's sums over the first kind of rows, with or without noise."""
    return read_sums(sources, forms, domain, noise=True)[0]


def _check_deviation(claimed: Mapping[str, float], domain: str) -> None:
    """Raise a `ValueError` if a source's noise, if it has any, is far above most sources'."""
    if domain in claimed:
        check_deviation(claimed[domain], claimed.values())


def _added(sources: Sources, forms: Sequence[Form], domains: Sequence[str]) -> list[Sums]:
    """Return the total over each kind of rows; raise a `ValueError` if one is unusable."""
    read = [read_open(sources, forms, domain) for domain in domains]
    return [_ready(Sums.total((each[kind] for each in read), *form), form) for kind, form in enumerate(forms)]


def _check_each(sources: Sources, forms: Sequence[Form], domain: str, sites: int) -> None:
    """Raise a `ValueError` unless `sites` such sums together can be of any rows."""
    for sums in read_open(sources, forms, domain):
        sums.check_definite(sites)


def in_float32(arrays: Mapping[str, Array]) -> Layers:
    """Return arrays as they travel."""
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _ready(total: Sums, form: Form) -> Sums:
    """Return the sums in the form that server and target solve with; raise a `ValueError` if unusable."""
    rounded = Sums.from_arrays(total.to_arrays(), *form)
    rounded.solution()
    return rounded
