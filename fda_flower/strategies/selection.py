"""Selection of a round by validation labels, at the target or at the sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from statistics import mean  # exact, so that it never overflows
from typing import Any

from flwr.common import log

from fda_flower.errors import ConfigError, check_choice, invalid
from fda_flower.metrics import METRICS
from fda_flower.records.record import Record, choose, chosen_round, has_stopped
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.round import Round
from fda_flower.wire.protocol import VALIDATION, EvaluateRequest


@dataclass(frozen=True)
class Selection:
    """Selection of a round by a validation metric, with early stopping.

    Attributes
    ----------
    by : {"target", "sources"}
        Whose labels are held out for validation.
    patience : int, optional
        Rounds without improvement after which the run stops. Default: never.
    metric : str, optional
        The metric that chooses, a key of `METRICS`. Default: the first that the target reports.
    known : Mapping[int, float]
        Figures known in advance, by round, as from cross-validation.
    """

    by: str
    patience: int | None
    metric: str | None
    known: Mapping[int, float]

    def __post_init__(self) -> None:
        if self.metric is not None:
            check_choice("metric", self.metric, METRICS)

    def requests(self, round: Round) -> dict[Node, EvaluateRequest]:
        """Return the evaluate requests for sources, if they choose."""
        if self.by != "sources" or round.warmup:
            return {}
        config = {**round.config, VALIDATION: "only"}
        return {node: EvaluateRequest(round.arrays, config) for node in round.sources}

    def judge(self, round: Round, history: Sequence[Record]) -> None:
        """Move a round's validation figures to their places in its record, and choose."""
        record = round.record
        judges = [node for node in round.nodes if node.is_target == (self.by == "target")]
        figures = [round.held_out.pop(node, {}) for node in judges]
        own = {node.domain: entry for node, entry in zip(judges, figures, strict=True) if not node.is_target}
        if round.warmup:
            return
        name = self.metric or default_metric(figures)
        values, by = [entry[name] for entry in figures if name in entry], self.by
        if round.number in self.known:
            values, by = [self.known[round.number]], "folds"
        elif not values:
            if self.patience is not None or by == "sources":
                silent = (node.domain for node in judges if node in round.evaluations)
                why = f"its metrics have no '{VALIDATION}-accuracy' or the like to choose a round"
                round.warn(((domain, why) for domain in silent), "no validation by")
            return
        elif len(values) < len(figures):
            missing = len(figures) - len(values)
            log(WARNING, "Round %d: %d sources did not validate the model", round.number, missing)
            return
        higher, value = METRICS[name].higher_is_better, mean(values)
        record |= choose(history, round.number, value, by=by, higher_is_better=higher)
        for domain, entry in own.items():
            if name in entry:
                record["sources"].get(domain, {})[VALIDATION] = entry[name]

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


def default_metric(figures: Sequence[Mapping[str, float]]) -> str:
    """Return the first metric of `METRICS` that anyone reports.

    Examples
    --------
    >>> default_metric([{"loss": 0.7, "accuracy": 0.5}])
    'accuracy'
    """
    return next((name for name in METRICS if any(name in each for each in figures)), next(iter(METRICS)))


def check_selection(
    what: str, strategy: Any, validation: str | float | None, folds: int, select_by: str, patience: int | None
) -> None:
    """Raise a `ConfigError` if a method does not support the run's selection settings.

    `what` names the method in messages; `strategy` may be a centralised reference. `folds` is 0 for a share.
    """
    if validation is None:
        given = {"patience": patience, "select-by": None if select_by == "target" else select_by}
        for name, value in given.items():
            if value is not None:
                remedy = "add validation, such as validation=0.2"
                raise invalid(name, value, remedy, "but no labels are held out to choose by")
        return
    if (every := strategy.evaluate_every) > 1:
        why = f"but validation is {validation}, which judges each round"
        raise invalid("evaluate-every", every, "leave one of them out", why)
    if select_by == "sources" and folds:
        why = "but with select-by=sources it is a share of each source's samples"
        raise invalid("validation", validation, "give one, such as 0.2", why)
    if select_by == "sources" and strategy.evaluates_own:
        why = f"but {what} has no model that the sources could evaluate as the target does"
        remedy = "leave it out, so that labels of the target choose"
        raise ConfigError(f"select-by is sources, {why}", thing="select-by", value=select_by, remedy=remedy)
    if getattr(strategy, "chooses_itself", False):  # a reference only
        remedy = "leave it out, and give the method option validation_share"
        why = f"but {what} chooses its model itself, by samples of the sources"
        raise invalid("validation", validation, remedy, why)
    if patience is not None and strategy.ends_with_an_evaluation:
        why = f"but {what} evaluates in the last round in another way than before"
        raise invalid("patience", patience, "leave it out", why)
