"""Transforms from raw samples to a network's inputs, fitted to training samples and stored with the model."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.columns import FARTHEST, Columns
from fda_flower.datasets.folders import LISTED, unusable
from fda_flower.datasets.looks import EACH, MOST, PLAIN, ImageError, Look
from fda_flower.datasets.pixels import decode, faults, frames_of
from fda_flower.errors import ConfigError, unknown
from fda_flower.models.tokens import tokens as tokens_of

Array = NDArray[Any]

Column = Sequence[float] | Sequence[str] | Array
"""A column of numbers (NaN if missing), of categories (empty if missing), or of texts."""


CHANNELS = 3


ONE_SEARCH = Lock()
"""Threads that meet damaged images at a time search for the others only once."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files in place of an array in `Samples`: selected as files, decoded when indexed.

    `size` is the height and width of the resized images in pixels, and `look` how they are looked at. If they
    are `small`, `in_memory` decodes them. `frames` has the number of each one's frame, from 1, if files of
    several are here.
    """

    paths: tuple[Path, ...]
    size: int | tuple[int, int]
    small: bool = False
    look: Look = PLAIN
    frames: tuple[int, ...] = ()
    dtype: ClassVar[np.dtype[np.uint8]] = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(n, 3, height, width)``."""
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return len(self), CHANNELS, height, width

    @cached_property
    def in_memory(self) -> "NDArray[np.uint8] | ImageFiles":
        """The decoded images if they are small; else the files."""
        return self[:] if self.small else self

    def listing(self) -> bytes:
        """Return the names of the files, with their folders', and their sizes; 0 for one that is missing."""
        sizes = (path.stat().st_size if path.exists() else 0 for path in self.paths)
        frames = [f" {frame}" for frame in self.frames] or [""] * len(self)
        rows = zip(self.paths, sizes, frames, strict=True)
        return "\n".join(
            f"{path.parent.name}/{path.name} {size}{frame}" for path, size, frame in rows
        ).encode()

    def take(self, positions: NDArray[np.int64], axis: int = 0) -> "ImageFiles":
        """Return the files at positions, not decoded; the axis is 0."""
        chosen = positions.tolist()
        frames = tuple(self.frames[i] for i in chosen) if self.frames else ()
        return replace(self, paths=tuple(self.paths[i] for i in chosen), frames=frames)

    def joined(self, others: "ImageFiles") -> "ImageFiles":
        """Return these files followed by others of the same size and look."""
        return replace(self, paths=self.paths + others.paths, frames=self.frames + others.frames)

    def __getitem__(self, indices: NDArray[np.int64] | slice) -> NDArray[np.uint8]:
        """Return the images at positions, uint8, shape ``(images, 3, height, width)``.

        Raise a `ConfigError` if a file cannot be decoded; it also names other such files.
        """
        chosen = range(len(self))[indices] if isinstance(indices, slice) else indices.tolist()
        images = np.empty((len(chosen), *self.shape[1:]), dtype=np.uint8)
        with ThreadPoolExecutor() as pool:
            decoder = pool.map if len(chosen) > 1 else map  # a thread costs as much as a small image
            for i, image in enumerate(decoder(self._decode, chosen)):
                if isinstance(image, ImageError):
                    raise self._unusable(self.paths[chosen[i]], image) from image
                images[i] = image
        return images

    def look_at(self, place: int) -> Look:
        """Return how the image at a place is looked at."""
        return self.look.at(self.frames[place]) if self.frames else self.look

    def _decode(self, place: int) -> NDArray[np.uint8] | ImageError:
        try:
            return decode(self.paths[place], self.shape[2], self.shape[3], self.look_at(place))
        except ImageError as error:
            return error

    @cached_property
    def _damaged(self) -> list[Path | None]:
        return [problem.path for problem in faults(dict.fromkeys(self.paths), self.look)]

    def _unusable(self, path: Path, error: ImageError) -> ConfigError:
        with ONE_SEARCH:
            others = [str(other) for other in self._damaged if other != path]
        more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
        also = f" (others that cannot be used: {', '.join(others[:LISTED])}{more})" if others else ""
        return unusable("image", path, f"{error.what}{also}", error.remedy)


