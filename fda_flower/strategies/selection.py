"""Selection of a round by the target's validation labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import INFO
from typing import Any

from flwr.common import log

from fda_flower.errors import check_choice, invalid
from fda_flower.metrics import METRICS, RARE
from fda_flower.records.record import (
    COSTS,
    HEADLINE,
    JUDGED_IN,
    Record,
    choose,
    chosen_round,
    default_metric,
    has_stopped,
    judged_in,
)
from fda_flower.strategies.benefit import HELD_OUT, metric_of
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.round import Round
from fda_flower.wire import protocol
from fda_flower.wire.protocol import VALIDATION


@dataclass(frozen=True)
class Selection:
    """Selection of a round by a validation metric of the target, with early stopping.

    Attributes
    ----------
    patience : int, optional
        Rounds without improvement after which the run stops. Default: never.
    metric : str, optional
        The metric that chooses, a key of `METRICS`. Default: the one that a rare class asks for, or else the
        first that the target reports.
    known : Mapping[int, float]
        Metrics known in advance, by round, as from cross-validation.
    """

    patience: int | None
    metric: str | None
    known: Mapping[int, float]

    def __post_init__(self) -> None:
        if self.metric is not None:
            check_choice("metric", self.metric, METRICS)

    def judge(self, round: Round, history: Sequence[Record]) -> None:
        """Move the target's validation metrics of a round to their place in its record, and choose."""
        target = round.target
        metrics = {} if target is None else round.held_out.pop(target, {})
        if round.warmup:
            return
        wanted, by = metric_of(self.metric, round.record), "target"
        name = wanted or default_metric(metrics)
        value = metrics.get(name)
        if round.number in self.known:
            value, by = self.known[round.number], "folds"
        if value is not None:
            higher = METRICS[name].higher_is_better
            round.record |= choose(history, round.number, value, by=by, higher_is_better=higher)
        elif target in round.evaluations and (self.patience is not None or (wanted and metrics)):
            assert target is not None, "nobody else has evaluated"
            why = f"its metrics have no '{VALIDATION}-{name}'{'' if wanted else ' or the like'}"
            round.warn([(target.domain, f"{why} to choose a round")], "no validation by")
        figures = {*METRICS, "metrics"} & round.record.keys()
        if wanted and target is not None and figures and wanted not in figures:
            round.warn([(target.domain, f"its metrics have no '{wanted}'")], "no headline by")

    def headline(self, target: Node | None, history: Sequence[Record]) -> Record:
        """Return the entry of a record with the headline that the target's labels ask for, if they do.

        The first round decides; it is logged once.
        """
        if history:
            return {name: history[0][name] for name in (HEADLINE,) if name in history[0]}
        if target is None or self.metric:
            return {}
        rare = target.info.get(protocol.HEADLINE)
        return {} if rare is None else tell_headline(rare, f"the labels of '{target.domain}'")

    def check_judged(self, history: Sequence[Record]) -> None:
        """Raise a `ConfigError` if labels held out were judged in another metric than the run's now."""
        by_rule = history[0].get(HEADLINE) if history else None
        if by_rule and self.metric not in (None, by_rule) and any(VALIDATION in each for each in history):
            why = f"but labels held out have chosen rounds by {METRICS[by_rule].title}"
            raise invalid("metric", self.metric, f"give --metric {by_rule}, or choose another --output", why)
        last = next((record for record in reversed(history) if _has_judged(record)), None)
        if last is None:
            return
        before, measured = judged_in(last), any(name in last for name in METRICS)
        own = self.metric or last.get(HEADLINE) or (default_metric(last) if measured else before)
        if own != before:
            why = f"but the run has judged held-out labels in {METRICS[before].title}"
            raise invalid("metric", own, f"give --metric {before}, or choose another --output", why)

    def may_stop(self, history: Sequence[Record]) -> bool:
        """Return whether the run ends after the next round unless that improves."""
        return self.patience is not None and has_stopped(history, self.patience - 1)

    def stops(self, history: Sequence[Record]) -> bool:
        """Return whether the run ends now; log it."""
        if not has_stopped(history, self.patience):
            return False
        chosen = chosen_round(history)
        log(INFO, "Stopped after round %d: none was better than round %d", len(history), chosen)
        return True


def _has_judged(record: Record) -> bool:
    """Return whether a method has judged labels held out, in an earlier version without the metric's name."""
    parts = (each for each in record.values() if isinstance(each, Mapping))
    return JUDGED_IN in record or bool(record.get("sites")) or any(HELD_OUT in each for each in parts)


def tell_headline(metric: str, labels: str) -> Record:
    """Log why a run has a metric that it does not name; return its entry of a record."""
    why = f"since one of two classes has less than {RARE:.0%} of {labels} (another: --metric)"
    COSTS.info(f"Metric: {METRICS[metric].title}, {why}")
    return {HEADLINE: metric}


def check_selection(what: str, strategy: Any, validation: str | float | None, patience: int | None) -> None:
    """Raise a `ConfigError` if a method does not support the run's selection settings.

    `what` names the method in messages; `strategy` may be a centralised reference.
    """
    if validation is None:
        if patience is not None:
            remedy = "add validation, such as validation=0.2"
            raise invalid("patience", patience, remedy, "but no labels are held out to choose by")
        return
    if (every := strategy.evaluate_every) > 1:
        why = f"but validation is {validation}, which judges each round"
        raise invalid("evaluate-every", every, "leave one of them out", why)
    if getattr(strategy, "chooses_itself", False):  # a reference only
        remedy = "leave it out, and give the method option validation_share"
        why = f"but {what} chooses its model itself, by samples of the sources"
        raise invalid("validation", validation, remedy, why)
    if patience is not None and strategy.ends_with_an_evaluation:
        why = f"but {what} evaluates in the last round in another way than before"
        raise invalid("patience", patience, "leave it out", why)
