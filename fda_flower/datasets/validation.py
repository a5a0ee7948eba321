"""Labels that are held out from training to choose by: a share of them, or one of several folds."""

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fda_flower.errors import invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fda_flower.datasets.samples import Samples


@dataclass(frozen=True)
class HeldOut:
    """What is held out.

    Attributes
    ----------
    share : float
        The share of the samples; 0 with folds.
    folds : int
        How many folds the samples are dealt into; 0 with a share.
    fold : int
        The fold that is held out, from 1 on; 0 if each is in its turn, in a run of its own.
    """

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
    """Return what a setting says is held out; None for nothing.

    Raises
    ------
    ConfigError
        If it is neither a share between 0 and 1, nor ``cv:K``, nor ``fold:I/K``.

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
    raise invalid(
        "validation",
        text,
        (
            "give a share of the labels between 0 and 1, such as 0.2, or cv:K "
            "with at least 2 folds, such as cv:5"
        ),
    )


def hold_out(samples: "Samples", what: HeldOut, seed: int, whose: str) -> "tuple[Samples, Samples]":
    """Divide samples into those to train on and those held out, stratified by class; a seed decides which.

    With a share, the only sample of a class stays in training. With folds it is in one of them. The samples
    of a group stay together, so that classes get their share as far as groups allow; unless a whole number of
    such shares makes 1, groups are drawn without regard to classes.

    Raises
    ------
    ConfigError
        If there are too few; the message calls their owner `whose`.
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
