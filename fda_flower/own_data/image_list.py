"""A list of images: a table, in a folder, of each file's label and, if it says so, patient and domain."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from fda_flower.datasets.folders import LISTED, unusable, visible
from fda_flower.datasets.numbers import whole
from fda_flower.datasets.problems import Problem, Problems
from fda_flower.datasets.units import TAG, Grouping, as_name
from fda_flower.errors import ConfigError, near
from fda_flower.own_data.column import Column, check_words
from fda_flower.own_data.image_folder import Files, ImageFolder
from fda_flower.own_data.labels import MULTILABEL, labels_held, several_in
from fda_flower.own_data.table_columns import check_patients, several_rows
from fda_flower.own_data.table_files import FIRST, RawTable, read_table

NAMES = ("labels", "metadata")
"""What a list of images is called, before its suffix."""
FILES = ("file", "file_name", "filename", "path", "image")
"""What its column of files is called, in either case."""


@dataclass(frozen=True)
class ListOptions:
    """The columns of a list: of one or more labels, the patient (or a DICOM file's tag), and the domain."""

    labels: tuple[str, ...] = ("label",)
    group: str = ""
    domain: str = ""
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedImages(ImageFolder):
    """The images of a folder that a list names, with their labels and, if it tells them, patients."""

    labels: Mapping[Path, str] | None = None
    patients: Mapping[Path, str] | None = None

    @cached_property
    def classes(self) -> Files:
        """The images by label."""
        by_class: Files = {}
        for path in self.images:
            by_class.setdefault((self.labels or {})[path], []).append(self.place / path)
        return dict(sorted(by_class.items()))

    def patient_of(self, path: Path) -> str:
        """Return the patient of an image; empty if unknown."""
        if self.patients is None:
            return super().patient_of(path)
        return self.patients[path.relative_to(self.place)]

    @property
    def names_patients(self) -> bool:
        """Whether the patient of each image is known."""
        return self.patients is not None or super().names_patients

    def check(self, thing: str, remedy: str, in_classes: bool = True) -> None:
        """Raise a `ConfigError` if no image is listed, or DICOM files do not name their patients."""
        if not self.images:
            raise unusable(thing, self.place, "has no image in its list", remedy)
        if self.grouping is not None:
            self.grouping.check(thing, self.place, [self.place / path for path in self.images])


def list_in(folder: Path, only_of_files: bool = False) -> Path | None:
    """Return the list of images in a folder, if there is one; raise a `ConfigError` if there are several.

    With `only_of_files`, a table without a column of files is none.
    """
    if not folder.is_dir():
        return None
    files = (path for path in visible(folder) if path.suffix.lower() in FIRST)
    lists = [path for path in files if path.stem.lower() in NAMES]
    if only_of_files:
        lists = [path for path in lists if names_files(path)]
    if len(lists) > 1:
        names = " and ".join(path.name for path in lists)
        raise unusable("folder", folder, f"has two lists of images, {names}", "keep one of them")
    return lists[0] if lists else None


def names_files(path: Path) -> bool:
    """Return whether a table has a column of files."""
    with suppress(ConfigError):
        return bool(_of_files(read_table(path, problems=Problems(), ahead=True).header))
    return False


def domains_of(path: Path, domain: str) -> list[str]:
    """Return the domains of a list, which a column names; raise a `ConfigError` if it does not."""
    check_domain(path, domain)
    table = read_table(path, problems=Problems(), ahead=True)
    if domain not in table.header:
        raise _no_column(table, "domain", domain)
    return sorted({*table.columns[domain].texts} - {""})


def check_domain(path: Path, domain: str) -> None:
    """Raise a `ConfigError` if no option names the column of domains in a list for all of them."""
    if not domain:
        what = "lists the images of all domains, but no option says which column names the domain"
        remedy = "give --dataset-option domain=COLUMN, or put a list into the folder of each domain"
        raise unusable("data file", path, what, remedy)


def no_list(root: Path, option: str, name: str) -> ConfigError:
    """Return the error of an option that names a column where no list of images is."""
    lists = f"'{root / NAMES[0]}.csv'" + ("" if option == "domain" else " or in the domains' folders")
    what = f"the option '{option}' names a column of a list of images, and there is none: {lists}"
    return ConfigError(what, thing=f"option '{option}'", value=name, remedy="put one there, or leave it out")


def has_column(path: Path, name: str) -> bool:
    """Return whether a list has a column."""
    return name in read_table(path, problems=Problems(), ahead=True).header


def _of_files(header: Iterable[str]) -> list[str]:
    return [name for name in header if name.casefold() in FILES]


def read_list(
    path: Path, folder: ImageFolder, options: ListOptions, problems: Problems, notes: list[str]
) -> dict[str, ListedImages]:
    """Return the images of a folder, in which the list is, by domain; the only one is ``""`` without domains.

    What is wrong with its lines is added to `problems`, and what it leaves out to `notes`. Raises a
    `ConfigError` if it lacks a column.
    """
    table = read_table(path, problems=problems)
    file = _file_column(table)
    in_tag = options.group == TAG and TAG not in table.header
    group = "" if in_tag else options.group
    columns = {**dict.fromkeys(options.labels, "label"), group: "group", options.domain: "domain"}
    for name, option in columns.items():
        if name and name not in table.header:
            raise _no_column(table, option, name)
    files = _files(table.columns[file], folder, problems)
    labels = _labels([table.columns[name] for name in options.labels], options, problems)
    domains = table.columns[options.domain].texts if options.domain else [""] * len(table)
    if options.domain:
        cells = table.columns[options.domain]
        cells.tell(
            problems, cells.where(lambda text: not text), "no domain", "fill it in, or remove the line"
        )
    patients = _patients(table, group, problems)
    notes += _notes(table, {file, *columns}, group, folder, files)
    by_domain: dict[str, dict[Path, tuple[str, str]]] = {}
    for at, (image, domain) in enumerate(zip(files, domains, strict=True)):
        if image is not None and (domain or not options.domain):
            by_domain.setdefault(domain, {})[image] = labels[at], patients[at] if patients else ""
    grouping = Grouping.read(TAG) if in_tag else None
    return {
        domain: ListedImages(
            folder.place,
            tuple(sorted(rows)),
            others=(),
            empty=(),
            grouping=grouping,
            look=folder.look,
            labels={image: label for image, (label, _) in rows.items()},
            patients={image: patient for image, (_, patient) in rows.items()} if patients else None,
        )
        for domain, rows in by_domain.items()
    }


def _file_column(table: RawTable) -> str:
    names = _of_files(table.header)
    if len(names) == 1:
        return names[0]
    what = "has no column of files" if not names else f"has several columns of files, {', '.join(names)}"
    raise unusable("data file", table.path, what, f"call one of them file: it has {', '.join(table.header)}")


def _no_column(table: RawTable, option: str, name: str) -> ConfigError:
    what = (
        f"'{table.path}' has no column '{name}', which the option '{option}' names{near(name, table.header)}"
    )
    remedy = f"give --dataset-option {option}=COLUMN, or call a column so: it has {', '.join(table.header)}"
    if option == "label":
        remedy += "; for several labels of each image give task=multilabel and label=A,B"
    return ConfigError(what, thing=f"option '{option}'", value=name, remedy=remedy)


def _files(column: Column, folder: ImageFolder, problems: Problems) -> list[Path | None]:
    """Return the image of each row, relative to the folder; None, with a problem, if it is not there."""
    images, others = ({path.as_posix(): path for path in each} for each in (folder.images, folder.others))
    seen, files = set[Path](), list[Path | None]()
    for text, line in zip(column.texts, column.lines.tolist(), strict=True):
        image = images.get(PurePosixPath(text).as_posix())
        if image is None or image in seen:
            why = WRONG["twice"] if image else _why(text, PurePosixPath(text).as_posix() in others)
            problems.add(Problem(*why, column.path, line, column.name))
            image = None
        else:
            seen.add(image)
        files.append(image)
    return files


WRONG = {
    "missing": ("no file", "fill it in, or remove the line"),
    "outside": (
        "a file outside the folder of the list",
        "put it into that folder, and give its path from there, without '..'",
    ),
    "windows": ("a path with \\", "write / in its place"),
    "other": ("a file that is no image", "save it as an image, or remove the line"),
    "nowhere": (
        "a file that is not there",
        "correct its path, from the folder of the list on and with the suffix, or remove the line",
    ),
    "twice": ("a file for the second time", "keep one of its lines"),
}
"""What is wrong with a row's file, and what to do."""


def _why(text: str, is_other: bool) -> tuple[str, str]:
    if not text:
        return WRONG["missing"]
    if (
        text.startswith(("/", "~"))
        or PureWindowsPath(text).drive
        or ".." in text.replace("\\", "/").split("/")
    ):
        return WRONG["outside"]
    if "\\" in text:
        return WRONG["windows"]
    return WRONG["other" if is_other else "nowhere"]


def _labels(columns: Sequence[Column], options: ListOptions, problems: Problems) -> list[str]:
    """Return the label of each row, and add those that are missing, or several, to problems.

    Of several labels in columns of their own it is `as_one`.
    """
    if len(columns) > 1:
        held = labels_held(columns, problems)
        return list(map(as_one, np.isin(held, 1.0).astype(int).tolist()))
    (column,) = columns
    empty = column.where(lambda text: not text or (text.lower() in ("?", "na", "n/a", "nan", "null")))
    column.tell(problems, empty, "no label", "fill it in, or remove the line")
    several = {*several_in(column.different)} - {*options.classes}
    column.tell(problems, column.where(several.__contains__), "several labels", MULTILABEL)
    with problems.caught():
        check_words([column])
    return [whole(text) for text in column.texts]


def as_one(labels: Iterable[int]) -> str:
    """Return several labels of an image, 0 or 1, as one text: its class among `ListedImages.classes`.

    Examples
    --------
    >>> as_one([0, 1, 1]), from_one("0 1 1")
    ('0 1 1', [0, 1, 1])
    """
    return " ".join(map(str, labels))


def from_one(label: str) -> list[int]:
    """Return several labels from the text of `as_one`."""
    return list(map(int, label.split()))


def _patients(table: RawTable, name: str, problems: Problems) -> list[str]:
    """Return the patient of each row; empty if no column names them."""
    if not name:
        return []
    check_patients(table.columns[name], problems)
    with problems.caught():
        check_words([table.columns[name]], patients=True)
    return list(map(as_name, table.columns[name].texts))


def _notes(
    table: RawTable, used: Collection[str], group: str, folder: ImageFolder, files: Iterable[Path | None]
) -> list[str]:
    """Return sentences on columns that are not read, columns of patients, and images that no row names."""
    others = [name for name in table.header if name not in used]
    notes = [f"columns of '{table.path}' that are not read: {', '.join(others)}"] if others else []
    groups = table.columns[group] if group else None
    notes += several_rows((table.columns[name] for name in others), groups)
    if unnamed := sorted({*folder.images} - {*files}):
        listed = ", ".join(map(str, unnamed[:LISTED]))
        more = f" and {len(unnamed) - LISTED} more" if len(unnamed) > LISTED else ""
        notes.append(
            f"images that no row of '{table.path}' names are left out: {len(unnamed):,}, {listed}{more}"
        )
    return notes
