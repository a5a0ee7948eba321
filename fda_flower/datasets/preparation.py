"""How raw samples become the inputs of a network: fitted to training samples, kept with data and model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fda_flower.datasets.image_files import ImageFiles
from fda_flower.errors import unknown

Numbers = Sequence[float] | Tensor | NDArray[Any]
"""A column of numbers, NaN where one is missing."""

Column = Numbers | Sequence[str]
"""A column of numbers, or of categories, empty where one is missing."""


class Preparation(ABC):
    """What is done to raw samples before a network sees them; a dataclass, whose fields JSON can hold."""

    kind: ClassVar[str]

    @abstractmethod
    def apply(self, raw: Any) -> Tensor:
        """Return the inputs of raw samples, as `Samples` holds them in ``x``."""

    def labels(self, outputs: Tensor) -> Tensor:
        """Return the labels that a regression's outputs stand for, in their own unit."""
        return outputs

    def to_json(self) -> dict[str, Any]:
        """Return the preparation as a JSON object, for `from_json`."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Preparation":
        """Return the preparation that `to_json` described.

        Raises
        ------
        ConfigError
            If its kind is unknown.
        """
        fields = dict(found)
        kind = str(fields.pop("kind", None))
        if kind not in PREPARATIONS:
            raise unknown("kind of preparation", kind, PREPARATIONS)
        return PREPARATIONS[kind](**{name: _hashable(value) for name, value in fields.items()})


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """Columns of numbers and of categories as features, standardised.

    Attributes
    ----------
    columns : tuple of str
        The names of the raw columns, in the order of the features.
    mean, deviation : tuple of float
        Of each feature in the domain's training samples; the deviation of a constant one is 1.
    fill : tuple of float
        Of each feature, what replaces a missing number: the mean of those in the domain's training samples.
        Empty if none may be missing.
    categories : tuple
        The columns that are categories, each a tuple of its name and its categories: a feature for each
        category is 1 where the row has it. A missing category, or one that is not listed, has none.
    baseline : tuple
        The categories that have no feature, each a tuple of its column and itself.
    label_mean, label_deviation : float
        In a regression, the network predicts ``(label - label_mean) / label_deviation``.

    Examples
    --------
    >>> preparation = TablePreparation.fit({"age": [50, 70, 90]}, train=torch.tensor([0, 1]))
    >>> preparation.mean, preparation.deviation
    ((60.0,), (10.0,))
    >>> preparation.apply({"age": [50, 90]}).tolist()
    [[-1.0], [3.0]]
    """

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    fill: tuple[float, ...] = ()
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    label_mean: float = 0.0
    label_deviation: float = 1.0
    baseline: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "table"

    @classmethod
    def fit(
        cls,
        raw: Mapping[str, Column],
        train: Tensor,
        categories: Mapping[str, Sequence[str]] | None = None,
        missing: bool = False,
        baseline: Mapping[str, str] | None = None,
    ) -> "TablePreparation":
        """Return the preparation for columns in this order, fitted to the rows at the positions `train`.

        Parameters
        ----------
        raw : Mapping
            The columns by name.
        train : Tensor
            Positions of the training samples.
        categories : Mapping, optional
            The categories of the columns that have any.
        missing : bool
            Whether numbers may be missing.
        baseline : Mapping, optional
            By column, a category without a feature.
        """
        listed = {name: tuple(values) for name, values in (categories or {}).items() if name in raw}
        rows = _features(raw, tuple(raw), listed)[train]
        fill: tuple[float, ...] = ()
        if missing:
            known = rows.isnan().logical_not().sum(dim=0).clamp(min=1)
            means = torch.from_numpy(np.nansum(rows.numpy(), axis=0)) / known
            fill = tuple(means.tolist())
            rows = rows.where(~rows.isnan(), means)
        deviation, mean = torch.std_mean(rows, dim=0, correction=0)
        constant = rows.amax(dim=0) == rows.amin(dim=0)
        spread = tuple(deviation.where(~constant, 1.0).tolist())
        named = tuple((baseline or {}).items())
        return cls(tuple(raw), tuple(mean.tolist()), spread, fill, tuple(listed.items()), baseline=named)

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """All categories by column, those without a feature among them."""
        first = dict(self.baseline)
        return {
            name: (*([first[name]] if name in first else []), *others) for name, others in self.categories
        }

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features: a column's, or ``COLUMN=CATEGORY``."""
        listed = dict(self.categories)
        return tuple(
            feature
            for name in self.columns
            for feature in ([f"{name}={each}" for each in listed[name]] if name in listed else [name])
        )

    def labels(self, outputs: Tensor) -> Tensor:
        """Return the labels that a regression's outputs stand for, in the unit of the table."""
        return outputs.double() * self.label_deviation + self.label_mean

    def outputs(self, labels: Tensor) -> Tensor:
        """Return a regression's labels as the network predicts them, float32, shape ``(n, 1)``."""
        return ((labels.double() - self.label_mean) / self.label_deviation).float()[:, None]

    def apply(self, raw: Mapping[str, Column]) -> Tensor:
        """Return the features of rows, float32, shape ``(n, features)``.

        Parameters
        ----------
        raw : Mapping
            By name, the numbers or the categories of each column; others than `columns` are not used.
        """
        rows = _features(raw, self.columns, dict(self.categories))
        mean, deviation = (
            torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.deviation)
        )
        if self.fill:
            rows = rows.where(~rows.isnan(), torch.tensor(self.fill, dtype=torch.float64))
        return ((rows - mean) / deviation).float()


@dataclass(frozen=True)
class ImagePreparation(Preparation):
    """Image files, decoded as RGB and resized.

    Attributes
    ----------
    size : int or (int, int)
        Height and width, in pixels.
    """

    size: int | tuple[int, int]
    kind: ClassVar[str] = "images"

    def apply(self, raw: Sequence[Path]) -> Tensor:
        """Return the images in files, uint8, ``(n, 3, height, width)``; they are decoded when indexed."""
        return cast(Tensor, ImageFiles(tuple(raw), self.size))


PREPARATIONS: dict[str, type[Preparation]] = {
    kind.kind: kind for kind in (TablePreparation, ImagePreparation)
}
"""The preparations by kind. A new one is a class and its name here."""


def _features(
    raw: Mapping[str, Column], columns: Sequence[str], categories: Mapping[str, Sequence[str]]
) -> Tensor:
    """Return the features before they are filled in and standardised, float64."""
    return torch.cat(
        [
            _indicators(cast(Sequence[str], raw[name]), categories[name])
            if name in categories
            else torch.as_tensor(raw[name], dtype=torch.float64)[:, None]
            for name in columns
        ],
        dim=1,
    )


def _indicators(cells: Sequence[str], categories: Sequence[str]) -> Tensor:
    column, listed = (np.array(words, dtype=object) for words in (cells, categories))
    return torch.from_numpy((column[:, None] == listed).astype(np.float64))


def _hashable(value: Any) -> Any:
    """Return the tuples of which JSON has made lists."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