class Preparation(ABC):
    """A transform of raw samples to a network's inputs: a dataclass of JSON values."""

    kind: ClassVar[str]

    @property
    def follows_from_all_rows(self) -> tuple[str, ...]:
        """What follows from all the domain's samples, in words; each then affects the inputs of all."""
        return ()

    def is_like(self, other: object) -> bool:
        """Return whether another preparation is the same, up to the rounding of another machine."""
        return self == other

    @abstractmethod
    def apply(self, raw: Any) -> Any:
        """Return the inputs of raw samples, for ``Samples.x``."""

    def labels(self, outputs: Array) -> Array:
        """Return a regression's outputs in the labels' own unit."""
        return outputs

    @property
    def columns_of_numbers(self) -> int:
        """The number of features that are standardised columns of a table."""
        return 0

    def in_columns(self, common: Columns) -> "Preparation":
        """Return the preparation whose features are standardised by common means and deviations."""
        return self

    def restandardised(self, features: Array, common: Columns) -> Array:
        """Return features of this preparation as the ones of `in_columns`."""
        return features

    def described(self, features: Array) -> Columns:
        """Return mean and deviation of the columns' values, from features of this preparation."""
        return Columns(np.zeros(0), np.zeros(0))

    def to_json(self) -> dict[str, Any]:
        """Return the preparation as a JSON object, for `from_json`."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Preparation":
        """Return the preparation of a JSON object; raise a `ConfigError` if its kind is unknown."""
        fields = dict(content)
        kind = str(fields.pop("kind", None))
        if kind not in PREPARATIONS:
            raise unknown("kind of preparation", kind, PREPARATIONS)
        return PREPARATIONS[kind](**{name: _hashable(value) for name, value in fields.items()})


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """Turns columns of numbers and categories into standardised features, followed by a text's tokens.

    Attributes
    ----------
    columns : tuple of str
        The raw columns without the text's, in the order of the features.
    mean, deviation : tuple of float
        Each feature's mean and deviation in the domain's training samples, or in several domains'; see
        `in_columns`. A constant's deviation is 1.
    fill : tuple of float
        Each feature's replacement for a missing number; empty if none may be missing.
    categories : tuple
        Categorical columns, each with its categories, which are 0-1 features. A missing or unlisted category
        has all features 0.
    baseline : tuple
        Columns, each with a category that has no feature.
    text : str
        The column of texts, which become tokens (`fda_flower.models.tokens`); empty for none.
    farthest : float, optional
        Bound on a standardised feature, where mean and deviation are of several domains.
    fitted : tuple
        Mean and deviation of the domain's own training rows in that case; its data are known by them.
    label_mean, label_deviation : float
        In a regression, the network predicts ``(label - label_mean) / label_deviation``.

    Examples
    --------
    >>> preparation = TablePreparation.fit({"age": [50, 70, 90]}, train=np.array([0, 1]))
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
    text: str = ""
    farthest: float | None = None
    fitted: tuple[tuple[float, ...], ...] = ()
    kind: ClassVar[str] = "table"

    def is_like(self, other: object) -> bool:
        """Compare the figures of the training samples up to rounding."""
        if not isinstance(other, TablePreparation):
            return False
        figures = [(own.mean, own.deviation, own.fill, *own.fitted) for own in (self, other)]
        plain = [replace(own, mean=(), deviation=(), fill=(), fitted=()) for own in (self, other)]
        return (plain[0], *map(len, figures[0])) == (plain[1], *map(len, figures[1])) and all(
            np.allclose(one, two, rtol=1e-6) for one, two in zip(*figures, strict=True)
        )

    @classmethod
    def fit(
        cls,
        raw: Mapping[str, Column],
        train: NDArray[np.int64],
        categories: Mapping[str, Sequence[str]] | None = None,
        missing: bool = False,
        baseline: Mapping[str, str] | None = None,
        text: str = "",
    ) -> "TablePreparation":
        """Return the preparation for columns in this order, fitted to the rows at the positions `train`.

        `categories` has the categories of each categorical column, without its `baseline`, which gets no
        feature. With `missing`, numbers may be missing. `text` is the column of texts.
        """
        listed = {name: tuple(values) for name, values in (categories or {}).items() if name in raw}
        columns = tuple(name for name in raw if name != text)
        if not columns:
            return cls((), (), (), text=text)
        rows = _features(raw, columns, listed)[train]
        fill: tuple[float, ...] = ()
        if missing:
            known = (~np.isnan(rows)).sum(axis=0)
            if not known.all():
                named_features = [name for name in columns for _ in listed.get(name, (name,))]
                name = named_features[int(known.argmin())]
                remedy = "fill some in, or leave the column out by the option 'ignore'"
                what = (
                    f"column '{name}' has no value in a row for training, so that missing ones have no mean"
                )
                raise ConfigError(what, thing="column", value=name, remedy=remedy)
            means = np.nansum(rows, axis=0) / known
            # Rounded, the mean of equal values may be another one, and their column would vary.
            means = means.clip(np.nanmin(rows, axis=0), np.nanmax(rows, axis=0))
            fill = tuple(means.tolist())
            rows = np.where(np.isnan(rows), means, rows)
        fitted = Columns.of_rows(rows)
        spread = np.where(fitted.deviations > 0, fitted.deviations, 1.0)
        mean, deviation = (tuple(each.tolist()) for each in (fitted.means, spread))
        named = tuple((baseline or {}).items())
        return cls(columns, mean, deviation, fill, tuple(listed.items()), baseline=named, text=text)

    @property
    def follows_from_all_rows(self) -> tuple[str, ...]:
        """The means of numbers and categories; texts need none."""
        return ("the mean of each column",) if self.columns else ()

    @property
    def raw(self) -> tuple[str, ...]:
        """All raw columns, the text's last."""
        return (*self.columns, *([self.text] if self.text else []))

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """All categories by column, including the baselines."""
        first = {name: (word,) for name, word in self.baseline}
        return {name: (*first.get(name, ()), *others) for name, others in self.categories}

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features: ``COLUMN`` or ``COLUMN=CATEGORY``; a text has one."""
        words = {name: [f"{name}={word}" for word in listed] for name, listed in self.categories}
        return tuple(feature for name in self.raw for feature in words.get(name, [name]))

    def labels(self, outputs: Array) -> Array:
        """Return a regression's outputs in the unit of the table's labels, float64."""
        return outputs.astype(np.float64) * self.label_deviation + self.label_mean

    def outputs(self, labels: Array) -> NDArray[np.float32]:
        """Return a regression's labels in the network's scale, float32, shape ``(n, 1)``."""
        return _finite(
            ((labels.astype(np.float64) - self.label_mean) / self.label_deviation)[:, None], ["label"]
        )

    def apply(self, raw: Mapping[str, Column]) -> NDArray[np.float32]:
        """Return the features of rows, float32, shape ``(n, features)``; `raw` may hold further columns.

        The last `fda_flower.models.tokens.LENGTH` are a text's tokens.
        """
        if not self.text:
            return self._standardised(raw)
        tokens = tokens_of(cast(Sequence[str], raw[self.text]))
        return np.concatenate([self._standardised(raw), tokens], axis=1) if self.columns else tokens.copy()

    def values(self, raw: Mapping[str, Column]) -> NDArray[np.float64] | None:
        """Return the features of rows without the text's, as read, NaN for a missing value.

        None without columns.
        """
        known = dict(self.categories)
        return _features(raw, self.columns, known, np.nan) if self.columns else None

    def _standardised(self, raw: Mapping[str, Column]) -> NDArray[np.float32]:
        rows = _features(raw, self.columns, dict(self.categories))
        if self.fill:
            rows = np.where(np.isnan(rows), np.array(self.fill), rows)
        features = _finite((rows - np.array(self.mean)) / np.array(self.deviation), self.features)
        return features if self.farthest is None else features.clip(-self.farthest, self.farthest)

    @property
    def columns_of_numbers(self) -> int:
        """The number of features without the text's."""
        return len(self.mean)

    @property
    def common(self) -> Columns | None:
        """The means and deviations of several domains; None if the domain's own standardise it."""
        if self.farthest is None:
            return None
        return Columns(np.array(self.mean), np.array(self.deviation))

    def in_columns(self, common: Columns) -> "TablePreparation":
        """Return the preparation whose features are standardised by common means and deviations."""
        deviations = np.where(common.deviations > 0, common.deviations, 1.0)
        means, spread = tuple(common.means.tolist()), tuple(deviations.tolist())
        fitted = self.mean, self.deviation
        return replace(self, mean=means, deviation=spread, farthest=FARTHEST, fitted=fitted)

    def restandardised(self, features: Array, common: Columns) -> Array:
        """Return features of this preparation as features of `in_columns`; a text's tokens stay."""
        number = len(self.mean)
        if features.shape[1] < number:  # samples without inputs
            return features
        own = features[:, :number].astype(np.float64)
        values = own * np.array(self.deviation) + np.array(self.mean)
        moved = common.of(values).astype(features.dtype)
        return np.concatenate([moved, features[:, number:]], axis=1)

    def described(self, features: Array) -> Columns:
        """Return mean and deviation of the columns' values; a constant column's deviation is 0."""
        scaled = Columns.of_rows(features[:, : len(self.mean)].astype(np.float64))
        mean, size = np.array(self.mean), np.array(self.deviation)
        return Columns(mean + size * scaled.means, size * scaled.deviations)


