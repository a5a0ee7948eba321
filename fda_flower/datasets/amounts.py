"""How many samples: a number, up to a number, or a share; and what is held out from training to choose by."""

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fda_flower.datasets.samples import Samples

Amount = int | str
"""A number of samples, or as text a share, ``"15%"``, or a limit, ``"up to 50"``."""

UP_TO = "up to "


def read_amount(name: str, value: object) -> Amount | None:
    """Return the amount that a number or text stands for; None for all samples (None or ``"all"``).

    A `ConfigError`, which calls it `name`, says if it is neither a whole number of at least 1, alone or after
    "up to", nor a share in (0%, 100%].

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
        number = float(amount.removesuffix("%"))
    except ValueError:
        raise invalid(name, value, "give a number, or a share such as 15%") from None
    if amount.endswith("%"):
        if not 0 < number <= 100:
            raise ConfigError(f"{name} is {text}, a share must be above 0% and at most 100%")
        if amount != text:
            raise invalid(name, text, "give a number after 'up to', or the share alone")
        return text
    if not number.is_integer():
        raise invalid(name, text, "give a whole number, or a share such as 15%")
    if number < 1:
        raise invalid(name, text, "at least 1 is needed")
    return int(number) if amount == text else f"{UP_TO}{int(number)}"


def most(amount: Amount | None) -> int | None:
    """Return the largest number that an amount stands for; None if that depends on how many there are.

    Examples
    --------
    >>> most(50), most("up to 50"), most("15%")
    (50, 50, None)
    """
    if isinstance(amount, str):
        return int(amount.removeprefix(UP_TO)) if amount.startswith(UP_TO) else None
    return amount


def count(name: str, amount: Amount | None, total: int) -> int:
    """Return how many of `total` samples an amount stands for; a `ConfigError` if none, or too many."""
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
    """What is held out: a share of the samples, or a fold from 1 on; fold 0 is each in its turn."""

    share: float = 0.0
    folds: int = 0
    fold: int = 0

    def __str__(self) -> str:
        if not self.folds:
            return f"{self.share:g}"
        return f"fold:{self.fold}/{self.folds}" if self.fold else f"cv:{self.folds}"

    @property
    def in_turn(self) -> bool:
        """Whether each fold is held out in its turn, so that a run with all labels holds out none."""
        return bool(self.folds and not self.fold)


def read_validation(value: object) -> HeldOut | None:
    """Return what is held out by a share between 0 and 1, ``cv:K`` or ``fold:I/K``; None for nothing.

    Examples
    --------
    >>> str(read_validation("20%")), str(read_validation("cv:5")), read_validation("fold:2/5").fold
    ('0.2', 'cv:5', 2)
    """
    if value is None or value == "":
        return None
    text = str(value).strip()
    if found := re.fullmatch(r"cv:(\d+)|fold:(\d+)/(\d+)", text):
        folds, fold = int(found[1] or found[3]), int(found[2] or 0)
        if folds >= 2 and (found[1] or 1 <= fold <= folds):
            return HeldOut(folds=folds, fold=fold)
    else:
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if 0 < share < 1:
            return HeldOut(share)
    remedy = (
        "give a share of the labels between 0 and 1, such as 0.2, or cv:K with at least 2 folds, such as cv:5"
    )
    raise invalid("validation", text, remedy)


def hold_out(samples: "Samples", what: HeldOut, seed: int, whose: str) -> "tuple[Samples, Samples]":
    """Divide samples into those to train on and those held out, stratified by class; a seed decides which.

    With a share, the only sample of a class stays in training. With folds it is in one of them. The samples
    of a group stay together, so that classes get their share as far as groups allow; unless a whole number of
    such shares makes 1, groups are drawn without regard to classes. A `ConfigError`, which calls the samples'
    owner `whose`, says if there are too few.
    """
    import numpy as np
    import torch
    from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

    labels = samples.y.cpu().numpy()
    regression, random = labels.dtype.kind == "f", seed % 2**32
    positions = np.arange(len(labels))
    try:
        if samples.groups is not None:
            held = _held_groups(labels, samples.groups.cpu().numpy(), what, random)
        elif what.folds:
            kind = KFold if regression else StratifiedKFold
            with warnings.catch_warnings():
                # A class with fewer samples than folds is not in every fold.
                warnings.simplefilter("ignore", UserWarning)
                parts = list(kind(what.folds, shuffle=True, random_state=random).split(positions, labels))
            _, held = parts[what.fold - 1]
        else:
            classes = None if regression else labels
            if classes is not None:
                names, counts = np.unique(labels, return_counts=True)
                positions = positions[np.isin(labels, names[counts > 1])]
                classes = labels[positions]
            _, held = train_test_split(positions, test_size=what.share, stratify=classes, random_state=random)
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


def _held_groups(
    labels: "NDArray[Any]", groups: "NDArray[Any]", what: HeldOut, random: int
) -> "NDArray[Any]":
    """Return the positions of samples to hold out, in whole groups."""
    import numpy as np
    from sklearn.model_selection import GroupShuffleSplit, KFold, StratifiedGroupKFold

    parts = what.folds or round(1 / what.share)
    whole = what.folds or (parts > 1 and parts * what.share == 1)
    names = np.unique(groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class with fewer samples than parts
        if not whole:
            splitter = GroupShuffleSplit(1, test_size=what.share, random_state=random)
            divided = [held for _, held in splitter.split(labels, labels, groups)]
        elif labels.dtype.kind == "f":
            dealt = KFold(parts, shuffle=True, random_state=random).split(names)
            divided = [np.flatnonzero(np.isin(groups, names[held])) for _, held in dealt]
        else:
            splitter = StratifiedGroupKFold(parts, shuffle=True, random_state=random)
            divided = [held for _, held in splitter.split(labels, labels, groups)]
    held: NDArray[Any] = divided[what.fold - 1 if what.fold else 0]
    return held
