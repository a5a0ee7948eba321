"""Ridge: in one round, a linear head from sums of the sources and the target's own rows."""

from collections.abc import Collection, Iterable
from typing import ClassVar, Literal

from flwr.app import ArrayRecord

from fda_flower.aggregation import (
    LEAST_EVENTS,
    LEAST_LABELS,
    SLOPES,
    Heads,
    head_in,
    names_of_heads,
    names_of_slopes,
    widths_of,
    with_head,
)
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.tasks import NUMBERS
from fda_flower.names.words import counted
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Round, Sources
from fda_flower.strategies.benefit import (
    UNITS,
    benefit_of_sources,
    curve_of_labels,
    judged_by,
    metric_of,
    units_of,
)
from fda_flower.strategies.features import OnFeatures
from fda_flower.strategies.replies import BadReplyError
from fda_flower.strategies.ridge_masked import MaskedSums
from fda_flower.strategies.ridge_noise import NoisySums
from fda_flower.strategies.ridge_sums import OpenSums, asks_centred
from fda_flower.wire import private, protocol
from fda_flower.wire.asked.ridge import FitHead, HeadFitted, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import TrainRequest, to_layers
from fda_flower.wire.questions import Question
from fda_flower.wire.secure_sums import FEWEST, KEYS, MOST

RIDGE, WEIGHTS = "ridge", "weights"
FEWEST_LABELS = "fewest-labels"
LISTS = ("kinds", "horizons")
"""Entries of the record."""

WIDEST = 8192
"""Largest number of features; with more, a source's sums would take hundreds of megabytes."""

FOR_EVENTS = "give it more, or take the sources' layer by --method-option paths=sources"
"""What to do with too few events."""

AUTO: Literal["auto"] = "auto"
"""The default of `paths`."""

WITHOUT_NOISE = ("pooled", "logistic")
"""Values of `paths` whose heads use the sources' sums directly."""

ENOUGH = 3
"""Labels per class from which leaving one out measures the sources' benefit reliably."""


