"""Mixture: the sources train alone; the target mixes their model with its own, and sends none."""

from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING
from typing import Literal

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common import log

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.errors import invalid
from fda_flower.metrics import METRICS
from fda_flower.names import Natural, as_written
from fda_flower.records.record import COSTS
from fda_flower.strategies.base import Aggregated, ClientUpdate, Node, Record, Round, Sources
from fda_flower.strategies.fedavg import SourceOnly
from fda_flower.strategies.method import Epochs
from fda_flower.wire import protocol
from fda_flower.wire.arrays import count_bytes
from fda_flower.wire.methods import FIRST, FIRST_ROUND, GROUPS, MIXTURE, REPORT, STUDENT, TAUGHT, TEACHER
from fda_flower.wire.protocol import LABELLED, EvaluateRequest

PER_MEMBER = ("weight", "temperature", "held-out", "test", "left-out")
"""Prefixes of metrics of the target's reply, each followed by a member."""


class Mixture(SourceOnly):
    """``p(y|x) ∝ Σ_m w_m exp F_m(x)``: the sources' model and the target's own, weighed on held-out labels.

    The sources train as in Source Only. The target, which runs `fda_flower.clients.MixtureTarget`, keeps its
    labels. It trains its own model and fine-tunes the sources' model, each on all labels and on all but one
    fold in turn, and weighs these members by their predictions on the labels of the fold left out
    (`fda_flower.aggregation.fit_mixture`). The headline is the mixture's accuracy; rounds without an
    evaluation have none.

    A round's record has ``mixture``: for each member its ``weight``, ``temperature`` and accuracies
    (``held-out``, ``test``), the sizes of the ``folds``, and the cost of the mixture.

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

    evaluates_own = True
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
        cost, node = self._cost(arrays, self.num_rounds), self.roster.target
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
        return aggregated if FIRST in self.state else Aggregated(aggregated.model, {FIRST: round.model})

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Return none: the mixture's report has the figures of its members."""
        return {}

    def evaluate_request(self, round: Round) -> EvaluateRequest | None:
        """Request training and evaluation of the mixture, in the rounds that have one."""
        if not (self._is_due(round.number) or round.number == self.num_rounds):
            return None
        plan, first_round = self._plan.to_text(), self.warmup_rounds + 1
        asked: Record = {MIXTURE: plan, FIRST_ROUND: first_round, REPORT: self.report}
        if self.student:
            asked[STUDENT] = True
        if self.learning_rate_factor != 1:
            asked[protocol.LEARNING_RATE_FACTOR] = self.learning_rate_factor
        # If all rounds so far were held, the global model is still the initial one.
        first = self.state.get(FIRST, round.arrays)
        return EvaluateRequest(round.arrays, {**round.config, **asked}, {FIRST: first})

    def evaluation(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mixture's metrics, and record them by member."""
        metrics = super().evaluation(replies)
        record, server_round = self.round.record, self.round.number
        if metrics is not None and not self.round.warmup:
            found = _by_member(record.pop("metrics", {}))
            if self.report == "full" and not found["members"] and "privacy" not in record:
                why = "so it may have evaluated the sources' model: let it run MixtureTarget"
                log(WARNING, "Round %d: the target reports no weights, %s", server_round, why)
            if self.student and found["members"] and TEACHER not in found:
                log(
                    WARNING,
                    "Round %d: the target's client does not support a student and used the mixture",
                    server_round,
                )
            record["mixture"] = {**found, "cost": self._cost(self.round.arrays, server_round)}
        return metrics

    def conclusion(self, record: Record) -> list[str]:
        """Return a line with the accuracies of the student and its mixture, if both are known."""
        found, figure = record.get("mixture", {}), "r2" if "r2" in record else "accuracy"
        if not self.student or figure not in record or not {TEACHER, TAUGHT} <= found.keys():
            return []
        shown = "{:.2f}" if figure == "r2" else "{:.1%}"
        taught = found[TAUGHT]
        how = (
            f"its mixture, on {taught:,.0f} unlabelled samples"
            if taught
            else "its mixture's fine-tuned models"
        )
        own, mixed = shown.format(record[figure]), shown.format(found[TEACHER])
        line = f"One network, made of {how}: {own}; the mixture itself {mixed}"
        return [line if taught else f"{line}. With unlabelled samples there is a student in its place"]

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


def _epochs(given: str | Sequence[int]) -> tuple[int, ...]:
    numbers = given.split(",") if isinstance(given, str) and given else given
    try:
        return tuple(int(as_written(str(number))) for number in numbers)
    except (TypeError, ValueError):
        raise invalid("epochs", given, "give whole numbers of epochs that grow, such as 1,30") from None


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    return tuple(name.strip() for name in names)


def _by_member(metrics: Record) -> Record:
    """Return the metrics of the target's reply by member; a weight that is no share is the project's own."""
    members: dict[str, Record] = {}
    folds: list[int] = []
    others: Record = {}
    for key, value in metrics.items():
        name, _, member = key.partition(".")
        if name in PER_MEMBER and (name != "weight" or METRICS["accuracy"].allows(value)):
            members.setdefault(member, {})[name] = value
        elif name == "fold":
            folds.append(int(value))
        else:
            others[key] = value
    return {**others, "members": members, "folds": folds}
