"""A data set's samples by domain: what data sets return, and what clients get."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fda_flower.datasets.samples import Samples


@dataclass(frozen=True)
class Split:
    """A data set before it is shifted, or one of its own domains.

    Attributes
    ----------
    train, test : Samples
        Samples to train on, and to test on.
    classes : int
        Number of classes; of outputs where the task is a regression.
    class_names, features : tuple of str
        Names of the classes and of the features, in order; empty where they have none.
    """

    train: "Samples"
    test: "Samples"
    classes: int
    class_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class Splits(Mapping[str, Split]):
    """The domains of a data set, each read once, when it is asked for: a site has no files but its own.

    Parameters
    ----------
    names : tuple of str
        The domains.
    read : callable
        From a domain's name to its samples.
    """

    def __init__(self, names: tuple[str, ...], read: Callable[[str], Split]) -> None:
        self._names = names
        self._read = cache(read)

    def __getitem__(self, name: str) -> Split:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Domain:
    """One client's data."""

    name: str
    train: "Samples"
    test: "Samples"
