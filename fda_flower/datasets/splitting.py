"""Every split of samples: into training and test, into folds, and what is held out for validation."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fda_flower.datasets.folders import LISTED, PARTS
from fda_flower.datasets.units import in_order, in_several, listed
from fda_flower.errors import ConfigError, invalid
from fda_flower.names.notes import Note, warn
from fda_flower.names.options import as_written
from fda_flower.names.words import counted

if TYPE_CHECKING:  # a run's settings are read without NumPy
    import numpy as np
    from numpy.typing import NDArray

    from fda_flower.datasets.drawing import Generator
    from fda_flower.datasets.samples import Samples

    Array = NDArray[Any]

TEST_SHARE = 0.2


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
    if match := re.fullmatch("cv:([0-9]+)|fold:([0-9]+)/([0-9]+)", text):
        folds, fold = int(match[1] or match[3]), int(match[2] or 0)
        if folds >= 2 and (match[1] or 1 <= fold <= folds):
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


def hold_out(
    samples: "Samples", what: HeldOut, seed: int, whose: str, classes: Sequence[str] = ()
) -> "tuple[Samples, Samples]":
    """Split samples at random into a training set and a held-out set, stratified by class.

    With a share, the only sample of a class stays in training; with folds it is in one of them. Samples of a
    group stay together, and classes get their share as far as groups allow. If 1 is no multiple of the share,
    groups are drawn regardless of classes. A part that lacks one of the `classes` is warned of. Raise a
    `ConfigError` on the owner `whose` if there are too few samples, or groups.
    """
    import numpy as np

    labels = samples.y
    labels = strata(labels) if samples.task == "multilabel" else labels
    if samples.outcomes is not None:  # each part gets its share of the events
        labels = samples.outcomes.events.astype(np.int64)
    needed = what.folds or 2
    if samples.groups is not None and samples.units < needed:
        why = f"but the labelled samples of {whose} are of {counted(samples.units, 'patient')}"
        remedy = f"give those of {needed} patients or more, or cv:K with a smaller K"
        raise invalid("validation", what, remedy, why)
    groups = samples.groups
    try:
        if groups is not None and not what.folds:
            held = share_of_groups(labels, groups, what.share, seed % 2**32)
        else:
            held = held_out(labels, groups, what, seed % 2**32)
    except ValueError as error:
        raise invalid(
            "validation",
            what,
            "give more labels, a larger share, or cv:K with a smaller K",
            f"but {whose} has too few labelled samples, {len(labels)} ({error})",
        ) from error
    mask = np.zeros(len(labels), bool)
    mask[held] = True
    inside, out = np.flatnonzero(~mask), np.flatnonzero(mask)
    tell_lacking(
        whose, samples.y, {f"training (validation {what})": inside, f"held-out ({what})": out}, classes
    )
    return samples.take(inside), samples.take(out)


def strata(labels: "Array") -> "Array":
    """Return the rarest of several labels that each sample has, or ``L`` for none; labels are ``(n, L)``.

    Samples are spread by it as by their class, so that each part has some of every label.

    Examples
    --------
    >>> import numpy as np
    >>> strata(np.array([[1, 0], [1, 1], [0, 0], [1, 0]])).tolist()
    [0, 1, 2, 0]
    """
    import numpy as np

    held = np.asarray(labels) > 0
    rarest = np.argsort(held.sum(axis=0), kind="stable")
    found = np.where(held.any(axis=1), rarest[held[:, rarest].argmax(axis=1)], held.shape[1])
    return np.asarray(found, np.int64)


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


def share_of_groups(labels: "Array", groups: "Array", share: float, random: int) -> "Array":
    """Return the positions of a share of the samples, in whole groups: one of several folds, by lot.

    In the first fold there is always the group that is hardest to balance, such as the largest. Groups are
    drawn regardless of classes if 1 is no multiple of the share, or they are too few.
    """
    import numpy as np

    folds = round(1 / share)
    few = len(np.unique(groups)) < folds or labels.dtype.kind == "f" or np.bincount(labels).max() < folds
    if few or folds < 2 or folds * share != 1:
        return held_out(labels, groups, HeldOut(share), random)
    turns = (HeldOut(folds=folds, fold=1 + (random + turn) % folds) for turn in range(folds))
    parts = (held_out(labels, groups, turn, random) for turn in turns)
    return next(part for part in parts if len(part))  # few groups can leave a fold empty


def balanced(labels: "Array", count: int, generator: "Generator") -> "tuple[Array, Array]":
    """Return the positions of `count` samples, spread evenly over the labels, and of the others."""
    import numpy as np

    order = generator.permutation(len(labels))
    order = order[labels[order].argsort(kind="stable")]
    due = (np.arange(len(labels) + 1) * count + len(labels) - 1) // len(labels)
    chosen = np.diff(due) > 0
    return order[chosen], order[~chosen]


def _check_apart(where: str, parts: Sequence[str], groups: Sequence[str], note: Note) -> None:
    """Raise a `ConfigError` if a given split has a group in both parts; a warning alone names it."""
    members = {
        word: [group for group, part in zip(groups, parts, strict=False) if part == word] for word in PARTS
    }
    if both := in_several(members):
        note(f"{where}: patients in training and in test: {listed(both)}")
        what = f"{where} has samples of {counted(len(both), 'patient')} both in training and in test"
        remedy = "leave them out of one part"
        raise ConfigError(what, thing="groups", value=len(both), remedy=remedy)


def tell_lacking(
    where: str, y: "Array", parts: "Mapping[str, Array]", classes: Sequence[str], note: Note = warn
) -> None:
    """Note parts, as positions in the labels `y`, that lack a class that others have; `classes`: names.

    Of several labels, ``(n, L)``, a part lacks one that no sample in it has.
    """
    for part, positions in parts.items() if classes else ():
        if lacking := sorted(_present(y) - _present(y[positions])):
            names = [classes[number] for number in lacking[:LISTED]]
            more = f" and {len(lacking) - LISTED} more" if len(lacking) > LISTED else ""
            note(f"{where}: no sample in {part} {'has' if y.ndim > 1 else 'is of'} {', '.join(names)}{more}")


def _present(y: "Array") -> set[int]:
    import numpy as np

    return {*(np.flatnonzero(y.any(axis=0)) if y.ndim > 1 else y).tolist()}


def divide_classes(y: "Array", classes: int, seed: int) -> "tuple[Array, Array]":
    """Return the positions of training and test samples: a fifth of each class, but not its only sample."""
    import numpy as np

    from fda_flower.datasets.drawing import Generator

    generator = Generator(seed)
    train, test = [], []
    for label in range(classes):
        members = np.flatnonzero(y == label)
        tested = max(1, round(TEST_SHARE * len(members))) if len(members) > 1 else 0
        members = members[generator.permutation(len(members))]
        test.append(members[:tested])
        train.append(members[tested:])
    return np.concatenate(train), np.concatenate(test)


def divide(
    y: "Array",
    seed: int,
    where: str,
    parts: Sequence[str] = (),
    groups: Sequence[str] = (),
    classes: Sequence[str] = (),
    note: Note = warn,
) -> "tuple[Array, Array]":
    """Return the positions of training and test samples; a fifth is for testing unless `parts` is given.

    Both parts get their share of each class, or of several labels, `y` of shape ``(n, L)``, see `strata`, or,
    in a regression, of small and large labels. `parts` assigns
    each row to ``train`` or ``test``, for an existing split. The rows of one of the `groups`, such as a
    patient, stay together, and the order of rows does not matter to them. A part that lacks one of the
    `classes` is noted. Raise a `ConfigError` on the rows `where` if a part is empty, or there is a single
    group.
    """
    import numpy as np

    from fda_flower.datasets.drawing import Generator

    spread = strata(y) if y.ndim > 1 else y
    if parts:
        _check_apart(where, parts, groups, note)
        train, test = (
            np.array([i for i, part in enumerate(parts) if part == word], np.int64) for word in PARTS
        )
    elif groups:
        train, test = _by_group(spread, seed, where, groups)
    else:
        tested = max(1, round(TEST_SHARE * len(y)))
        train, test = balanced(spread, len(y) - tested, Generator(seed))
    for word, part in zip(PARTS, (train, test), strict=True):
        if not len(part):
            what, remedy = f"{where} has no row for the part '{word}'", "mark some, or move some there"
            raise ConfigError(what, thing="part", value=word, remedy=remedy)
    tell_lacking(where, y, {"training": train, "test": test}, classes, note)
    return train, test


def numbered(groups: Sequence[str]) -> "Array":
    """Return the number of each row's group, int64, in the order of their names as text.

    So nothing depends on the order of the rows but the rows' own order.
    """
    import numpy as np

    numbers = {name: number for number, name in enumerate(in_order(groups))}
    return np.array([numbers[name] for name in groups], np.int64)


def _by_group(y: "Array", seed: int, where: str, groups: Sequence[str]) -> "tuple[Array, Array]":
    import numpy as np

    number = len(set(groups))
    if number < 2:
        message = f"{where} has samples of {counted(number, 'patient')} by the option 'group'"
        raise ConfigError(message, thing="groups", value=number, remedy="it needs 2 or more")
    test = np.zeros(len(y), bool)
    test[share_of_groups(y, numbered(groups), TEST_SHARE, seed % 2**32)] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def stratified(labels: "Array", num_test: int, random: int) -> "tuple[Array, Array]":
    """Return the positions of training and test samples, at random; each class has its share of both.

    They equal scikit-learn's ``train_test_split(stratify=labels)``, which draws in this order.
    """
    import numpy as np

    generator = np.random.RandomState(random)
    counts = np.bincount(labels)
    shares = _shares(counts, len(labels) - num_test, generator)
    tested = _shares(counts - shares, num_test, generator)
    ends = np.cumsum(counts)
    train, test = [], []
    for members, k, t in zip(np.split(labels.argsort(kind="stable"), ends[:-1]), shares, tested, strict=True):
        members = members[generator.permutation(len(members))]
        train.append(members[:k])
        test.append(members[k : k + t])
    first, second = (generator.permutation(np.concatenate(part)) for part in (train, test))
    return first, second


def _shares(counts: "Array", total: int, generator: "np.random.RandomState") -> "Array":
    """Share out `total` places in proportion to counts: the largest remainders first, ties by lot."""
    import numpy as np

    quotas = counts / counts.sum() * total
    shares = np.floor(quotas)
    remainders = quotas - shares
    missing = int(total - shares.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainders == remainder)
        chosen = generator.choice(tied, min(len(tied), missing), replace=False)
        shares[chosen] += 1
        missing -= len(chosen)
    whole: Array = shares.astype(np.int64)
    return whole