class Ridge(OnFeatures):
    """One linear head: an average of heads between the sources' solution and the target's own.

    The run's model is a linear layer on rows of unit length, for a table on average. Each source sends sums
    over its rows, without training. The server adds them up and solves for the sources' head ``W_S``. The
    target receives ``W_S`` and the sum ``Σ G_i``, and replies with its head, the average of the ridge
    regressions on two paths from ``W_S``, each weighed by its exact leave-one-out error on the target's
    labels; see `fda_flower.aggregation.fit_ridge`. The head is scaled so that the softmax of its outputs is
    calibrated. One round suffices: another gives the same result.

    For the classes of a table the target averages logistic heads instead, which start from ``W_S`` alone and
    are calibrated without a scale; see `fda_flower.aggregation.fit_logistic`.

    With ``unlabelled`` the target fits its head a second time, to its samples without labels, as if the first
    fit's probabilities were their labels, and averages both fits by their likelihood. Logistic heads have no
    such fit. A model may have several kinds of rows, such as the features of two networks: sources send sums
    over each, and the target averages the kinds' outputs; see `fda_flower.aggregation.fit_kinds`.

    Where patients are followed, the sums are around each site's means, and only heads near ``W_S`` are
    averaged, weighed by the number of events; see `fda_flower.aggregation.slopes`.

    A round's record has ``ridge``: ``share``, the share of ``W_S`` in the heads that shrink it, or the weight
    of the logistic heads that start from it; ``source-weight``, the weight of the sources' rows in the heads
    that pool; the ``weights`` of all heads; the ``temperature``, a factor on the outputs; ``unlabelled``, the
    number of samples without labels, and ``unlabelled-share``, the weight of the fit to them; the weights of
    several ``kinds``; for survival the target's ``events`` and the ``horizons``; and the run's metric (in
    ``judged-in``) on the target's held-out labels: ``held-out``, with half of the labels ``held-out-half``,
    and without the sources or the target ``held-out-target`` and ``held-out-sources``.

    Parameters
    ----------
    paths : {"auto", "both", "shrunk", "target", "sources", "pooled", "logistic"}
        Which heads are averaged; ``auto`` is ``logistic`` for the classes of a table, unless sums have noise,
        else ``both``. With ``logistic``, and with ``shrunk``, the first path, the target receives only
        ``W_S``, which is small. The others are alternatives: the target's own ridge regressions; ``W_S``; and
        the ridge regression of all rows together (AFL, Fed3R).
    unlabelled : bool, optional
        Whether the target fits its head to its samples without labels, too. Default: where they are of
        classes; other labels have no such fit.
    secure : bool
        Whether sources mask their sums, so that the server sees only totals over at least two sources; see
        `fda_flower.wire.secure_sums`. It needs three sources, and of ``n`` at least ``⌈2n/3⌉ + 1`` to stay.
    """

    questions: ClassVar[tuple[type[Question], ...]] = (SumRows, MaskSums, FitHead)
    trains = frozenset({"source"})
    asks_again = True
    refused_buffers: ClassVar = {"target": "the model has no statistics"}
    needs_all_sources = "adds up the sums of all sources in one round, and another would forget them"

    paths: Literal["auto", Heads] = AUTO
    unlabelled: bool | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._needs_unlabelled, self.unlabelled = bool(self.unlabelled), self.unlabelled is not False
        roles = self.trains if self.has_target else {"source", "target"}
        asks = protocol.MASKED_SUMS if self.secure else protocol.OPEN_SUMS
        self.nodes.asks = dict.fromkeys(sorted(roles), asks)
        if self.secure:
            private.check([private.MASKS])
        if self.secure and self.warmup_rounds:
            why = "in which the server sees each source's model, which secure is to prevent"
            raise invalid("warmup_rounds", self.warmup_rounds, "leave one of the two out", why)

    @property
    def masks_columns(self) -> bool:  # type: ignore[override]
        """Whether the sums over tables' columns are masked, as all of them."""
        return self.secure

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options: sums are either open or masked."""
        return tuple(each for each in self.questions if each is not (SumRows if self.secure else MaskSums))

    @property
    def without_patients(self) -> str | None:  # type: ignore[override]
        """Why noise cannot protect each patient: masked sums get none, and some heads would ignore it."""
        if self.secure:
            return "but with secure sites mask their sums, to which no noise is added"
        if self.paths in WITHOUT_NOISE:
            return f"but the paths '{self.paths}' use the sources' sums directly and ignore noise"
        return None

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if sums are masked for too few or many sources, or the target has too few."""
        nodes = list(nodes)
        if self.paths not in (AUTO, *SLOPES) and any(node.task == "survival" for node in nodes):
            why = "but for survival all heads stay near the sources"
            raise invalid("paths", self.paths, f"choose one of {', '.join(SLOPES)}", why)
        if self.paths == "logistic" and any(node.task != "classes" for node in nodes):
            why = "but the labels are no classes, as logistic heads have"
            raise invalid("paths", self.paths, "leave it out", why)
        others = [task for node in nodes if (task := node.task) != "classes"]
        if self._needs_unlabelled and others:
            why = f"but the task is {others[0]}, and only classes have a fit to samples without labels"
            raise invalid("unlabelled", "true", "leave it out", why)
        if self._needs_unlabelled and self.heads([node for node in nodes if node.is_target]) == "logistic":
            why = "but logistic heads have no fit to samples without labels"
            raise invalid("unlabelled", "true", "leave it out, or give paths=both", why)
        sources = sum(not node.is_target for node in nodes)
        if self.secure and not FEWEST <= sources <= MOST:
            why = f"but {sources} sources are connected, and masked sums need {FEWEST} to {MOST}"
            remedy = "leave it out, or wait for more sources (wait_for)"
            raise ConfigError(f"secure is true, {why}", thing="secure", value=sources, remedy=remedy)
        for node in nodes:
            self._check_units(node)
            self._check_events(node)

    def _check_units(self, node: Node) -> None:
        """Raise a `ConfigError` if the target's labels are of too few patients to leave one out."""
        units = node.info.get(protocol.GROUPS)
        if node.is_target and isinstance(units, int) and units < LEAST_LABELS:
            why = f"'{node.domain}' has labels of {counted(units, 'patient')}, too few to leave one out"
            remedy = f"give those of at least {LEAST_LABELS}"
            raise ConfigError(why, thing="groups", value=units, remedy=remedy)

    def _check_events(self, node: Node) -> None:
        """Raise a `ConfigError` if too few of the target's patients have the event to weigh its heads."""
        if node.is_target and node.info.get(protocol.FEW_EVENTS) and self.paths != "sources":
            why = (
                f"'{node.domain}' has fewer than {LEAST_EVENTS} events to train on, too few to leave one out"
            )
            raise ConfigError(why, thing="events", value=node.domain, remedy=FOR_EVENTS)

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if the target has too few labels to leave one out."""
        if role == "target" and samples < LEAST_LABELS:
            why = f"{who} has {samples} labelled samples, too few to leave one out"
            raise ConfigError(why, thing=who, value=samples, remedy=f"give at least {LEAST_LABELS}")

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Begin the run; raise a `ConfigError` if the model is not linear or has too many inputs."""
        super().begin(arrays, done)
        widths = widths_of(to_layers(arrays))
        if (features := max(widths)) > WIDEST:
            megabytes = 2 * (features + 1) * (features + 2) / 1e6
            what = f"a sample has {features:,} numbers, so that a source would send {megabytes:,.0f} MB"
            remedy = "choose a model with fewer features, such as a pretrained one, or another method"
            raise ConfigError(what, thing="model", value=features, remedy=remedy)

    def takes_noise(self, round: Round) -> bool:
        """Return whether sums with noise are of use: for classes, unless the heads would ignore it."""
        classes = round.target is None or round.target.task == "classes"
        return self.paths not in WITHOUT_NOISE and classes

    def heads(self, nodes: Collection[Node]) -> Heads:
        """Return which heads the nodes average, each a target."""
        if self.paths != AUTO:
            return self.paths
        suited = all(node.has_table and node.task == "classes" for node in nodes)
        return "logistic" if suited else "both"

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Request sums or keys from a source; the target's turn is later."""
        question: Question = MaskSums(stage=KEYS)
        if not self.secure:
            question = SumRows(noise=self.takes_noise(round), centred=asks_centred([node]))
        return TrainRequest(round.arrays, round.config, question=question)

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Add the sums up, solve, and let the target fit its head."""
        node = round.target
        if node is None:
            raise BadReplyError("the target is not connected")
        try:
            question = self._solve(round, sources, node)
        except ValueError as error:
            raise BadReplyError(str(error)) from error
        request = TrainRequest(round.arrays, round.config, question=question, with_model=True)
        target, _ = round.exchange({node: request})
        if target is None:
            raise BadReplyError("no usable reply of the target")
        self._note(round, question.paths, target.answer)
        return Aggregated(with_head(round.model, *head_in(target.model)))

    def sums(self, round: Round, sources: Sources) -> OpenSums:
        """Return the sums in the sources' replies, open, with noise or masked."""
        if self.secure:
            return MaskedSums(round, sources, self.min_sources)
        kind = NoisySums if self.takes_noise(round) else OpenSums
        return kind(round, sources, self.min_sources + (not self.has_target))

    def _solve(self, round: Round, sources: Sources, target: Node) -> FitHead:
        """Return the question to the target; drop sources whose sums are unusable."""
        sums = self.sums(round, sources)
        paths, start = sums.start(self.heads([target]), scaled=target.task in NUMBERS)
        rest = bool(self.unlabelled) and paths != "logistic"
        return FitHead(paths=paths, start=start, unlabelled=rest, metric=metric_of(self.metric, round.record))

    def _note(self, round: Round, paths: Heads, answer: HeadFitted) -> None:
        """Write the target's numbers into the record."""
        numbers = {key: value for key, value in vars(answer).items() if isinstance(value, int | float)}
        entry: Record = {key.replace("_", "-"): value for key, value in numbers.items()}
        entry |= {key: list(value) for key in LISTS if (value := getattr(answer, key))}
        survival = round.target is not None and round.target.task == "survival"
        names = names_of_slopes(paths) if survival and paths != "logistic" else names_of_heads(paths)
        weights = {name: answer.weights.get(name) for name in names}
        round.record[RIDGE] = {"paths": paths, **entry, **units_of(round.target), WEIGHTS: weights}
        round.record |= judged_by(round.target, self.metric, round.record)
        if self.secure:
            round.record[RIDGE]["secure"] = True

    def conclusion(self, record: Record) -> list[str]:
        """Return a line on the sources' benefit, by the target's held-out labels."""
        entry = record.get(RIDGE, {})
        lines = benefit_of_sources(entry, record)
        if lines and entry.get(FEWEST_LABELS, ENOUGH) < ENOUGH:
            what = "patients" if UNITS in entry else "labels"
            why = f"since a class has fewer than {ENOUGH} {what} and each is held out"
            lines = [f"{lines[0]}; that is optimistic, {why}"]
        return lines + curve_of_labels(entry, record, record.get("target", {}).get("examples"))
