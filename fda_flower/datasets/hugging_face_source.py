"""Hugging Face's data sets: opened from the hub or a folder, and divided into domains."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fda_flower.datasets.own_data import PARTS
from fda_flower.errors import ConfigError, unknown

SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes."""


@dataclass(frozen=True)
class Source:
    """Where the samples are, and what divides them; the fields are options of the data set `hf`.

    Attributes
    ----------
    path : str
        A name on the hub, or a folder.
    subset : str
        The configuration of a data set of the hub.
    split, test_split : str
        The parts to train on and to test on; without the latter, a fifth of the first is tested on.
    domain : str
        The column that names the domain.
    partitioner, partitioner_options : str
        A partitioner of ``flwr_datasets`` instead, with its arguments as ``name:value,name:value``.
    """

    path: str
    subset: str
    split: str
    test_split: str
    domain: str
    partitioner: str
    partitioner_options: str

    def __post_init__(self) -> None:
        if bool(self.domain) == bool(self.partitioner):
            raise ConfigError(
                "data set 'hf' needs what divides it into domains: give --dataset-option domain=COLUMN, or "
                "partitioner=NAME, one of flwr_datasets.partitioner"
            )

    def open(self, data_dir: Path | None) -> dict[str, Any]:
        """Return the parts ``train`` and, if there is one, ``test``.

        Raises
        ------
        ConfigError
            If the data set or a part cannot be found or read.
        """
        from datasets.load import load_dataset, load_from_disk

        place = self._place(data_dir)
        try:
            if isinstance(place, Path) and any((place / name).exists() for name in SAVED):
                found = load_from_disk(str(place))
            else:
                found = load_dataset(str(place), self.subset or None)
        except Exception as error:  # Many kinds: the hub's, pyarrow's, of files.
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"the data set '{place}' cannot be read ({type(error).__name__}: {reason}): give a name on "
                "the hub or a folder by --dataset-option path=..., or the folder alone by --data-dir"
            ) from error
        parts = found if isinstance(found, Mapping) else {self.split: found}
        if self.split not in parts:
            raise unknown("part of the option 'split'", self.split, parts)
        if self.test_split and self.test_split not in parts:
            raise unknown("part of the option 'test_split'", self.test_split, parts)
        names = zip(PARTS, (self.split, self.test_split), strict=True)
        return {part: parts[name] for part, name in names if name}

    def _place(self, data_dir: Path | None) -> Path | str:
        if data_dir is not None and (data_dir / self.path).is_dir():
            return data_dir / self.path
        if not self.path:
            raise ConfigError(
                "data set 'hf' needs a name on the hub, by --dataset-option path=NAME, or a folder, by "
                "--data-dir"
            )
        local = Path(self.path).expanduser()
        return local if local.is_dir() else self.path

    def domains(self, parts: Mapping[str, Any], seed: int) -> dict[str, dict[str, Any]]:
        """Return the parts of each domain, by name.

        Raises
        ------
        ConfigError
            If there is no such column or partitioner, or it refuses its arguments.
        """
        found: dict[str, dict[str, Any]] = {}
        for part, data in parts.items():
            divided = self._by_column(data) if self.domain else self._partitioned(data, seed)
            for name, samples in divided.items():
                found.setdefault(name, {})[part] = samples
        return dict(sorted(found.items())) if self.domain else found

    def _by_column(self, data: Any) -> dict[str, Any]:
        check_column("domain", self.domain, data)
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(words(data, self.domain)):
            positions.setdefault(name, []).append(position)
        return {name: data.select(where) for name, where in positions.items()}

    def _partitioned(self, data: Any, seed: int) -> dict[str, Any]:
        from flwr_datasets import partitioner

        kinds = [name for name in partitioner.__all__ if name.endswith("Partitioner")]
        if self.partitioner not in kinds:
            raise unknown("partitioner", self.partitioner, kinds)
        build = getattr(partitioner, self.partitioner)
        options = dict(_option(text) for text in self.partitioner_options.split(",") if text)
        try:
            made = build(**options)
            if hasattr(made, "_seed") and "seed" not in options:
                made = build(**options, seed=seed % 2**32)
            made.dataset = data
            return {f"partition-{i}": made.load_partition(i) for i in range(made.num_partitions)}
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"partitioner '{self.partitioner}' refuses '{self.partitioner_options}' ({error}): give its "
                "arguments as --dataset-option partitioner_options=num_partitions:4,partition_by:label"
            ) from error


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition(":")
    try:
        return name.strip(), ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name.strip(), value


def check_column(option: str, name: str, data: Any) -> None:
    """Raise a `ConfigError` if a data set has no column that an option names."""
    if name not in data.column_names:
        raise ConfigError(
            f"the data set has the columns {', '.join(data.column_names)}: name one of them by "
            f"--dataset-option {option}=COLUMN, not '{name}'"
        )


def class_names_of(data: Any, column: str) -> tuple[str, ...]:
    """Return the names that a column of classes has; empty if it has none."""
    return tuple(getattr(data.features[column], "names", None) or ())


def words(data: Any, column: str) -> list[str]:
    """Return a column as text; classes by their names."""
    names = class_names_of(data, column)
    return [names[value] if names and value is not None else _text(value) for value in data[column]]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def image_column(data: Any) -> str:
    """Return the first column of images; empty if there is none."""
    kinds: Iterable[tuple[str, Any]] = data.features.items()
    return next((name for name, kind in kinds if type(kind).__name__ == "Image"), "")
