"""Which rows of a table are for training, and which for testing."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from fda_flower.datasets.features import balanced
from fda_flower.datasets.own_data import PARTS
from fda_flower.errors import ConfigError

TEST_SHARE = 0.2
FOLDS = round(1 / TEST_SHARE)


def divide(
    y: Tensor, seed: int, where: str, parts: Sequence[str] = (), groups: Sequence[str] = ()
) -> tuple[Tensor, Tensor]:
    """Return the positions of training samples and of test samples, a fifth unless `parts` say otherwise.

    Parameters
    ----------
    y : Tensor
        The labels, shape ``(n,)``; both parts get their share of each class or, in a regression, of small and
        large ones.
    seed : int
        Determines the rows.
    where : str
        What the rows are of, for messages.
    parts : sequence of str
        Of each row ``train`` or ``test``, where somebody has divided them.
    groups : sequence of str
        Of each row its group, such as a patient, which is either for training or for testing.

    Raises
    ------
    ConfigError
        If a part is empty, or there is a single group.
    """
    if parts:
        train, test = (
            torch.tensor([i for i, part in enumerate(parts) if part == word], dtype=torch.int64)
            for word in PARTS
        )
    elif groups:
        train, test = _by_group(y, seed, where, groups)
    else:
        tested = max(1, round(TEST_SHARE * len(y)))
        train, test = balanced(y, len(y) - tested, torch.Generator().manual_seed(seed))
    for word, part in zip(PARTS, (train, test), strict=True):
        if not len(part):
            raise ConfigError(f"{where} has no row for the part '{word}': mark some, or move some there")
    return train, test


def numbered(groups: Sequence[str]) -> Tensor:
    """Return the number of each row's group, int64."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    return torch.tensor([numbers[name] for name in groups])


def _by_group(y: Tensor, seed: int, where: str, groups: Sequence[str]) -> tuple[Tensor, Tensor]:
    from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

    number = len(set(groups))
    if number < 2:
        raise ConfigError(
            f"{where} has {number} group in the column of the option 'group': it needs 2 or more"
        )
    state = seed % 2**32
    if y.is_floating_point() or number < FOLDS or int(torch.bincount(y).max()) < FOLDS:
        splitter = GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=state)
    else:
        splitter = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a class with fewer samples than folds
        train, test = next(splitter.split(y.numpy(), y.numpy(), groups))
    return torch.from_numpy(train), torch.from_numpy(test)
