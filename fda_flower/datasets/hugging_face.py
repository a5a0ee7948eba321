"""Data sets of Hugging Face, from the hub or a folder, divided into domains."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.images import LOOKED_AT, MEMORY_LIMIT, common_size
from fda_flower.datasets.own_data import found_names, read_size, unusable
from fda_flower.datasets.preparation import ImagePreparation, pixels_of, size_of
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.registry import Sources
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.table import Survey, divide, split_of, survey
from fda_flower.datasets.table_files import RawTable
from fda_flower.datasets.table_options import Meaning, read_names
from fda_flower.errors import ConfigError, unknown
from fda_flower.files import derive_seed
from fda_flower.names import split_names

SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes."""


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

    def open(self, data_dir: Path | None) -> dict[str, Any]:
        """Return the parts ``train`` and, if there is one, ``test``; raise a `ConfigError` on failure."""
        from datasets.load import load_dataset, load_from_disk

        place = self._place(data_dir)
        try:
            if isinstance(place, Path) and any((place / name).exists() for name in SAVED):
                found = load_from_disk(str(place))
            else:
                found = load_dataset(str(place), self.subset or None)
        except Exception as error:  # Many kinds: the hub's, pyarrow's, of files.
            what = f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
            remedy = "give a name on the hub or a folder by --dataset-option path=..., or the folder alone by"
            raise unusable("data set", place, what, f"{remedy} --data-dir") from error
        parts = found if isinstance(found, Mapping) else {self.split: found}
        for option, name in (("split", self.split), ("test_split", self.test_split)):
            if name not in parts and (name or option == "split"):
                raise unknown(f"part of the option '{option}'", name, parts)
        names = {"train": self.split, "test": self.test_split}
        return {part: parts[name] for part, name in names.items() if name}

    def _place(self, data_dir: Path | None) -> Path | str:
        if data_dir is not None and (data_dir / self.path).is_dir():
            return data_dir / self.path
        if not self.path:
            message = "data set 'hf' needs a name on the hub, by --dataset-option path=NAME, or a folder, by "
            raise ConfigError(f"{message}--data-dir", thing="option 'path'")
        local = Path(self.path).expanduser()
        return local if local.is_dir() else self.path

    def domains(self, parts: Mapping[str, Any], seed: int) -> dict[str, dict[str, Any]]:
        """Return the parts of each domain; raise a `ConfigError` if column or partitioner is unusable."""
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
            what = f"partitioner '{self.partitioner}' refuses '{self.partitioner_options}' ({error})"
            example = "partitioner_options=num_partitions:4,partition_by:label"
            remedy = f"give its arguments as --dataset-option {example}"
            raise ConfigError(what, thing="partitioner", value=self.partitioner, remedy=remedy) from error


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
            f"--dataset-option {option}=COLUMN, not '{name}'",
            thing=f"option '{option}'",
            value=name,
        )


def class_names_of(data: Any, column: str) -> tuple[str, ...]:
    """Return the class names of a column; empty if it has none."""
    return tuple(getattr(data.features[column], "names", None) or ())


def words(data: Any, column: str) -> list[str]:
    """Return a column as text; classes by their names."""
    names = class_names_of(data, column)
    return ["" if value is None else names[value] if names else str(value) for value in data[column]]


def image_column(data: Any) -> str:
    """Return the first column of images; empty if there is none."""
    kinds: Iterable[tuple[str, Any]] = data.features.items()
    return next((name for name, kind in kinds if type(kind).__name__ == "Image"), "")


Parts = Mapping[str, Any]
"""The samples of a domain, ``train`` and ``test``, as data sets of the library `datasets`."""


def complete(
    folder: Path | None, options: Mapping[str, Any], target: str | None, only_sources: Sources = None
) -> dict[str, Any]:
    """Return the options that follow from a data set: domains and image size."""
    if "domains" in options:
        return {}
    given = {name: str(options[name]) for name in Source.__dataclass_fields__ if name in options}
    source = Source(**given)
    parts = source.open(folder)
    names = list(source.domains(parts, 0))
    if source.domain:
        names = list(found_names("hf", folder or Path(source.path), names, "a data set"))
    found = {"domains": ",".join(names)}
    column = image_column(parts["train"])
    if column and "image_size" not in options:
        shown = parts["train"].select(range(min(LOOKED_AT, len(parts["train"]))))
        sizes = Counter(size_of(image) for image in shown[column])
        found["image_size"] = "x".join(map(str, common_size(sizes)))
    return found


