"""Samples flagged with a promised sensitivity: the options of ``predict`` and ``evaluate``, and sentences."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.output import out
from fda_flower.errors import invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fda_flower.prediction.flags import Flags
    from fda_flower.prediction.model import LoadedModel

Sensitivity = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Flag one of two classes so that this share of its patients is found, such as 0.9.",
        show_default="none",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The class to flag.", show_default="the rarer one at the target"),
]
Confidence = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Confidence in --sensitivity; average: on average.", show_default="0.9"
    ),
]
NetBenefit = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="The net benefit of treating from this probability on, such as 0.1.",
        show_default="none",
    ),
]


def read_flags(
    model: "LoadedModel", sensitivity: float | None, positive: str | None, confidence: str | None
) -> "Flags | None":
    """Return the threshold that the options ask for, and say what it promises; None without a sensitivity."""
    from fda_flower.prediction.flags import find_flags

    if sensitivity is None:
        for name, value in (("positive", positive), ("confidence", confidence)):
            if value is not None:
                raise invalid(name, value, "add --sensitivity or leave it out", "but nothing is flagged")
        return None
    flags = find_flags(model, sensitivity, positive, _number("0.9" if confidence is None else confidence))
    out.text(describe_flags(flags.entries))
    domain = model.about.domain
    out.text(f"It is promised only for patients that come as the labelled ones of '{domain}' did.")
    return flags


def _number(text: str) -> Any:
    """Return a text as a number, or else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def describe_flags(entries: Mapping[str, Any]) -> str:
    """Return the sentence on a threshold, by its `Flags.entries`.

    Examples
    --------
    >>> entries = {"positive": "ill", "threshold": 0.0834, "asked": 0.9, "confidence": 0.9, "positives": 31}
    >>> print(describe_flags(entries | {"others": 154, "specificity": 0.21, "low": 0.17, "high": 0.26}))
    Flagged: p(ill) >= 0.0834. Sensitivity at least 90% with confidence 90%, from 31 ill patients, each left \
out; specificity about 21% (17 to 26%), from 154 others
    """
    from fda_flower.aggregation.sensitivity import Promise
    from fda_flower.prediction.flags import AVERAGE, describe, of_class

    confidence = None if entries["confidence"] == AVERAGE else entries["confidence"]
    line = (
        f"Flagged: p({entries['positive']}) >= {entries['threshold']:.3g}. Sensitivity at least "
        f"{describe(Promise(entries['asked'], confidence))}, from "
        f"{of_class(entries['positives'], entries['positive'])}, each left out"
    )
    if entries["specificity"] is None:
        return f"{line}; specificity unknown, from no others"
    share, low, high = (f"{100 * entries[name]:.0f}" for name in ("specificity", "low", "high"))
    return f"{line}; specificity about {share}% ({low} to {high}%), from {entries['others']:,} others"


def describe_reached(name: str, reached: Mapping[str, Any]) -> str:
    """Return the sentence on what flags of the class `name` reach, by `Flags.reached`.

    Examples
    --------
    >>> sensitivity = {"positives": 15, "value": 14 / 15, "low": 0.702, "high": 0.988}
    >>> nobody = {"others": 0, "value": None, "low": None, "high": None}
    >>> describe_reached("ill", {"sensitivity": sensitivity, "specificity": nobody})
    'Reached: sensitivity 93.3% (95% interval 70.2% to 98.8%) of 15 ill patients; no others'
    """
    from fda_flower.prediction.flags import of_class

    ill, others = reached["sensitivity"], reached["specificity"]
    parts = (
        ("sensitivity", ill, of_class(ill["positives"], name)),
        ("specificity", others, f"{others['others']:,} others"),
    )
    shares = (
        f"no {of.partition(' ')[2]}"
        if each["value"] is None
        else f"{what} {each['value']:.1%} (95% interval {each['low']:.1%} to {each['high']:.1%}) of {of}"
        for what, each, of in parts
    )
    return f"Reached: {'; '.join(shares)}"


@dataclass(frozen=True)
class Judged:
    """What ``evaluate`` judges: `flags`, and the net benefit `at` a probability of the class `positive`."""

    flags: "Flags | None"
    at: float | None
    positive: int

    @classmethod
    def read(
        cls,
        model: "LoadedModel",
        sensitivity: float | None,
        positive: str | None,
        confidence: str | None,
        at: float | None,
    ) -> "Judged":
        """Return what the options ask for, and say what a threshold promises."""
        from fda_flower.prediction.flags import check_share, find_positive

        number = -1
        if at is not None:
            check_share("net-benefit", at)
            number = find_positive(model, positive)
            positive = None if sensitivity is None else positive
        return cls(read_flags(model, sensitivity, positive, confidence), at, number)

    def say(
        self, outputs: "NDArray[Any]", y: "NDArray[Any]", groups: "NDArray[Any] | None"
    ) -> dict[str, Any]:
        """Say what is reached on a test set, whose units may be known, and return it as entries."""
        from fda_flower.prediction.flags import benefit
        from fda_flower.prediction.model import probabilities

        result: dict[str, Any] = {}
        if self.flags is not None:
            reached = self.flags.reached(probabilities(outputs), y, groups)
            result["flags"] = {**self.flags.entries, "reached": reached}
            out.text(describe_reached(self.flags.name, reached))
        if self.at is not None:
            worth = benefit(probabilities(outputs), y, self.positive, self.at, groups)
            result["net-benefit"] = worth
            values = f"{worth['model']:.4f} for the model, {worth['all']:.4f} for treating all, 0 for none"
            out.text(f"Net benefit at {100 * self.at:g}%: {values}")
        return result