@dataclass(frozen=True)
class ImagePreparation(Preparation):
    """Image files, decoded as RGB and resized to a height and width in pixels.

    `depth` is the number of bits that the values of images of 16 bits use; `window`, `frame` and `slice` are
    the options of these names. `found` are the options, of ``image_size`` and ``depth``, that are not given,
    but found in the domain's images.
    """

    size: int | tuple[int, int]
    depth: int = MOST
    found: tuple[str, ...] = field(default=(), compare=False)
    window: str = ""
    frame: str = ""
    slice: str = ""
    kind: ClassVar[str] = "images"

    @property
    def follows_from_all_rows(self) -> tuple[str, ...]:
        """The options that are not given."""
        return self.found

    @property
    def look(self) -> Look:
        """How images are looked at."""
        return Look.read(self.depth, self.window, self.frame, self.slice)

    def apply(self, raw: Sequence[Path]) -> ImageFiles:
        """Return the images in files, uint8, ``(n, 3, height, width)``; they are decoded when indexed.

        With each frame as a sample, there may be more of them than files.
        """
        return files_of(raw, self.size, self.look)


def files_of(raw: Sequence[Path], size: int | tuple[int, int], look: Look) -> ImageFiles:
    """Return the images in files, each frame that is a sample; raise a `ConfigError` if one is damaged."""
    if look.frame != EACH:
        return ImageFiles(tuple(raw), size, look=look)
    samples = [(path, frame) for path in raw for frame in _frames(path, look)]
    paths, frames = (tuple(each) for each in zip(*samples, strict=True))
    return ImageFiles(paths, size, look=look, frames=frames)


