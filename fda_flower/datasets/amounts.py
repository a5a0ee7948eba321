"""Numbers of samples (exact, at most, or a share), and the samples held out for validation."""

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, invalid
from fda_flower.names import as_written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fda_flower.datasets.samples import Samples

    Array = NDArray[Any]

Amount = int | str
"""A number of samples, or as text a share, ``"15%"``, or a limit, ``"up to 50"``."""

UP_TO = "up to "


def read_amount(name: str, value: object) -> Amount | None:
    """Parse an amount; return None for all samples (None or ``"all"``).

    Raise a `ConfigError` on `name` unless it is a whole number of at least 1, alone or after "up to", or a
    share in (0%, 100%].

    Examples
    --------
    >>> [read_amount("target-samples", text) for text in ("50", "0.1%", "up to 50")]
    [50, '0.1%', 'up to 50']
    """
    if value is None or value == "all":
        return None
    text = str(value).strip()
    amount = text.removeprefix(UP_TO)
    try:
        number = float(as_written(amount.removesuffix("%")))
    except ValueError:
        raise invalid(name, value, "give a number, or a share such as 15%") from None
    if amount.endswith("%"):
        if not 0 < number <= 100:
            what = f"{name} is {text}, a share must be above 0% and at most 100%"
            raise ConfigError(what, thing=name, value=text)
        if amount != text:
            raise invalid(name, text, "give a number after 'up to', or the share alone")
        return text
    if not number.is_integer():
        raise invalid(name, text, "give a whole number, or a share such as 15%")
    if number < 1:
        raise invalid(name, text, "at least 1 is needed")
    return int(number) if amount == text else f"{UP_TO}{int(number)}"


def most(amount: Amount | None) -> int | None:
    """Return the largest number that an amount allows; None for a share.

    Examples
    --------
    >>> most(50), most("up to 50"), most("15%")
    (50, 50, None)
    """
    if isinstance(amount, str):
        return int(amount.removeprefix(UP_TO)) if amount.startswith(UP_TO) else None
    return amount


def count(name: str, amount: Amount | None, total: int) -> int:
    """Return an amount of `total` samples as a number; raise a `ConfigError` if it is 0 or above `total`."""
    if amount is None:
        return total
    limit = most(amount)
    if isinstance(amount, str) and limit is not None:
        return min(limit, total)
    if isinstance(amount, str):
        wanted = round(float(amount.removesuffix("%")) / 100 * total)
        if wanted < 1:
            raise invalid(name, amount, "ask for more", f"which leaves none of {total} samples")
        return wanted
    if amount > total:
        raise invalid(name, amount, "ask for fewer, or for all", f"but there are only {total}")
    return amount


@dataclass(frozen=True)
class HeldOut:
    """The samples held out: a share, or a fold counted from 1; fold 0 means each fold in turn."""

    share: float = 0.0
    folds: int = 0
    fold: int = 0

    def __str__(self) -> str:
        if not self.folds:
            return f"{self.share:g}"
        return f"fold:{self.fold}/{self.folds}" if self.fold else f"cv:{self.folds}"

    @property
    def in_turn(self) -> bool:
        """Whether each fold is held out in turn; the final run then holds out none."""
        return bool(self.folds and not self.fold)


def read_validation(value: object) -> HeldOut | None:
    """Parse a share between 0 and 1, ``cv:K`` or ``fold:I/K``; return None for nothing.

    Examples
    --------
    >>> str(read_validation("20%")), str(read_validation("cv:5")), read_validation("fold:2/5").fold
    ('0.2', 'cv:5', 2)
    """
    if value is None or value == "":
        return None
    text = str(value).strip()
    if found := re.fullmatch("cv:([0-9]+)|fold:([0-9]+)/([0-9]+)", text):
        folds, fold = int(found[1] or found[3]), int(found[2] or 0)
        if folds >= 2 and (found[1] or 1 <= fold <= folds):
            return HeldOut(folds=folds, fold=fold)
    else:
        try:
            share = float(as_written(text.removesuffix("%"))) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if 0 < share < 1:
            return HeldOut(share)
    remedy = "give a share of the labels between 0 and 1, such as 0.2, or cv:K with at least 2 folds"
    raise invalid("validation", text, f"{remedy}, such as cv:5")


def hold_out(samples: "Samples", what: HeldOut, seed: int, whose: str) -> "tuple[Samples, Samples]":
    """Split samples at random into a training set and a held-out set, stratified by class.

    With a share, the only sample of a class stays in training; with folds it is in one of them. Samples of a
    group stay together, and classes get their share as far as groups allow. If 1 is no multiple of the share,
    groups are drawn regardless of classes. Raise a `ConfigError` on the owner `whose` if there are too few
    samples.
    """
    import numpy as np
    import torch

    labels, whole = samples.y.cpu().numpy(), what
    groups = None if samples.groups is None else samples.groups.cpu().numpy()
    parts = round(1 / what.share) if groups is not None and not what.folds else 0
    if parts > 1 and parts * what.share == 1:
        whole = HeldOut(folds=parts, fold=1)
    try:
        held = held_out(labels, groups, whole, seed % 2**32)
    except ValueError as error:
        raise invalid(
            "validation",
            what,
            "give more labels, a larger share, or cv:K with a smaller K",
            f"but {whose} has too few labelled samples, {len(labels)} ({error})",
        ) from error
    mask = np.zeros(len(labels), bool)
    mask[held] = True
    device = samples.y.device
    kept, out = (torch.from_numpy(np.flatnonzero(part)).to(device) for part in (~mask, mask))
    return samples.take(kept), samples.take(out)


def held_out(labels: "Array", groups: "Array | None", what: HeldOut, random: int) -> "Array":
    """Return the positions of samples to hold out, stratified by class, in whole groups if there are any.

    scikit-learn raises a `ValueError` if there are too few.
    """
    import numpy as np
    from sklearn import model_selection as split

    regression, positions = labels.dtype.kind == "f", np.arange(len(labels))
    dealt = {"n_splits": what.folds, "shuffle": True, "random_state": random}
    drawn = {"n_splits": 1, "test_size": what.share, "random_state": random}
    if what.folds and groups is not None and regression:
        names = np.unique(groups)
        members = [np.isin(groups, names[held]) for _, held in split.KFold(**dealt).split(names)]
        return np.flatnonzero(members[what.fold - 1])
    if groups is not None:
        splitter = split.StratifiedGroupKFold(**dealt) if what.folds else split.GroupShuffleSplit(**drawn)
    elif what.folds:
        splitter = (split.KFold if regression else split.StratifiedKFold)(**dealt)
    else:
        splitter = (split.ShuffleSplit if regression else split.StratifiedShuffleSplit)(**drawn)
        if not regression:
            names, counts = np.unique(labels, return_counts=True)
            positions = positions[np.isin(labels, names[counts > 1])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class with fewer samples than folds
        divided = [held for _, held in splitter.split(positions, labels[positions], groups)]
    held: Array = positions[divided[what.fold - 1 if what.folds else 0]]
    return held
