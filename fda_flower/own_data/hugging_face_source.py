"""Data sets of Hugging Face, from the hub or a folder, divided into domains."""

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.datasets.folders import PARTS_OF_ONE, unusable
from fda_flower.datasets.numbers import Array
from fda_flower.errors import ConfigError, invalid, near, some, unknown
from fda_flower.names.registry import check_alike
from fda_flower.names.words import counted
from fda_flower.own_data.column import Column
from fda_flower.own_data.table_options import as_option

SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes."""

POSITION = "fda-flower position"
"""A column for a partitioner to deal, of the rows' positions."""


@dataclass(frozen=True)
class NumberedRows:
    """Samples as a data set of the library `datasets`, with the line of each: its row, counted from 1."""

    data: Any
    lines: Array

    @classmethod
    def whole(cls, data: Any) -> "NumberedRows":
        """Return all rows of a data set."""
        return cls(data, np.arange(1, len(data) + 1))

    def take(self, positions: list[int]) -> "NumberedRows":
        """Return the rows at positions."""
        return NumberedRows(self.data.select(positions), self.lines[positions])

    def column(self, name: str, path: Path, comma: bool = False) -> Column:
        """Return a column as text."""
        return Column(name, [word.strip() for word in words(self.data, name)], path, self.lines, comma)


DomainRows = Mapping[str, NumberedRows]
"""The samples of a domain, ``train`` and ``test``."""


