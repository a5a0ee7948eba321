"""Units: which samples are one patient's, whose name is a text, and warnings about patients.

A reply may hold the message of an error: the names of patients are in warnings on the site's own screen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from fda_flower.datasets.folders import unusable
from fda_flower.errors import invalid
from fda_flower.names.registry import alike
from fda_flower.names.words import MOST_NAMED

FOLDER, TAG = "folder", "PatientID"
"""The option `group` of images that lie in a folder of their patient's, and of DICOM files that name him."""

EXAMPLE = "^([^_]+)_"
"""A pattern for names such as p01_left.png."""


@dataclass(frozen=True)
class Grouping:
    """Which image files are of one patient.

    A file's patient is in its DICOM tag if `in_tag`; else it is the first parenthesis of a `pattern` in its
    name or, without parentheses, all that matches, or without a pattern the folder that the file is in.
    """

    pattern: re.Pattern[str] | None = None
    in_tag: bool = False
    _read: dict[Path, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, text: str) -> "Grouping | None":
        """Parse the option `group` of images; None for nothing.

        Raise a `ConfigError` if it is no regular expression.

        Examples
        --------
        >>> grouping = Grouping.read("^([^_]+)_")
        >>> grouping.patient(Path("ill/p01_2.png")), grouping.levels, Grouping.read("folder").levels
        ('p01', 1, 2)
        """
        if not text:
            return None
        if text in (FOLDER, TAG):
            return cls(in_tag=text == TAG)
        try:
            return cls(re.compile(text))
        except re.error as error:
            pattern = f"a pattern of names whose first parenthesis is the patient: '{EXAMPLE}'"
            remedy = f"give {FOLDER}, {TAG}, or {pattern}"
            raise invalid("option 'group'", text, remedy, f"which is no pattern ({error})") from error

    @property
    def levels(self) -> int:
        """The number of folders from a domain's to the files: the class's, and maybe the patient's."""
        return 2 if self.pattern is None and not self.in_tag else 1

    def patient(self, file: Path) -> str:
        """Return the name of a file's patient; empty if there is none."""
        if self.in_tag:
            if file not in self._read:
                self._read[file] = _in_tag(file)
            return self._read[file]
        if self.pattern is None:
            return as_name(file.parent.name)
        found = self.pattern.search(file.name)
        return "" if found is None else as_name(found[1 if self.pattern.groups else 0] or "")

    def check(self, thing: str, place: Path, files: Sequence[Path]) -> None:
        """Raise a `ConfigError` on a folder, a `thing`, if files have no patient or one that looks alike."""
        if lacking := [file for file in files if not self.patient(file)]:
            where = f"that are no DICOM files with one {TAG}" if self.in_tag else ""
            where = where or "in whose names the option 'group' finds no patient"
            what = f"has images {where}: {len(lacking)} of "
            remedy = "rename them, move them away, or correct the pattern"
            if self.in_tag:
                remedy = "give it to them, or move them away"
            elif len(lacking) == len(files):
                remedy = f"its first parenthesis must match the patient: '{EXAMPLE}' for p01_left.png"
            first = lacking[0].relative_to(place)
            raise unusable(thing, place, f"{what}{len(files)}, such as '{first}'", remedy)
        first_of = {self.patient(file): file for file in reversed(files)}
        for names in in_two_spellings(first_of):
            listed = " and ".join(f"'{first_of[name].relative_to(place)}'" for name in names)
            what = f"has patients that differ only in case, spacing, marks or zeros: {listed}"
            raise unusable(thing, place, what, "write a patient's name in one way")


def _in_tag(file: Path) -> str:
    """Return the patient that a DICOM file names; empty for other files, and without exactly one."""
    from fda_flower.datasets.dicom import patient_in
    from fda_flower.datasets.looks import ImageError

    try:
        return as_name(patient_in(file))
    except ImageError:
        return ""


def as_name(text: str) -> str:
    """Return the name of a patient in the one form that counts."""
    return normalize("NFC", text.strip())


def in_two_spellings(patients: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of names that people read as one, also of numbers with more or fewer zeros.

    Examples
    --------
    >>> in_two_spellings(["7", "p1", "P1", "07", "8", "7.0"])
    [('P1', 'p1'), ('07', '7', '7.0')]
    """
    names, same = in_order(patients), dict[str, list[str]]()
    for name in names:
        if found := re.fullmatch("0*([0-9]+)(?:[.,]0*)?", name):
            same.setdefault(found[1], []).append(name)
    return [*alike(names), *(tuple(each) for each in same.values() if len(each) > 1)]


def in_order(patients: Iterable[str]) -> list[str]:
    """Return the names of patients in the order of their numbers, which no order of samples changes."""
    return sorted({*patients})


def listed(patients: Mapping[str, Mapping[str, int]]) -> str:
    """Return patients with their numbers of samples by domain, class or part, in words.

    Examples
    --------
    >>> listed({"p1": {"ill": 2, "well": 1}})
    "1, 'p1' (2 in ill, 1 in well)"
    """
    parts = [
        f"'{name}' ({', '.join(f'{count:,} in {where}' for where, count in patients[name].items())})"
        for name in in_order(patients)[:MOST_NAMED]
    ]
    return ", ".join([f"{len(patients):,}", *parts, *(["..."] if len(patients) > MOST_NAMED else [])])


def in_several(places: Mapping[str, Iterable[str]]) -> dict[str, dict[str, int]]:
    """Return the patients with samples in several places, such as domains, and their number in each."""
    found: dict[str, dict[str, int]] = {}
    for place, patients in places.items():
        for name, count in Counter(filter(None, patients)).items():
            found.setdefault(name, {})[place] = count
    return {name: counts for name, counts in found.items() if len(counts) > 1}


def in_several_domains(patients: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence on patients of several domains, whose samples' patients are given."""
    two = in_two_spellings(name for names in patients.values() for name in names)
    first = {name: names[0] for names in two for name in names}
    read = {domain: [first.get(name, name) for name in names] for domain, names in patients.items()}
    if not (found := in_several(read)):
        return []
    return [
        f"patients of one name in several domains: {listed(found)}; if they are the same persons, leave them "
        "out of all but one"
    ]


def in_several_classes(domain: str, patients: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return a sentence on patients of a domain with samples of several classes."""
    members: dict[str, list[str]] = {}
    for name, label in zip(patients, labels, strict=True):
        members.setdefault(label, []).append(name)
    if not (found := in_several(dict(sorted(members.items())))):
        return []
    return [
        f"patients of domain '{domain}' with samples of several classes: {listed(found)}; if a patient has "
        "one class, correct the labels, or leave them out of one"
    ]
