"""How raw samples become the inputs of a network: fitted to training samples, kept with data and model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from fda_flower.datasets.image_files import ImageFiles
from fda_flower.errors import unknown

Numbers = Sequence[float] | Tensor
"""A column."""


class Preparation(ABC):
    """What is done to raw samples before a network sees them; a dataclass, whose fields JSON can hold."""

    kind: ClassVar[str]

    @abstractmethod
    def apply(self, raw: Any) -> Tensor:
        """Return the inputs of raw samples, as `Samples` holds them in ``x``."""

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
        read = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return PREPARATIONS[kind](**read)


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """Columns of numbers, standardised.

    Attributes
    ----------
    columns : tuple of str
        The names of the raw columns, in the order of the features.
    mean, deviation : tuple of float
        Of each column in the domain's training samples; the deviation of a constant column is 1.

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
    kind: ClassVar[str] = "table"

    @classmethod
    def fit(cls, raw: Mapping[str, Numbers], train: Tensor) -> "TablePreparation":
        """Return the preparation for columns in this order, fitted to the rows at the positions `train`."""
        rows = _rows(raw, tuple(raw))[train]
        deviation, mean = torch.std_mean(rows, dim=0, correction=0)
        constant = rows.amax(dim=0) == rows.amin(dim=0)
        return cls(tuple(raw), tuple(mean.tolist()), tuple(deviation.where(~constant, 1.0).tolist()))

    def apply(self, raw: Mapping[str, Numbers]) -> Tensor:
        """Return the features of rows, float32, shape ``(n, columns)``.

        Parameters
        ----------
        raw : Mapping
            By name, the numbers of each column; others than `columns` are not used.
        """
        mean, deviation = (
            torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.deviation)
        )
        return ((_rows(raw, self.columns) - mean) / deviation).float()


@dataclass(frozen=True)
class ImagePreparation(Preparation):
    """Image files, decoded as RGB and resized.

    Attributes
    ----------
    size : int
        Height and width, in pixels.
    """

    size: int
    kind: ClassVar[str] = "images"

    def apply(self, raw: Sequence[Path]) -> Tensor:
        """Return the images in files, uint8, shape ``(n, 3, size, size)``; they are decoded when indexed."""
        return cast(Tensor, ImageFiles(tuple(raw), self.size))


PREPARATIONS: dict[str, type[Preparation]] = {
    kind.kind: kind for kind in (TablePreparation, ImagePreparation)
}
"""The preparations by kind. A new one is a class and its name here."""


def _rows(raw: Mapping[str, Numbers], columns: Sequence[str]) -> Tensor:
    return torch.stack([torch.as_tensor(raw[name], dtype=torch.float64) for name in columns], dim=1)