@dataclass(frozen=True)
class Source:
    """The samples' place, and their division into domains; the fields are options of the data set `hf`."""

    path: str = ""
    subset: str = ""
    split: str = "train"
    test_split: str = ""
    domain: str = ""
    partitioner: str = ""
    partitioner_options: str = ""

    def __post_init__(self) -> None:
        if bool(self.domain) == bool(self.partitioner):
            raise ConfigError(
                "data set 'hf' needs what divides it into domains: give --dataset-option domain=COLUMN, or "
                "partitioner=NAME, one of flwr_datasets.partitioner",
                thing="option 'domain'",
                value=self.domain,
            )
        if self.test_split == self.split:
            why = "but these are the samples to train on, by the option 'split'"
            raise invalid("option 'test_split'", self.test_split, "name another part, or leave it out", why)

    def open(self, data_dir: Path | None) -> tuple["DomainRows", list[str]]:
        """Return the parts ``train`` and, if there is one, ``test``, and the names of parts not used.

        Raise a `ConfigError` on failure.
        """
        tables = self._found(data_dir)
        for option, name in (("split", self.split), ("test_split", self.test_split)):
            if name not in tables and (name or option == "split"):
                raise unknown(f"part of the option '{option}'", name, tables)
        names = {"train": self.split, "test": self.test_split}
        parts = {part: NumberedRows.whole(readable(tables[name])) for part, name in names.items() if name}
        return parts, [name for name in tables if name not in names.values()]

    def _found(self, data_dir: Path | None) -> Mapping[str, Any]:
        from datasets.load import load_dataset, load_from_disk

        place = self.place(data_dir)
        where = str(place.absolute() if isinstance(place, Path) else place)  # a folder, whatever its name is
        try:
            if isinstance(place, Path) and any((place / name).exists() for name in SAVED):
                loaded = load_from_disk(where)
            else:
                loaded = load_dataset(where, self.subset or None)
        except Exception as error:  # Many kinds: the hub's, pyarrow's, of files.
            what = f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
            remedy = "give a name on the hub or a folder by --dataset-option path=..., or the folder alone by"
            raise unusable("data set", place, what, f"{remedy} --data-dir") from error
        if isinstance(loaded, Mapping):
            return loaded
        return {self.split if self.split == str(loaded.split) else "train": loaded}

    def place(self, data_dir: Path | None) -> Path | str:
        """Return the data set's folder, or its name on the hub; raise a `ConfigError` if none is given."""
        if data_dir is not None and (data_dir / self.path).is_dir():
            return data_dir / self.path
        if not self.path:
            if data_dir is not None:
                remedy = "correct it, or give a name on the hub by --dataset-option path=NAME"
                raise invalid("data-dir", data_dir, remedy, "which is not a folder on this machine")
            message = "data set 'hf' needs a name on the hub, by --dataset-option path=NAME, or a folder, by "
            raise ConfigError(f"{message}--data-dir", thing="option 'path'")
        local = Path(self.path).expanduser()
        return local if local.is_dir() else self.path

    def domains(self, parts: DomainRows, seed: int) -> dict[str, dict[str, NumberedRows]]:
        """Return the parts of each domain; raise a `ConfigError` if column or partitioner is unusable.

        Rows without a domain are in none.
        """
        by_domain: dict[str, dict[str, NumberedRows]] = {}
        for name, part in parts.items():
            divided = self._by_column(part.data) if self.domain else self._partitioned(part, seed)
            for domain, positions in divided.items():
                by_domain.setdefault(domain, {})[name] = part.take(positions)
        if not by_domain:
            what = "by which the data set is divided into domains, has no value in any row"
            raise unusable("column", self.domain, what, "name another one in the option 'domain'")
        check_alike("domains", by_domain)
        return dict(sorted(by_domain.items())) if self.domain else by_domain

    def _by_column(self, data: Any) -> dict[str, list[int]]:
        check_column("domain", self.domain, data)
        check_kind(self.domain, data, "name another one in the option 'domain'")
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(words(data, self.domain)):
            positions.setdefault(name, []).append(position)
        return {name: where for name, where in positions.items() if name}

    def _partitioned(self, part: NumberedRows, seed: int) -> dict[str, list[int]]:
        from flwr_datasets import partitioner

        kinds = [
            name for name in partitioner.__all__ if name.endswith("Partitioner") and "Vertical" not in name
        ]
        if self.partitioner not in kinds:
            raise unknown("partitioner", self.partitioner, kinds)
        build = getattr(partitioner, self.partitioner)
        options = read_arguments(self.partitioner_options)
        if isinstance(by := options.get("partition_by"), str):
            if by not in part.data.column_names:
                raise unknown("column of partition_by", by, part.data.column_names)
            if missing := [
                line for line, word in zip(part.lines, words(part.data, by), strict=True) if not word
            ]:
                what = f"by which the partitioner divides, has no value in line {missing[0]}"
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                raise unusable("column", by, what + more, "fill it in, or remove these rows")
        try:
            made = build(**options)
            if hasattr(made, "_seed") and "seed" not in options:
                made = build(**options, seed=seed % 2**32)
            made.dataset = part.data.add_column(POSITION, range(len(part.data)))
            dealt = [list(made.load_partition(i)[POSITION]) for i in range(made.num_partitions)]
        except Exception as error:  # A partitioner raises errors of many kinds.
            what = f"partitioner '{self.partitioner}' refuses '{self.partitioner_options}' ({error})"
            example = "partitioner_options=num_partitions:4,partition_by:label"
            remedy = f"give its arguments as --dataset-option {example}"
            raise ConfigError(what, thing="partitioner", value=self.partitioner, remedy=remedy) from error
        return {f"partition-{i}": positions for i, positions in enumerate(dealt)}


def readable(data: Any) -> Any:
    """Return a data set whose columns give Python's numbers and words, and images that are not decoded.

    It may have been saved in another format, such as tensors.
    """
    undecoded = data.with_format(None)
    for name, feature in data.features.items():
        if held_by(feature) == "images":
            undecoded = undecoded.cast_column(name, replace(feature, decode=False))
    return undecoded


END = 2**16
"""The bytes at a Parquet file's end in which the library `datasets` writes its name."""


def is_shard(path: Path) -> bool:
    """Return whether a file is a part of a data set in Parquet: by its name, or as the library wrote it."""
    if path.suffix.lower() != ".parquet":
        return False
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
    if stem != path.stem or stem.lower() in PARTS_OF_ONE:
        return True
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - END, 0))
        return b"huggingface" in file.read()


def is_saved(folder: Path) -> bool:
    """Return whether a folder holds a data set of the library `datasets`, or Parquet files."""
    return any((folder / name).exists() for name in SAVED) or any(folder.glob("*.parquet"))


