"""Mixture: the sources train alone; the target mixes their model with its own, and sends none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Literal

from flwr.app import ArrayRecord

from fda_flower.aggregation.mixture import MixturePlan, is_member
from fda_flower.errors import invalid
from fda_flower.metrics import METRICS
from fda_flower.names.options import Natural, as_written
from fda_flower.records.record import COSTS, judged_in
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Record, Round, Sources
from fda_flower.strategies.benefit import (
    HELD_OUT,
    TARGET_ALONE,
    benefit_of_sources,
    judged_by,
    metric_of,
    units_of,
)
from fda_flower.strategies.fedavg import SourceOnly
from fda_flower.strategies.method import Epochs
from fda_flower.wire import protocol
from fda_flower.wire.arrays import count_bytes
from fda_flower.wire.asked.mixture import EvaluateMixture, MixtureReport
from fda_flower.wire.protocol import GROUPS, LABELLED, EvaluateRequest, to_layers

FIRST = "first"
"""The state with the model as which the target's own begins."""

MOST_FOLDS = 1000
"""Largest number of folds whose sizes are recorded."""


class Mixture(SourceOnly):
    """``p(y|x) ∝ Σ_m w_m exp F_m(x)``: the sources' model and the target's own, weighed on held-out labels.

    The sources train as in Source Only. The target keeps its labels. It trains its own model and fine-tunes
    the sources' model, each on all labels and on all but one fold in turn, and weighs these members by their
    predictions on the labels of the fold left out (`fda_flower.aggregation.fit_mixture`). The headline is the
    mixture's accuracy; rounds without an evaluation have none.

    A round's record has ``mixture``: for each member its ``weight``, ``temperature`` and the run's metric (in
    ``judged-in``) on ``held-out`` labels and the ``test`` set, the sizes of the ``folds``, and the cost of
    the mixture; also the metric of the mixture (``held-out``) and of one without the sources
    (``held-out-target``) on held-out labels.

    Parameters
    ----------
    folds : int
        ``K``: the target needs at least 2K labels.
    epochs : str or sequence of int
        Epochs after which the fine-tuned model becomes a member, such as ``"1,30"``. Default: 1 and 30, with
        500 labels or more 1 and 10.
    members : str or sequence of str
        Some of ``sources``, ``target``, ``tuned``, ``prior``, and ``head`` (only the last layer fine-tuned,
        for deep networks) and ``blend`` (FedDAF's). Default: the first four.
    views : {"all", "full"}
        Predict with the models of all views, or, at lower cost, only with those trained on all labels.
    every : int
        The target evaluates every this many rounds, and in the last. Default: 0, only in the last.
    report : {"full", "none"}
        With ``"none"`` the target replies only with its number of test samples.
    student : bool
        Whether one network predicts in place of the mixture. It starts from the model of the member with the
        largest weight, and learns the mixture's predictions for the target's labelled and at most 3,000
        unlabelled samples. Without unlabelled samples it is the mean of the models fine-tuned longest. The
        record's ``mixture`` has the accuracy of the mixture, ``teacher``.
    """

    questions = (EvaluateMixture,)
    ends_with_an_evaluation = True

    source_mean: str = "median"
    folds: int = 4
    epochs: str | Sequence[int] = ""
    members: str | Sequence[str] = "sources,target,tuned,prior"
    views: Literal["all", "full"] = "all"
    every: Natural = 0
    report: Literal["full", "none"] = "full"
    student: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.report == "none" and self.average is not None:
            why = f"but with the average '{self.average}' the target reports the averaged model's accuracy"
            raise invalid("report", self.report, "leave one of them out", why)
        self._plan = MixturePlan(self.folds, _epochs(self.epochs), _names(self.members), self.views)
        self.epochs, self.members = self._plan.epochs, self._plan.members
        self.needs = ("head",) if "head" in self.members else ()

    def settings(self) -> Record:
        """Return the strategy's definition; how often the target evaluates may change on resume."""
        return {name: value for name, value in super().settings().items() if name != "every"}

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if the target has too few labels."""
        if role == "target":
            self._plan.check_labels(samples)

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if the target reports too few labels."""
        for node in nodes:
            labels, groups = node.info.get(LABELLED), node.info.get(GROUPS)
            if node.is_target and isinstance(labels, int):
                self._plan.check_labels(labels, groups if isinstance(groups, int) else None)

    def begin(self, arrays: ArrayRecord, done: int) -> None:
        """Begin the run, and log the cost of the mixture."""
        super().begin(arrays, done)
        cost, node = self._cost(arrays, self.num_rounds), self.nodes.target
        labels = node.info.get(LABELLED) if node else None
        rounds = self.num_rounds - self.warmup_rounds
        evaluations = cost["evaluations"]
        often = "once" if evaluations == 1 else f"{evaluations} times"
        epochs = self._plan.epochs_of(labels if isinstance(labels, int) else 0, rounds, evaluations)
        models = "its student, one model" if self.student else f"{cost['models']} models"
        COSTS.info(
            f"Mixture predicts with {models}. In the whole run the target evaluates {often}, for which it "
            f"receives {cost['bytes'] / 1e6:.3g} MB, and trains {epochs} epochs on its labels (at one epoch "
            "a round)"
        )

    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Average the sources, and keep the starting model of the target."""
        aggregated = super().aggregate(round, target, sources)
        first = {} if FIRST in self.state else {FIRST: round.whole(round.model)}
        return Aggregated(aggregated.model, first)

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Return none: the mixture's report has the metrics of its members."""
        return {}

    def evaluate_request(self, round: Round) -> EvaluateRequest | None:
        """Request training and evaluation of the mixture, in the rounds that have one."""
        if not (self._is_due(round.number) or round.number == self.num_rounds):
            return None
        factor = self.learning_rate_factor
        config = round.config if factor == 1 else {**round.config, protocol.LEARNING_RATE_FACTOR: factor}
        question = EvaluateMixture(
            **asdict(self._plan),
            # If all rounds so far were held, the global model is still the initial one.
            first=to_layers(self.state.get(FIRST, round.arrays)),
            first_round=self.warmup_rounds + 1,
            report=self.report,
            student=self.student,
            metric=metric_of(self.metric, round.record),
        )
        return EvaluateRequest(round.arrays, config, question=question)

    def evaluated(self, answer: MixtureReport) -> Record:
        """Record the mixture's numbers by member."""
        cost = self._cost(self.round.arrays, self.round.number)
        target = self.round.target
        known = {} if self.report == "none" else judged_by(target, self.metric, self.record)
        return {"mixture": {**_entries(answer), **units_of(target), "cost": cost}, **known}

    def conclusion(self, record: Record) -> list[str]:
        """Return lines on the sources' benefit, and with the metrics of a student and its mixture."""
        mixture, metric = record.get("mixture", {}), judged_in(record)
        lines = benefit_of_sources(mixture, record)
        if not self.student or metric not in record or not {"teacher", "taught"} <= mixture.keys():
            return lines
        taught = mixture["taught"]
        how = (
            f"its mixture, on {taught:,.0f} unlabelled samples"
            if taught
            else "its mixture's fine-tuned models"
        )
        unit = METRICS[metric]
        own, mixed = unit.show(record[metric]), unit.show(mixture["teacher"])
        line = f"One network, made of {how}: {unit.title} {own}; the mixture itself {mixed}"
        return [
            *lines,
            line if taught else f"{line}. With unlabelled samples there is a student in its place",
        ]

    def evaluates_in(self, number: int) -> bool:
        """Return whether a round is evaluated: after the warm-up by `every`, before it also by `report`."""
        if number > self.warmup_rounds:
            return True
        return self.report == "full" and super().evaluates_in(number)

    def _is_due(self, number: int) -> bool:
        return self.every > 0 and (number - self.warmup_rounds) % self.every == 0

    def _cost(self, arrays: ArrayRecord, until: int) -> Record:
        """Return the cost of the mixture for the target in a run of this many rounds."""
        evaluations = self._evaluations(until - self.warmup_rounds)
        sent = 2 * evaluations * count_bytes(arrays)
        models = 1 if self.student else self._plan.models
        return {"models": models, "evaluations": evaluations, "bytes": sent}

    def _evaluations(self, rounds: int) -> int:
        return -(-rounds // self.every) if self.every else 1

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; the target's cover all its labels, over all its models."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        own = self._plan.epochs_of(labels, rounds * epochs["target"], self._evaluations(rounds))
        return {**total, "target": own}

    def epochs_of_head(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs of the member ``head``, if there is one, over all its models."""
        longest = self._plan.snapshots(labels)[-1] * ("head" in self.members)
        return {"source": 0, "target": self._plan.folds * longest * self._evaluations(rounds)}


def _epochs(given: str | Sequence[int]) -> tuple[int, ...]:
    numbers = given.split(",") if isinstance(given, str) and given else given
    try:
        return tuple(int(as_written(str(number))) for number in numbers)
    except (TypeError, ValueError):
        raise invalid("epochs", given, "give whole numbers of epochs that grow, such as 1,30") from None


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    return tuple(name.strip() for name in names)


def _entries(report: MixtureReport) -> Record:
    """Return the record's entries for a report; a member that no mixture has is left out."""
    columns: dict[str, Mapping[str, float] | None] = {
        "weight": report.weights,
        "temperature": report.temperatures,
        "held-out": report.held_out,
        "test": report.test,
        "left-out": dict.fromkeys(report.left_out, 1),
    }
    members: dict[str, Record] = {}
    for column, values in columns.items():
        for name, value in (values or {}).items():
            if is_member(name):
                members.setdefault(name, {})[column] = value
    others = {"alone": report.alone, "taught": report.taught, "teacher": report.teacher}
    others |= {HELD_OUT: report.held_out_mixture, TARGET_ALONE: report.held_out_target}
    known = {name: value for name, value in others.items() if value is not None}
    return {**known, "members": members, "folds": list(report.folds[:MOST_FOLDS])}
