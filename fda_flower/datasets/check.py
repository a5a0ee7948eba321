"""Checks of the user's data before a run: sizes, classes, missing values, and all problems."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fda_flower.datasets import images
from fda_flower.datasets.own_data import LISTED, network_for_images, visible
from fda_flower.datasets.problems import Problem, Problems
from fda_flower.datasets.spec import DataSpec
from fda_flower.datasets.table_files import places, tables_in
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import longer, told
from fda_flower.names import split_names


@dataclass
class DomainCheck:
    """The contents of a domain: number of samples, samples by class, missing values by column."""

    samples: int
    classes: dict[str, int]
    missing: dict[str, int] = field(default_factory=dict)


@dataclass
class Check:
    """The readable contents of each domain, a description of the inputs, and the problems."""

    domains: dict[str, DomainCheck]
    inputs: str
    problems: Problems


def find_dataset(folder: Path) -> str:
    """Return the data set that matches a folder's layout: ``images`` or ``table``."""
    if not folder.is_dir():
        remedy = "give the one that holds the domains"
        raise ConfigError(f"there is no folder '{folder}'", thing="folder", value=folder, remedy=remedy)
    found = []
    if any(images.files_of(path) for path in visible(folder) if path.is_dir()):
        found.append("images")
    if any(tables_in(place) for place in places(folder).values()):
        found.append("table")
    if len(found) != 1:
        there = ", ".join(path.name for path in visible(folder)[:LISTED]) or "nothing"
        what = "both tables and folders of images" if found else f"neither tables nor images, but {there}"
        raise ConfigError(
            f"'{folder}' holds {what}: put a file DOMAIN.csv for each domain there (export other formats as "
            "CSV), or folders DOMAIN/CLASS/ with images, or say which by --dataset table or --dataset images",
            thing=str(folder),
        )
    return found[0]


def check_table(folder: Path, options: Mapping[str, Any]) -> Check:
    """Check the tables of a folder; `options` belong to the data set ``table``."""
    from fda_flower.datasets.table import OwnTables

    found = OwnTables(folder, 0, **options).survey()
    if found.problems:
        found.tell("table")  # else loading the data does
    domains = {}
    for name, rows in found.rows.items():
        classes = Counter(text for cells in rows.labels for text in cells.texts) if found.classes else {}
        missing = {column: count for column, count in rows.missing.items() if count}
        domains[name] = DomainCheck(rows.samples, dict(sorted(classes.items())), missing)
    columns = sorted({column for rows in found.rows.values() for column in rows.columns})
    beside = {name: f" ({_listed(words)})" for name, words in found.categories.items()}
    if text := str(options.get("text", "")):
        cut = {name: longer(rows.columns.get(text, ())) for name, rows in found.rows.items()}
        beside[text] = f" (a text: {told(cut)})"
    inputs = ", ".join(f"{name}{beside.get(name, '')}" for name in columns)
    return Check(domains, f"{len(columns)} columns: {inputs}", found.problems)


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED
    return "|".join(words) if more <= 0 else f"{'|'.join(words[:LISTED])}|... and {more} more"


def check_images(folder: Path, options: Mapping[str, Any]) -> Check:
    """Check the image folders of a folder; decode every image."""
    from fda_flower.datasets.preparation import unreadable

    names = split_names("option 'domains'", str(options["domains"]))
    files = {name: images.files_of(folder / name) for name in names}
    problems = Problems()
    for found in files.values():
        for message in unreadable(path for paths in found.values() for path in paths):
            problems.add(Problem(message))
    domains = {}
    for name, found in files.items():
        classes = {label: len(paths) for label, paths in found.items()}
        domains[name] = DomainCheck(sum(classes.values()), classes)
    sizes = images.sizes_of(files.values())
    shown = ", ".join(f"{height}x{width}: {count}" for (height, width), count in sizes.most_common(5))
    more = f", and {len(sizes) - 5} other sizes" if len(sizes) > 5 else ""
    size = options.get("image_size")
    fits = f", for the network {network_for_images(options)}" if size else ""
    return Check(domains, f"images of {shown}{more}; brought to {size}{fits}", problems)


def sizes_of(spec: DataSpec, problems: Problems) -> dict[str, tuple[str, str]]:
    """Load the data as in a run; return each domain's numbers of training and test samples as text.

    Problems are added to `problems`.
    """
    from fda_flower.datasets.federation import load_domain

    sizes = {}
    for name in spec.domain_names:
        with problems.caught():
            domain = load_domain(spec, name).domains[name]
            rest = f" + {len(domain.unlabelled)} unlabelled" if domain.unlabelled else ""
            sizes[name] = f"{len(domain.train)}{rest}", str(len(domain.test))
    return sizes


CHECKS: dict[str, Callable[[Path, Mapping[str, Any]], Check]] = {"table": check_table, "images": check_images}
"""The checks by data set."""
