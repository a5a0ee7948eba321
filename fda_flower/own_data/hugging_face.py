"""The data set `hf`: the samples of Hugging Face, images or rows, read and checked as own files are."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fda_flower.datasets.domains import Split
from fda_flower.datasets.folders import found_names, read_domains, read_size, unusable
from fda_flower.datasets.looks import ALL, EACH, PLAIN, ImageError, Look, LookOptions
from fda_flower.datasets.pixels import bits_in, checked, decode, depth_of, describe_bits, measured
from fda_flower.datasets.preparation import CHANNELS, ImagePreparation
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.registry import Sources
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import divide, numbered
from fda_flower.errors import ConfigError, invalid, some
from fda_flower.files import derive_seed
from fda_flower.names.options import with_options
from fda_flower.names.registry import check_alike
from fda_flower.names.tasks import NUMBERS
from fda_flower.own_data.column import Column
from fda_flower.own_data.followed import horizons_of
from fda_flower.own_data.hugging_face_source import (
    NO_DOMAIN,
    DomainRows,
    Source,
    check_column,
    check_kind,
    check_parts,
    class_names_of,
    held_by,
)
from fda_flower.own_data.image_folder import told_of_same
from fda_flower.own_data.image_names import told_by_names
from fda_flower.own_data.image_sizes import LARGEST, LOOKED_AT, Size, common_size, describe_sizes
from fda_flower.own_data.images import MEMORY_LIMIT
from fda_flower.own_data.labels import of_one
from fda_flower.own_data.survey import Survey, Surveyed
from fda_flower.own_data.table import (
    TYPES,
    Rows,
    append,
    check_owners,
    describe_columns,
    number_labels,
    split_of,
    survey,
)
from fda_flower.own_data.table_columns import SPLIT, several_rows
from fda_flower.own_data.table_files import RawTable
from fda_flower.own_data.table_options import (
    SCALE,
    Meaning,
    TableOptions,
    as_option,
    read_names,
    scale_of,
    sources_in,
)

Read = TypeVar("Read")


def complete(
    folder: Path | None, options: Mapping[str, Any], target: str | None, only_sources: Sources = None
) -> dict[str, Any]:
    """Return the missing options that follow from a data set.

    These are the domains, the size of images and, in a regression, the mean and deviation of the sources'
    labels.
    """
    source = Source(**{name: str(options[name]) for name in Source.__dataclass_fields__ if name in options})
    if "domains" in options and not isinstance(source.place(folder), Path):
        return {}
    missing: dict[str, Any] = {}
    parts, _ = source.open(folder)
    domains = source.domains(parts, 0)
    if "domains" not in options:
        missing["domains"] = ",".join(found_names("hf", Path(source.place(folder)), domains, "a data set"))
    column = image_column(parts["train"].data, read_names("ignore", str(options.get("ignore", ""))))
    looks: dict[str, Any] = {key: str(options[key]) for key in ("window", "frame", "slice") if key in options}
    look = LookOptions(**looks).look()
    if column and "image_size" not in options and (sizes := sizes_of(domains.values(), column, look)):
        missing["image_size"] = "x".join(map(str, common_size(sizes)))
    if options.get("task") == "regression" and not options.keys() >= SCALE:
        label, comma = str(options.get("label", TableOptions.label)), options.get("decimal") == "comma"
        names = read_domains(str({**options, **missing}["domains"]))
        for part in parts.values():
            check_column("label", label, part.data)
        labels = (
            part.column(label, Path(), comma).numbers
            for name in sources_in(names, target, only_sources)
            for part in domains.get(name, {}).values()
        )
        numbers = (float(number) for each in labels for number in each[np.isfinite(each)])
        missing |= scale_of(numbers, options)
    if options.get("task") == "survival" and options.get("event") and not options.get("horizons"):
        names = read_domains(str({**options, **missing}["domains"]))
        missing |= _horizons_in(names, parts, domains, options, sources_in(names, target, only_sources))
    return missing


def _horizons_in(
    names: Sequence[str],
    parts: DomainRows,
    domains: Mapping[str, DomainRows],
    options: Mapping[str, Any],
    sources: Sequence[str],
) -> dict[str, str]:
    """Return the option ``horizons`` that follows from times and events; empty without an event."""
    labels = str(options.get("label", TableOptions.label)), str(options["event"])
    for part in parts.values():
        check_column("label", labels[0], part.data)
        check_column("event", labels[1], part.data)
    comma = options.get("decimal") == "comma"
    columns = {
        name: [
            (part.column(labels[0], Path(), comma).numbers, part.column(labels[1], Path(), comma).numbers)
            for part in domains.get(name, {}).values()
        ]
        for name in names
    }
    horizons = horizons_of(columns, sources)
    return {"horizons": horizons} if horizons else {}


def image_column(data: Any, ignore: Iterable[str]) -> str:
    """Return the first column of images that is not ignored; empty if there is none."""
    columns = (name for name in data.column_names if name not in ignore)
    return next((name for name in columns if held_by(data.features[name]) == "images"), "")


def sizes_of(domains: Iterable[DomainRows], column: str, look: Look = PLAIN) -> Counter[Size]:
    """Count the sizes of up to `LOOKED_AT` images per domain, without missing and damaged ones."""
    sizes: Counter[Size] = Counter()
    for parts in domains:
        columns = [part.data[column] for part in parts.values()]
        images = [(each, position) for each in columns for position in range(len(each))]
        for each, position in images[:: -(-len(images) // LOOKED_AT) or 1]:
            with suppress(ImageError):
                sizes[measured(file_at(each, position), look)] += 1
    return sizes


def file_at(images: Any, position: int) -> bytes:
    """Return the content of the file at a position of a column; raise `ImageError` if there is none."""
    from datasets.utils.file_utils import xopen

    entry = images[position] or {}
    if (content := entry.get("bytes")) is not None:
        return bytes(content)
    if not (path := entry.get("path")):
        raise ImageError("is missing", "add it, or remove the line")
    try:
        with xopen(path, "rb") as file:
            return bytes(file.read())
    except Exception as error:  # Many kinds: of files, and of addresses.
        raise ImageError("cannot be read, as its file is not there", "put it there") from error


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions(TableOptions, Source, LookOptions):
    """The options of the data set `hf`: where the samples are, what the columns mean, and how images are."""

    image_size: str | int = ""


@with_options(HuggingFaceOptions)
class HuggingFace(Surveyed[Rows]):
    """The domains of a data set of the library `datasets`, a fifth for testing, balanced by class.

    With a column of images, the samples are images, else rows as in the data set ``table``. Raise a
    `ConfigError` if the data set cannot be read, a column is missing, or values are unusable.

    `seed` draws the test samples and seeds a partitioner that has no seed. `docs/own-data.md` describes the
    options.
    """

    name = "hf"

    def __init__(self, data_dir: Path | None, seed: int, domains: str, **options: Any) -> None:
        super().__init__(read_domains(domains), self._split)
        self._data_dir, self._seed = data_dir, seed
        self._source = given = HuggingFaceOptions(**options)
        self._given, self._look = given.meaning, given.look()
        if self._look.frame == EACH:
            raise invalid("option 'frame'", ALL, "give a number: each row is a sample", "but rows are images")
        self._size = read_size(str(given.image_size)) if given.image_size else None

    @cached_property
    def _opened(self) -> tuple[DomainRows, list[str]]:
        return self._source.open(self._data_dir)

    @cached_property
    def _there(self) -> dict[str, DomainRows]:
        """The domains present on this machine."""
        domains = self._source.domains(self._opened[0], self._seed)
        return {name: each for name, each in domains.items() if name in self.here}

    @property
    def _data(self) -> Any:
        """The data set to train on, whose columns count."""
        return self._opened[0]["train"].data

    @cached_property
    def images(self) -> str:
        """The column of images; empty if the samples are rows."""
        return image_column(self._data, self._given.ignore)

    @cached_property
    def _meaning(self) -> Meaning:
        """The meaning of the columns, with the classes that the data set names."""
        given, data = self._given, self._data
        ignore = [name for name in (*given.ignore, self._source.domain) if name in data.column_names]
        others = {*given.labels, given.group, given.text, *ignore}
        features = [name for name in data.column_names if given.categorical and name not in others]
        known = {name: names for name in features if (names := class_names_of(data, name))}
        named = given.task == "classes" and given.label in data.column_names
        classes = class_names_of(data, given.label) if named else ()
        return replace(
            given,
            ignore=tuple(ignore),
            categories={**known, **given.categories},
            classes=given.classes or classes,
        )

    def _survey(self) -> Survey[Rows]:
        problems = Problems()
        columns = self._check_columns(problems)
        self._tell_without_domain(problems)
        result = (self._survey_images if self.images else self._survey_rows)(columns, problems)
        result.notes += [*self._left_out(), *self._of_patients()]
        return result

    def _survey_images(self, columns: list[str], problems: Problems) -> Survey[Rows]:
        survey = Survey[Rows](problems=problems)
        for name in self._there:
            rows = survey.domains[name] = Rows()
            for part, table in self._tables(name, columns).items():
                append(rows, part, table, {}, self._meaning, problems)
        if {*columns}.issuperset(self._meaning.labels):
            number_labels(survey, len(self), self._meaning)
        check_owners(survey)
        survey.notes += self._told_by_images(survey)
        return survey

    def _told_by_images(self, survey: Survey[Rows]) -> list[str]:
        """Return sentences on images that are there more than once, on masks, and on names of one patient."""
        label_of, patient_of = dict[str, str](), dict[str, str]()
        same, named = dict[str, list[str]](), dict[str, list[str]]()
        for domain, rows in survey.domains.items():
            words, groups = iter(rows.words), iter(rows.groups)
            for place, image in self._images_of(domain):
                label, group = next(words, ""), next(groups, "")
                label_of[place] = label
                patient_of |= {place: f"{domain}/{group}"} if group else {}
                with suppress(ImageError):
                    same.setdefault(sha256(file_at([image], 0)).hexdigest(), []).append(place)
                if name := (image or {}).get("path"):
                    named.setdefault(f"{domain}/{label}", []).append(Path(name).name)
        notes = told_of_same([each for each in same.values() if len(each) > 1], label_of, patient_of)
        remedy = "a column of patients, by --dataset-option group=COLUMN"
        return notes if self._given.group else [*notes, *told_by_names(named, remedy)]

    def _of_patients(self) -> list[str]:
        """Return a sentence on columns of patients that are left out."""
        notes, group = dict[str, None](), self._given.group
        names = self._data.column_names if self.images else self._meaning.ignore
        columns = [
            name
            for name in names
            if name not in (*self._given.labels, self._source.domain)
            and not held_by(self._data.features[name])
        ]
        for part in (part for each in self._there.values() for part in each.values()):
            cells = (part.column(name, Path()) for name in columns)
            groups = part.column(group, Path()) if group in self._data.column_names else None
            notes |= dict.fromkeys(several_rows(cells, groups))
        return [*notes]

    def _images_of(self, domain: str) -> Iterator[tuple[str, Any]]:
        """Yield the place and the content of each image of a domain, in order."""
        for name, part in self._there[domain].items():
            path, images = self._path(name, domain), part.data[self.images]
            for position, line in enumerate(part.lines.tolist()):
                yield f"{path}, line {line}", images[position]

    def _survey_rows(self, columns: list[str], problems: Problems) -> Survey[Rows]:
        """Read rows; where an option names no readable column, the others are checked all the same."""
        meaning, tables = self._meaning, {name: self._tables(name, columns) for name in self._there}
        absent: dict[str, Any] = {
            option: "" for option in ("group", "text") if getattr(meaning, option) not in columns
        }
        categories = {name: words for name, words in meaning.categories.items() if name in columns}
        if {*columns}.issuperset(meaning.labels):
            return survey(tables, len(self), replace(meaning, categories=categories, **absent), problems)
        known = replace(meaning, categories=categories, classes=(), **absent)
        return replace(survey(tables, len(self), known, problems), classes=())

    def _check_columns(self, problems: Problems) -> list[str]:
        """Return the columns to read, and add to problems those that cannot be read, and wrong options."""
        data, given, there = self._data, self._given, []
        roles = {"label": [*given.labels], "group": [given.group]}
        if not self.images:
            roles |= {"text": [given.text], "categories": [*given.categories]}
        for option, names in {**roles, "ignore": given.ignore}.items():
            for name in filter(None, names):
                with problems.caught():
                    check_column(option, name, data)
        self._check_options(problems)
        every = [part.data for part in self._opened[0].values()]
        columns = {*data.column_names} - {*self._meaning.ignore}
        with problems.caught():
            check_alike("columns", columns)
        with problems.caught():
            check_parts(every, self._meaning.ignore)
        if self.images:
            self._check_pictures(columns, problems)
            columns &= {SPLIT}
        columns |= {name for names in roles.values() for name in names}
        for name in data.column_names:
            if name not in columns or any(name not in each.column_names for each in every):
                continue
            remedy = f"leave it out by {as_option('ignore', [name])}, or make numbers or words of it"
            if name in given.labels:
                remedy = "name another one in the option 'label'"
            with problems.caught():
                for each in every:
                    check_kind(name, each, remedy)
                there.append(name)
        return there

    def _check_pictures(self, columns: Iterable[str], problems: Problems) -> None:
        pictures = [
            name
            for name in self._data.column_names
            if name in columns and held_by(self._data.features[name]) == "images"
        ]
        for name in pictures[1:]:
            ways = " or ".join(as_option("ignore", [each]) for each in (name, self.images))
            with problems.caught():
                raise unusable(
                    "column", name, f"holds images, and so does '{self.images}'", f"leave one out by {ways}"
                )

    def _check_options(self, problems: Problems) -> None:
        """Add options that have no effect on these samples to problems."""
        given = self._given
        of_rows = {
            "text": given.text,
            "missing": given.missing,
            "categorical": given.categorical,
            "categories": given.categories,
            "decimal": given.decimal_comma,
            "task": given.task in NUMBERS,
        }
        seen = ("window", "frame", "slice")
        of_images = {"image_size": self._size, **{name: getattr(self._source, name) for name in seen}}
        of_images["depth"] = None if self._source.depth == "auto" else self._source.depth
        for option, value in (of_rows if self.images else of_images).items():
            if value:
                what = f"option '{option}' has no effect on {'images' if self.images else 'rows'}"
                with problems.caught():
                    raise ConfigError(what, thing=f"option '{option}'", value=value, remedy="leave it out")

    def _tell_without_domain(self, problems: Problems) -> None:
        for name, part in self._opened[0].items() if self._source.domain else ():
            cells = part.column(self._source.domain, self._path(name))
            cells.tell(problems, cells.where(lambda text: not text), *NO_DOMAIN)

    def _left_out(self) -> list[str]:
        """Return sentences on the parts and columns that are not used."""
        notes = []
        parts = self._opened[1]
        if parts:
            notes.append(f"parts that are not used: {', '.join(parts)}; the option 'test_split' can name one")
        used = {self.images, *self._given.labels, self._given.group, SPLIT, *self._meaning.ignore}
        data = self._data
        others = [
            name
            for name in data.column_names
            if name not in used and held_by(data.features[name]) != "images"
        ]
        if self.images and others:
            notes.append(f"columns that are not used, as the samples are images: {some(others)}")
        return notes

    def _path(self, part: str, domain: str = "") -> Path:
        place = Path(self._source.place(self._data_dir))
        return place / (part if len(self._opened[0]) > 1 else "") / domain

    def _tables(self, domain: str, columns: Iterable[str]) -> dict[str, RawTable]:
        tables, several, meaning = {}, len(self._opened[0]) > 1, self._meaning
        for name, part in self._there[domain].items():
            path = self._path(name, domain)
            stand_in = dict.fromkeys(meaning.ignore, "") | dict.fromkeys(
                meaning.labels, "0"
            )  # if it cannot be read
            cells = {
                each: Column(each, [text] * len(part.lines), path, part.lines)
                for each, text in stand_in.items()
            }
            cells |= {each: part.column(each, path, meaning.decimal_comma) for each in columns}
            tables[name if several else ""] = RawTable(path, list(cells), cells, part.lines)
        return tables

    def inputs(self, options: Mapping[str, Any]) -> str:
        """Return the columns in words, or decode all images, and return their sizes."""
        if not self.images:
            return describe_columns(self.survey, self._meaning.text)
        sizes: Counter[Size] = Counter()
        for name in self._there:
            read = partial(checked, look=self._look_of(name))
            sizes.update(self._each(name, read, self.survey.problems))
        return describe_sizes(sizes, options)

    @cached_property
    def _image_size(self) -> Size:
        sizes = Counter[Size]() if self._size else sizes_of(self._there.values(), self.images, self._look)
        return self._size or (common_size(sizes) if sizes else (LARGEST, LARGEST))

    def _look_of(self, domain: str, tell: bool = False) -> Look:
        """Return how images are looked at; the bits that those of 16 bits use are told if not given."""
        if self._source.depth != "auto":
            return self._look
        bits = bits_in(self._each(domain, bytes, Problems()))
        if tell and (note := describe_bits(bits)):
            self.note(f"hf: domain {domain}: {note}")
        return self._source.look(depth_of(bits))

    def _each(self, domain: str, read: Callable[[bytes], Read], problems: Problems) -> Iterator[Read]:
        """Yield what `read` finds in each image of a domain; those that it cannot read become problems."""
        for name, part in self._there[domain].items():
            images = part.data[self.images]
            for position, line in enumerate(part.lines.tolist()):
                try:
                    yield read(file_at(images, position))
                except ImageError as error:
                    problems.add(error.problem(self._path(name, domain), line, self.images))

    def _split(self, domain: str) -> Split:
        if domain not in self._there:
            what = f"the data set has no sample of the domain '{domain}'"
            remedy = f"of the option 'domains' it has {', '.join(self._there) or 'none'}"
            raise ConfigError(what, thing="domain", value=domain, remedy=remedy)
        survey, meaning, seed = self.sound, self._meaning, derive_seed(self._seed, domain)
        if survey.classes != meaning.classes and len(self._there) == 1 < len(self):
            self.note(of_one("hf", domain, len(survey.classes)))
        if self.images:
            return self._images(domain, survey, seed)
        return split_of(domain, survey, meaning, seed, self.note)

    def _images(self, domain: str, survey: Survey[Rows], seed: int) -> Split:
        height, width = self._image_size
        rows, problems = survey.domains[domain], Problems()
        if rows.samples * CHANNELS * height * width > MEMORY_LIMIT:
            what = f"has {rows.samples:,} images, which take more than {MEMORY_LIMIT / 2**30:.0f} GiB in "
            remedy = "give a smaller size by --dataset-option image_size"
            raise unusable("domain", domain, f"{what}{height}x{width}", remedy)
        look = self._look_of(domain, tell=True)
        pixels = list(self._each(domain, lambda file: decode(file, height, width, look), problems))
        problems.raise_first()
        task, classes = self._given.task, survey.classes or survey.labels
        y = survey.numbers[domain].astype(TYPES[task])
        groups = numbered(rows.groups) if rows.groups else None
        samples = Samples(np.stack(pixels), y, groups=groups, what=task)
        where = f"domain '{domain}'"
        train, test = divide(y, seed, where, rows.parts, rows.groups, classes, self.note)
        given = {"image_size": self._size is not None, "depth": self._source.depth != "auto"}
        found = tuple(name for name, is_given in given.items() if not is_given)
        size = height if height == width else (height, width)
        preparation = ImagePreparation(size, look.depth, found, *self._source.of_volumes)
        return Split(samples.take(train), samples.take(test), len(classes), classes, preparation=preparation)
