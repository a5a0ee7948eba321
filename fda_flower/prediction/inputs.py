"""Raw samples of Python as a model's inputs: checked, and prepared as in training."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.preparation import ImagePreparation, Preparation, TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.prediction.columns import far_from_training, plain, read_columns

Array = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """What a model takes: samples of a `shape`, or raw ones of its `preparation`, if it has one."""

    shape: tuple[int, ...]
    preparation: Preparation | None

    def of(self, raw: Any) -> Any:
        """Return raw samples as inputs, for ``Samples.x``; see `LoadedModel.predict`."""
        preparation = self.preparation
        if hasattr(raw, "keys"):
            return self._of_columns(raw)
        if isinstance(raw, Sequence) and raw and all(isinstance(item, str | Path) for item in raw):
            if not isinstance(preparation, ImagePreparation):
                message = f"the model takes no image files: give {self._wanted}"
                raise ConfigError(message, thing="image files")
            return preparation.apply([Path(item) for item in raw])
        if isinstance(preparation, TablePreparation):
            columns = preparation.raw
            rows = _rows(raw)
            if rows.ndim != 2 or rows.shape[1] != len(columns):
                raise self._not_of(rows.shape)
            return self._of_columns(dict(zip(columns, rows.T, strict=True)))
        x = _array(raw)
        if x.shape[1:] != self.shape:
            raise self._not_of(x.shape)
        return x if x.dtype == np.uint8 else x.astype(np.float32)

    def _of_columns(self, raw: Mapping[str, Any]) -> Array:
        if not isinstance(self.preparation, TablePreparation):
            message = f"the model takes no named columns: give {self._wanted}"
            raise ConfigError(message, thing="columns")
        columns = read_columns(raw, self.preparation)
        for note in far_from_training(columns, self.preparation):
            logging.getLogger("fda_flower").warning("%s", note)
        return self.preparation.apply(columns)

    def _not_of(self, shape: tuple[int, ...]) -> ConfigError:
        message = f"the samples have shape {shape}"
        return ConfigError(message, thing="samples", value=shape, remedy=f"give {self._wanted}")

    @property
    def _wanted(self) -> str:
        if isinstance(self.preparation, TablePreparation):
            columns = self.preparation.raw
            return f"an array of shape (samples, {len(columns)}) or the columns {', '.join(columns)}"
        shape = ", ".join(map(str, self.shape))
        return f"an array of shape (samples, {shape})" + (
            " or image files" if isinstance(self.preparation, ImagePreparation) else ""
        )


@contextmanager
def read_as_in_training() -> Iterator[None]:
    """Say of images that an option would help to read that they are not like the run's, which set it."""
    try:
        yield
    except ConfigError as error:
        if error.thing != "image" or "--dataset-option" not in error.remedy:
            raise
        what = str(error).removesuffix(f": {error.remedy}")
        remedy = "save it as the run's images are, since it is read by their options"
        raise ConfigError(what, thing=error.thing, value=error.value, remedy=remedy) from error


def _rows(raw: Any) -> Array:
    """Return rows as an array; the values in a list keep their types."""
    raw = plain(raw)
    rows = np.asarray(raw) if hasattr(raw, "__array__") else np.array(raw, dtype=object)
    if not rows.size:
        raise _none()
    return rows


def _none() -> ConfigError:
    return ConfigError("there are no samples: give at least one", thing="samples", value=0)


def _array(raw: Any) -> Array:
    try:
        array = np.asarray(plain(raw))
    except (TypeError, ValueError) as error:
        message = f"the samples are no array of numbers ({error}): give one"
        raise ConfigError(message, thing="samples") from error
    if array.dtype.kind not in "biuf":
        raise ConfigError(f"the samples are no array of numbers ({array.dtype}): give one", thing="samples")
    if not array.ndim or not len(array):
        raise _none()
    return array
