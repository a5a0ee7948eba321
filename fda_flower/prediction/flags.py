"""Samples that are flagged as one of two classes, with a promised sensitivity: what a loaded model allows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.sensitivity import (
    Flagging,
    Promise,
    flagged_units,
    flagging,
    net_benefit,
    reaches,
)
from fda_flower.errors import ConfigError, invalid, unknown
from fda_flower.metrics import share_interval
from fda_flower.names.tasks import TASKS

if TYPE_CHECKING:
    from fda_flower.prediction.model import LoadedModel

Array = NDArray[Any]
AVERAGE: Literal["average"] = "average"
Confidence = float | Literal["average"]
"""The confidence in a sensitivity, or that it is promised on average."""


@dataclass(frozen=True)
class Flags:
    """A threshold for the class with the number `positive` and a `name`, and the `promise` it keeps."""

    positive: int
    name: str
    promise: Promise
    rule: Flagging

    def of(self, probabilities: Array) -> NDArray[np.bool_]:
        """Return which samples are flagged, ``(n,)``, by the probabilities of both classes, ``(n, 2)``."""
        return self.rule.flags(probabilities[:, self.positive])

    @property
    def entries(self) -> dict[str, Any]:
        """The threshold, what it promises, and the specificity on left-out labels with a 95% interval."""
        rule, confidence = self.rule, self.promise.confidence
        return {
            "positive": self.name,
            "threshold": rule.threshold,
            "asked": self.promise.sensitivity,
            "confidence": AVERAGE if confidence is None else confidence,
            "positives": rule.positives,
            "others": rule.others,
            **_share("specificity", rule.passed, rule.others),
        }

    def reached(self, probabilities: Array, y: Array, groups: Array | None = None) -> dict[str, Any]:
        """Return the sensitivity and the specificity on samples with labels `y`, each with a 95% interval.

        `y` are classes and `groups`, if given, the samples' units, both of shape ``(n,)``.
        """
        flags, labels = flagged_units(self.of(probabilities), y, groups)
        right = flags == (labels == self.positive)
        ill, others = (right[(labels == self.positive) == each] for each in (True, False))
        return {
            "sensitivity": {"positives": len(ill), **_share("value", int(ill.sum()), len(ill))},
            "specificity": {"others": len(others), **_share("value", int(others.sum()), len(others))},
        }


def _share(name: str, count: int, of: int) -> dict[str, float | None]:
    """Return a share with Wilson's 95% interval; of nothing all are None."""
    share = count / of if of else None
    low, high = (None if share is None else share_interval(share, of)) or (None, None)
    return {name: share, "low": low, "high": high}


def benefit(
    probabilities: Array, y: Array, positive: int, at: float, groups: Array | None = None
) -> dict[str, float]:
    """Return the net benefit of treating from the probability `at` of the class `positive`.

    It is of the model, and of treating all and none; see `fda_flower.aggregation.sensitivity.net_benefit`.
    Raise a `ConfigError` unless `at` is between 0 and 1.
    """
    flags, labels = flagged_units(reaches(probabilities[:, positive], at), y, groups)
    model, every = net_benefit(flags, labels == positive, at)
    return {"at": at, "model": model, "all": every, "none": 0.0}


def find_flags(
    model: "LoadedModel", sensitivity: float, positive: str | None = None, confidence: Confidence = 0.9
) -> Flags:
    """Return the threshold that keeps a promise; see `LoadedModel.predict_flag`.

    Raise a `ConfigError` if the model has no held-out scores, or too few of the class.
    """
    promise, number = _read_promise(sensitivity, confidence), find_positive(model, positive)
    option: dict[str, Any] = {"thing": "sensitivity", "value": sensitivity}
    if model.calibration is None:
        what = "the model has no scores of held-out labels, from which its threshold would follow"
        remedy = "take the target's model of a run of ridge or mixture by this version, without noise"
        raise ConfigError(what, **option, remedy=remedy)
    if not model.calibration.tells_units:
        what = (
            "the model is of an earlier version, which did not keep the scores of patients with several rows"
        )
        raise ConfigError(what, **option, remedy="run again")
    count, name = model.calibration.units_of(number), str(model.classes_[number])
    if not promise.rank(count):
        most = f"{count} can promise at most {promise.most(count)}%"
        what = f"{of_class(count, name)} cannot promise a sensitivity of {describe(promise)}"
        raise ConfigError(what, **option, remedy=f"it needs {promise.needed}; {most}")
    return Flags(number, name, promise, flagging(model.calibration, number, promise))


def _read_promise(sensitivity: float, confidence: Confidence) -> Promise:
    """Return what is to be promised; raise a `ConfigError` unless both are shares between 0 and 1."""
    check_share("sensitivity", sensitivity)
    if confidence == AVERAGE:
        return Promise(sensitivity, None)
    check_share("confidence", confidence, f", or {AVERAGE}")
    return Promise(sensitivity, float(confidence))


def check_share(thing: str, value: object, other: str = "") -> None:
    """Raise a `ConfigError` unless a value is a share between 0 and 1."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise invalid(thing, value, f"give a share between 0 and 1, such as 0.9{other}")


def find_positive(model: "LoadedModel", positive: str | None) -> int:
    """Return the number of the class to flag; by default the one of fewer labelled patients at the target.

    Raise a `ConfigError` unless there are two classes and it is one of them, or if both have as many.
    """
    if (task := model.about.task) != "classes":
        what = f"a threshold needs two classes; this run's task is {TASKS[task]}"
        raise ConfigError(what, thing="task", value=task, remedy="leave --sensitivity and --net-benefit out")
    if (classes := model.about.classes) != 2:
        what = f"a threshold needs two classes; this run has {classes}"
        raise ConfigError(what, thing="classes", value=classes, remedy="use --coverage for sets")
    names = model.classes_.astype(str).tolist()
    if positive is not None and str(positive) not in names:
        raise unknown("positive class", str(positive), names)
    return _rarer(model, names) if positive is None else names.index(str(positive))


def _rarer(model: "LoadedModel", names: list[str]) -> int:
    remedy = f"choose the class to flag with --positive, {' or '.join(names)}"
    if model.calibration is None:
        raise ConfigError("the model does not know which class is rarer", thing="positive", remedy=remedy)
    first, second = map(model.calibration.units_of, range(2))
    if first == second:
        what = f"both classes have {first} labelled patients at the target, so neither is rarer"
        raise ConfigError(what, thing="positive", remedy=remedy)
    return int(second < first)


def describe(promise: Promise) -> str:
    """Return a promise in words.

    Examples
    --------
    >>> describe(Promise(0.9)), describe(Promise(0.85, None))
    ('90% with confidence 90%', '85% on average')
    """
    sure = "on average" if promise.confidence is None else f"with confidence {100 * promise.confidence:g}%"
    return f"{100 * promise.sensitivity:g}% {sure}"


def of_class(count: int, name: str) -> str:
    """Return a number of patients of a class.

    Examples
    --------
    >>> of_class(31, "ill"), of_class(1, "0")
    ('31 ill patients', '1 patient of class 0')
    """
    patients = f"patient{'' if count == 1 else 's'}"
    return f"{count:,} {name} {patients}" if name[:1].isalpha() else f"{count:,} {patients} of class {name}"
