"""Splits, which data sets return, and domains, which clients receive."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from fda_flower.errors import invalid
from fda_flower.names.notes import Note, warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fda_flower.aggregation import Columns
    from fda_flower.datasets.preparation import Preparation
    from fda_flower.datasets.samples import Samples


@dataclass(frozen=True)
class Split:
    """A data set before a shift is applied, or one of the data set's own domains.

    Attributes
    ----------
    train, test : Samples
        Training samples and test samples.
    classes : int
        Number of classes, or of outputs if the task is a regression.
    class_names, features : tuple of str
        Names of the classes and of the features, in order; empty if there are none.
    preparation : Preparation, optional
        The transform from raw samples to inputs. Default: none.
    cut : int
        Number of texts that are longer than the encoder reads.
    """

    train: "Samples"
    test: "Samples"
    classes: int
    class_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    preparation: "Preparation | None" = None
    cut: int = 0


class Splits(Mapping[str, Split]):
    """The domains of a data set, each read by `read` on first access: a site has only its own files.

    `here` names the domains whose files count: by default all that are on this machine; at a site its own.
    `note` takes sentences on what is left out or looks strange: by default they are logged.
    """

    def __init__(self, names: tuple[str, ...], read: Callable[[str], Split]) -> None:
        self._names = self.here = names
        self._read = cache(read)
        self.note: Note = warn

    def __getitem__(self, name: str) -> Split:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def check(self, target: str, sources: Iterable[str]) -> None:
        """Raise a `ConfigError` if the target can learn nothing from the sources on this machine."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, eq=False)
class Domain:
    """One client's data.

    Attributes
    ----------
    name : str
        Its name.
    train, test : Samples
        Labelled samples to train on, and to test on.
    unlabelled : Samples, optional
        The target's other training samples, without labels: ``y`` is -1, or NaN for a regression.
    preparation : Preparation, optional
        The transform from raw samples to inputs; it never leaves the domain.
    validation : Samples, optional
        Labelled samples held out from training.
    cut : int
        Number of the domain's texts that are longer than the encoder reads.
    statistics : NDArray, optional
        BatchNorm statistics of its own samples, with which a network computed the features that its samples
        are; they never leave the domain.
    body : callable, optional
        What makes the features that a network reads of a table's standardised columns; see `in_columns`.
    mask : bool
        Whether its labels are the pixels of masks.
    """

    name: str
    train: "Samples"
    test: "Samples"
    unlabelled: "Samples | None" = None
    preparation: "Preparation | None" = None
    validation: "Samples | None" = None
    cut: int = 0
    statistics: "NDArray[np.float32] | None" = None
    body: "Callable[[Samples], Samples] | None" = None
    mask: bool = False

    @cached_property
    def inputs(self) -> "Samples":
        """All training samples, the labelled ones first, without labels."""
        known = self.train.without_labels()
        return known if self.unlabelled is None else known.joined(self.unlabelled)

    @property
    def from_all_rows(self) -> tuple[str, str] | None:
        """By what each of its samples affects the inputs of all, in words, and a remedy; or None."""
        if self.train.outcomes is not None:
            return "the pseudo-values that are their labels", "choose another task than survival"
        if self.preparation is not None and (found := self.preparation.follows_from_all_rows):
            remedy = "choose images whose image_size and depth are given, or a column of text alone"
            return " and ".join(found), remedy
        if self.statistics is not None:
            return "its own BatchNorm statistics", "leave '+adabn' out of the model"
        if any(part.noise for part in self.parts.values()):
            return "the noise that is drawn for them together", "choose another shift"
        return None

    @property
    def columns(self) -> int:
        """The number of features that are a table's columns; 0 if there are none."""
        return 0 if self.preparation is None else self.preparation.columns_of_numbers

    def in_columns(self, common: "Columns | None") -> "Domain":
        """Return the domain as a network reads it, its columns standardised by common means and deviations.

        Without these they stay standardised by the domain's own.
        """
        parts, preparation = dict[str, Any](self.parts), self.preparation
        if common is not None and preparation is not None:
            rows = {name: preparation.restandardised(part.x, common) for name, part in parts.items()}
            parts = {name: replace(part, x=rows[name]) for name, part in parts.items()}
            preparation = preparation.in_columns(common)
        if self.body is not None:
            parts = {name: self.body(part) for name, part in parts.items()}
        return replace(self, **parts, preparation=preparation, body=None)

    def check_patients(self) -> None:
        """Raise a `ConfigError` if no noise can protect each patient, since one changes the rows of all."""
        if (found := self.from_all_rows) is not None:
            why = f"but the inputs of '{self.name}' follow from all patients, by {found[0]}"
            raise invalid("dp-unit", "patient", found[1], why)

    def labels(self, outputs: "NDArray[Any]") -> "NDArray[Any]":
        """Return a regression's outputs or scaled labels in the labels' own unit."""
        return outputs if self.preparation is None else self.preparation.labels(outputs)

    def scaled(self) -> "Domain":
        """Return a copy with images of uint8 in [0, 1]."""
        parts: Any = {name: part.scaled() for name, part in self.parts.items()}
        return replace(self, **parts)

    def in_memory(self) -> "Domain":
        """Return a copy with image files decoded, if they fit into memory."""
        decoded: Any = {name: part.in_memory() for name, part in self.parts.items()}
        return replace(self, **decoded)

    @property
    def parts(self) -> "dict[str, Samples]":
        """The samples by attribute."""
        names = ("train", "test", "unlabelled", "validation")
        return {name: part for name in names if (part := getattr(self, name)) is not None}