class HuggingFace(Splits):
    """The domains of a data set of the library `datasets`, a fifth for testing, balanced by class.

    With a column of images, the samples are images, else rows as in the data set ``table``. Raise a
    `ConfigError` if the data set cannot be read, a column is missing, or values are unusable.

    `seed` draws the test samples and seeds a partitioner that has no seed. `docs/own-data.md` describes the
    options.
    """

    def __init__(
        self,
        data_dir: Path | None,
        seed: int,
        domains: str,
        path: str = "",
        subset: str = "",
        split: str = "train",
        test_split: str = "",
        domain: str = "",
        partitioner: str = "",
        partitioner_options: str = "",
        label: str = "label",
        image_size: str | int = "",
        ignore: str = "",
        missing: Literal["refuse", "mean"] = "refuse",
        categorical: Literal["refuse", "onehot"] = "refuse",
        text: str = "",
    ) -> None:
        super().__init__(split_names("option 'domains'", domains), self._split)
        self._data_dir, self._seed = data_dir, seed
        self._source = Source(path, subset, split, test_split, domain, partitioner, partitioner_options)
        left_out = (*read_names("ignore", ignore), domain)
        self._meaning = Meaning(label, "", left_out, missing == "mean", categorical == "onehot", text=text)
        self._size = read_size(str(image_size)) if image_size else None

    @cached_property
    def _there(self) -> dict[str, Parts]:
        """The domains present on this machine."""
        parts = self._source.open(self._data_dir)
        for data in parts.values():
            check_column("label", self._meaning.label, data)
        wanted, found = list(self), self._source.domains(parts, self._seed)
        return {name: each for name, each in found.items() if name in wanted}

    def _split(self, domain: str) -> Split:
        if domain not in self._there:
            what = f"the data set has no sample of the domain '{domain}'"
            remedy = f"of the option 'domains' it has {', '.join(self._there) or 'none'}"
            raise ConfigError(what, thing="domain", value=domain, remedy=remedy)
        if column := image_column(next(iter(self._there[domain].values()))):
            return self._images(domain, column)
        return split_of(domain, self._survey, self._meaning, derive_seed(self._seed, domain))

    @property
    def _every_part(self) -> Iterator[Any]:
        return (data for parts in self._there.values() for data in parts.values())

    @cached_property
    def _named(self) -> tuple[str, ...]:
        """The class names of the label's column, if it has any."""
        return class_names_of(next(self._every_part), self._meaning.label)

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        label = self._meaning.label
        return self._named or tuple(sorted({w for data in self._every_part for w in words(data, label)}))

    @cached_property
    def _image_size(self) -> tuple[int, int]:
        if self._size:
            return self._size
        images = (image for data in self._every_part for image in data[image_column(data)])
        return common_size(Counter(size_of(image) for image in images))

    @cached_property
    def _survey(self) -> Survey:
        tables = {name: self._tables(name, parts) for name, parts in self._there.items()}
        found = survey(tables, len(self), replace(self._meaning, classes=self._named), Problems())
        found.problems.raise_first()
        return found

    def _images(self, domain: str, column: str) -> Split:
        parts, classes, label = self._there[domain], self._classes, self._meaning.label
        height, width = self._image_size
        total = sum(map(len, parts.values()))
        if total * 3 * height * width > MEMORY_LIMIT:
            raise ConfigError(
                f"the {total:,} images of domain '{domain}' take more than {MEMORY_LIMIT / 2**30:.0f} GiB in "
                f"{height}x{width}: give a smaller --dataset-option image_size",
                thing="domain",
                value=domain,
            )
        pixels = [pixels_of(image, height, width) for data in parts.values() for image in data[column]]
        y = torch.tensor([classes.index(word) for data in parts.values() for word in words(data, label)])
        samples = Samples(torch.from_numpy(np.stack(pixels)), y)
        divided = [part for part, data in parts.items() for _ in range(len(data))] if len(parts) > 1 else []
        train, test = divide(y, derive_seed(self._seed, domain), f"domain '{domain}'", divided)
        size = height if height == width else (height, width)
        return Split(
            samples.take(train), samples.take(test), len(classes), classes, preparation=ImagePreparation(size)
        )

    def _tables(self, name: str, parts: Parts) -> dict[str, RawTable]:
        tables = {}
        for part, data in parts.items():
            own = part if len(parts) > 1 else ""
            place, names = Path(self._source.path) / name / own, list(data.column_names)
            texts = {column: words(data, column) for column in names}
            tables[own] = RawTable(place, names, texts, np.arange(1, len(data) + 1))
        return tables