def _frames(path: Path, look: Look) -> Iterable[int]:
    try:
        return frames_of(path, look)
    except ImageError as error:
        raise unusable("image", path, error.what, error.remedy) from error


PREPARATIONS: dict[str, type[Preparation]] = {"table": TablePreparation, "images": ImagePreparation}
"""The preparations by kind. Add one with a class and its name here."""


def _features(
    raw: Mapping[str, Column],
    columns: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    lacking: float = 0.0,
) -> NDArray[np.float64]:
    """Return the features before filling in and standardising, float64; `lacking` is a missing category's."""
    features = []
    for name in columns:
        cells: Any = raw[name]
        if name in categories:
            cells, listed = (np.array(words, dtype=object) for words in (cells, categories[name]))
            words = np.where((cells == "")[:, None], lacking, cells[:, None] == listed)
            features.append(words.astype(np.float64))
        else:
            features.append(np.asarray(cells, np.float64)[:, None])
    return np.concatenate(features, axis=1)


def _finite(scaled: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float32]:
    """Return standardised columns as float32; raise a `ConfigError` on the first that overflows."""
    with np.errstate(over="ignore"):
        rounded = scaled.astype(np.float32)
    if wrong := np.flatnonzero(np.isinf(rounded).any(axis=0)).tolist():
        name = names[wrong[0]]
        what = f"'{name}' has a number that is too far from those in training to be standardised"
        raise ConfigError(what, thing="column", value=name, remedy="correct it, or leave its row out")
    return rounded


def _hashable(value: Any) -> Any:
    """Turn JSON's lists back into tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