def read_arguments(text: str) -> dict[str, Any]:
    """Parse a partitioner's arguments.

    Examples
    --------
    >>> read_arguments("partition_by:label,alpha:0.5,partition_sizes:[20, 30],self_balancing:false")
    {'partition_by': 'label', 'alpha': 0.5, 'partition_sizes': [20, 30], 'self_balancing': False}
    """
    arguments: dict[str, Any] = {}
    for argument in re.split(r",(?![^\[(]*[\])])", text) if text else ():
        name, colon, value = (each.strip() for each in argument.partition(":"))
        if not (name and colon and value) or name in arguments:
            remedy = "give arguments, each of them once, such as num_partitions:4,partition_by:label"
            raise invalid("option 'partitioner_options'", text, remedy)
        try:
            arguments[name] = ast.literal_eval(value.title() if value in ("true", "false") else value)
        except (SyntaxError, ValueError):
            arguments[name] = value
    return arguments


def check_column(option: str, name: str, data: Any) -> None:
    """Raise a `ConfigError` if a data set has no column that an option names."""
    if name not in data.column_names:
        what = f"the data set has no column '{name}', which the option '{option}' names"
        raise ConfigError(
            f"{what}{near(name, data.column_names)}",
            thing=f"option '{option}'",
            value=name,
            remedy=f"give --dataset-option {option}=COLUMN with one of {some(data.column_names)}",
        )


def check_parts(parts: Sequence[Any], ignore: Collection[str]) -> None:
    """Raise a `ConfigError` if a column that is not ignored is in one part only, or differs in kind."""
    kinds = [{(name, held_by(feature)) for name, feature in part.features.items()} for part in parts]
    for one, other in pairwise(kinds):
        if differing := sorted({name for name, _ in one ^ other} - {*ignore}):
            what = f"the parts of the options 'split' and 'test_split' differ in {some(differing)}"
            remedy = f"give both the same columns, or leave them out by {as_option('ignore', differing)}"
            raise ConfigError(what, thing="columns", value=", ".join(differing), remedy=remedy)


def check_kind(name: str, data: Any, remedy: str) -> None:
    """Raise a `ConfigError` if a column holds neither numbers nor words, or classes that look alike."""
    if INDEX.fullmatch(name):
        what = "is the index of a data frame, or had no name in its file"
        raise unusable("column", name, what, f"rename it, or {remedy}")
    if held := held_by(data.features[name]):
        raise unusable("column", name, f"holds {held}", remedy)
    names = class_names_of(data, name)
    check_alike("classes", names)
    places = dict.fromkeys(range(len(names))) | {-1: None, None: None}
    if names and (
        beyond := [(row, number) for row, number in enumerate(data[name], 1) if number not in places]
    ):
        row, number = beyond[0]
        others = f" (and {counted(len(beyond) - 1, 'more line')})" if len(beyond) > 1 else ""
        has = f"is a ClassLabel with {counted(len(names), 'name')}, {some(names)}"
        what = f"{has}, but has a label {number} in line {row}{others}"
        raise unusable("column", name, what, f"number the classes from 0, or {remedy}")


def held_by(feature: Any) -> str:
    """Return in words what a column of this feature holds; empty for numbers, words and classes."""
    name, dtype = type(feature).__name__, str(getattr(feature, "dtype", ""))
    if name == "ClassLabel" or (name == "Value" and dtype.startswith(PLAIN)):
        return ""
    if name == "Value":
        return f"{'dates or times' if dtype.startswith(DATES) else 'bytes'} ({dtype})"
    return HELD.get(name, name)


PLAIN, DATES = (
    ("bool", "int", "uint", "float", "decimal", "string", "large_string", "null"),
    ("da", "ti", "du"),
)
"""How the types of numbers and words begin, and those of dates, times and durations."""
INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+")
"""A column's name that a library has made."""
HELD = {"Image": "images", "List": "lists", "LargeList": "lists", "list": "lists", "dict": "dictionaries"}


def class_names_of(data: Any, column: str) -> tuple[str, ...]:
    """Return the class names of a column; empty if it has none."""
    return tuple(getattr(data.features[column], "names", None) or ())


def words(data: Any, column: str) -> list[str]:
    """Return a column as text: classes by name, and empty text for no value and no class, such as -1."""
    names = class_names_of(data, column)
    known = dict(enumerate(names))
    if names:
        return [known.get(value, "") for value in data[column]]
    return ["" if value is None or value != value else str(value) for value in data[column]]


NO_DOMAIN = "no domain", "fill it in, or remove the line"
