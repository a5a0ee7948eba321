"""Checks of the user's data before a run: sizes, classes, missing values, and all problems."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fda_flower.datasets.federation import data_of, forget, load_domain
from fda_flower.datasets.few_samples import target_problems
from fda_flower.datasets.folders import LISTED, unusable, visible
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.spec import DataSpec
from fda_flower.errors import ConfigError
from fda_flower.names.notes import warn
from fda_flower.own_data.hugging_face_source import is_saved, is_shard
from fda_flower.own_data.image_folder import ImageFolder
from fda_flower.own_data.image_list import NAMES, list_in, names_files
from fda_flower.own_data.survey import Survey, Surveyed
from fda_flower.own_data.table_files import FIRST, SUFFIXES, places, tables_in


@dataclass
class DomainCheck:
    """The contents of a domain: number of samples, samples by class or label, missing values by column.

    `patients` is their number, if an option says which samples are of one.
    """

    samples: int
    classes: dict[str, int]
    missing: dict[str, int] = field(default_factory=dict)
    patients: int | None = None


@dataclass
class Check:
    """The readable contents of each domain, the inputs in words, problems, and notes on what looks strange.

    `sizes` has, by domain, the numbers of `count`, if there is no problem before.
    """

    domains: dict[str, DomainCheck]
    inputs: str
    problems: Problems
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)


def find_dataset(folder: Path) -> str:
    """Return the data set that matches a folder's layout: ``images``, ``table`` or ``hf``."""
    if folder.is_file() and folder.suffix.lower() in SUFFIXES:
        return "table"
    if not folder.is_dir():
        remedy = "give the one that holds the domains"
        raise ConfigError(f"there is no folder '{folder}'", thing="folder", value=folder, remedy=remedy)
    tables = [path for place in places(folder).values() for path in tables_in(place)]
    tables = [] if all(map(is_shard, tables)) else tables
    pictures = ImageFolder.read(folder).images
    if pictures and list_in(folder, only_of_files=True):
        return "images"
    if pictures and (lists := [path for path in tables if names_files(path)]):
        remedy = f"call it {NAMES[0]}{lists[0].suffix} or, if it is a table of numbers, give --dataset table"
        raise unusable("data file", lists[0], "names files, as a list of images does", remedy)
    in_folders = any(len(path.parts) > len(("domain", "class")) for path in pictures)
    if in_folders:  # a readme is no table
        tables = [path for path in tables if path.suffix.lower() in FIRST]
    kinds = ["images"] if in_folders or (pictures and not tables) else []  # a plot beside tables is none
    kinds += ["table"] if tables else []
    kinds = kinds or (["hf"] if is_saved(folder) else [])
    if len(kinds) != 1:
        there = ", ".join(path.name for path in visible(folder)[:LISTED]) or "nothing"
        what = "both tables and folders of images" if kinds else f"neither tables nor images, but {there}"
        raise ConfigError(
            f"'{folder}' holds {what}: put a file DOMAIN.csv for each domain there (export other formats as "
            "CSV), or folders DOMAIN/CLASS/ with images, or say which by --dataset table, images or hf",
            thing=str(folder),
        )
    return kinds[0]


OWN = ("hf", "images", "table")
"""The data sets that can be checked."""


def check(spec: DataSpec, only: str | None = None) -> Check:
    """Check one's own data as a run reads them, all domains or `only` one; all images are decoded.

    Whoever loads them next in this process reads them no more.
    """
    forget()  # files may have changed
    data = data_of(spec)
    assert isinstance(data, Surveyed)
    survey, inputs = data.survey, data.inputs(dict(spec.dataset_options))
    result = Check({name: _contents(survey, name) for name in survey.domains}, inputs, survey.problems)
    if survey.problems:
        result.notes += data.notes
        forget()
    else:
        result.sizes = sizes_of(spec, result.problems, result.notes, only)
    return result


def _contents(survey: Survey[Any], domain: str) -> DomainCheck:
    each = survey.domains[domain]
    classes = dict(sorted(Counter(each.words).items())) if survey.classes else {}
    if len(held := survey.numbers.get(domain, np.zeros(0))) and held.ndim > 1:
        numbers = np.sum(held == 1, axis=0).tolist()
        of_labels = dict(zip(survey.labels, numbers, strict=True)) if survey.labels else {}
        classes = of_labels or {"with the event": numbers[-1]}
    missing = {column: count for column, count in each.missing.items() if count}
    return DomainCheck(
        each.samples,
        classes,
        missing,
        len({*each.groups}) or None,
    )


def sizes_of(
    spec: DataSpec, problems: Problems, notes: list[str], only: str | None = None
) -> dict[str, dict[str, int]]:
    """Load all domains, or `only` one, as in a run; return the numbers of training, unlabelled, test samples.

    Where patients are known, there are the numbers of patients with training and with test samples, too, and
    where they are followed, the numbers of events.
    Problems are added to `problems`, and what looks strange or what targets lack to `notes`.
    """
    sizes, lacks, strange = dict[str, dict[str, int]](), list[str](), dict[str, None]()
    for name in spec.domain_names if only is None else [only]:
        whole = data_of(spec)  # another one after an error
        assert isinstance(whole, Surveyed)
        whole.note = strange.setdefault
        with problems.caught():
            data = load_domain(spec, name)
            domain, classes = data.domains[name], data.class_names or tuple(map(str, range(data.classes)))
            unlabelled = 0 if domain.unlabelled is None else len(domain.unlabelled)
            sizes[name] = {"train": len(domain.train), "unlabelled": unlabelled, "test": len(domain.test)}
            if domain.train.groups is not None:
                sizes[name] |= {"train-patients": domain.train.units, "test-patients": domain.test.units}
            for part, each in (("train", domain.train), ("test", domain.test)):
                sizes[name] |= {} if each.outcomes is None else {f"{part}-events": each.outcomes.count}
            if spec.every_site or name == spec.target_name:
                known = classes if domain.train.task == "classes" else ()
                lacks += [f"{name}: {each}" for each in target_problems(domain.test, domain.train, known)]
        whole.note = warn
    notes += [*strange, *lacks]
    return sizes
