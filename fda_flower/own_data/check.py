"""Checks of the user's data before a run: sizes, classes, missing values, and all problems."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.datasets.few_samples import target_problems
from fda_flower.datasets.folders import LISTED, visible
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.registry import network_for_images
from fda_flower.datasets.spec import DataSpec
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import describe_cut, longer
from fda_flower.names.words import counted
from fda_flower.own_data import images
from fda_flower.own_data.hugging_face_source import is_saved
from fda_flower.own_data.image_folder import ImageFolder
from fda_flower.own_data.table_files import FIRST, places, tables_in

if TYPE_CHECKING:
    from fda_flower.own_data.table import Survey


@dataclass
class DomainCheck:
    """The contents of a domain: number of samples, samples by class, missing values by column.

    `patients` is their number, if an option says which samples are of one.
    """

    samples: int
    classes: dict[str, int]
    missing: dict[str, int] = field(default_factory=dict)
    patients: int | None = None


@dataclass
class Check:
    """The readable contents of each domain, a description of the inputs, and the problems."""

    domains: dict[str, DomainCheck]
    inputs: str
    problems: Problems


def find_dataset(folder: Path) -> str:
    """Return the data set that matches a folder's layout: ``images``, ``table`` or ``hf``."""
    if not folder.is_dir():
        remedy = "give the one that holds the domains"
        raise ConfigError(f"there is no folder '{folder}'", thing="folder", value=folder, remedy=remedy)
    tables = [path for place in places(folder).values() for path in tables_in(place)]
    pictures = ImageFolder.read(folder).images
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


def check_table(folder: Path, options: Mapping[str, Any]) -> Check:
    """Check the tables of a folder; `options` belong to the data set ``table``."""
    from fda_flower.own_data.table import OwnTables

    return _check_rows("table", OwnTables(folder, 0, **options).survey(), options)


def check_hugging_face(folder: Path, options: Mapping[str, Any]) -> Check:
    """Check a data set of Hugging Face in a folder or on the hub; decode every image."""
    from fda_flower.own_data.hugging_face import HuggingFace

    data = HuggingFace(folder, 0, **options)
    survey = data.survey()
    if not data.images:
        return _check_rows("hf", survey, options)
    sizes = data.sizes(survey.problems)
    return Check(_domains_of("hf", survey), _describe_images(sizes, options), survey.problems)


def _domains_of(dataset: str, survey: "Survey") -> dict[str, DomainCheck]:
    if survey.problems:
        survey.tell(dataset)  # else loading the data does
    domains = {}
    for name, rows in survey.rows.items():
        classes = Counter(text for cells in rows.labels for text in cells.texts) if survey.classes else {}
        missing = {column: count for column, count in rows.missing.items() if count}
        patients = len({*rows.groups}) or None
        domains[name] = DomainCheck(rows.samples, dict(sorted(classes.items())), missing, patients)
    return domains


def _check_rows(dataset: str, survey: "Survey", options: Mapping[str, Any]) -> Check:
    domains = _domains_of(dataset, survey)
    columns = sorted({column for rows in survey.rows.values() for column in rows.columns})
    beside = {name: f" ({_listed(words)})" for name, words in survey.categories.items()}
    if text := str(options.get("text", "")):
        cut = {name: longer(rows.columns.get(text, ())) for name, rows in survey.rows.items()}
        beside[text] = f" (a text: {describe_cut(cut)})"
    inputs = ", ".join(f"{name}{beside.get(name, '')}" for name in columns)
    return Check(domains, f"{counted(len(columns), 'column')}{inputs and f': {inputs}'}", survey.problems)


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED
    return "|".join(words) if more <= 0 else f"{'|'.join(words[:LISTED])}|... and {more} more"


def check_images(folder: Path, options: Mapping[str, Any]) -> Check:
    """Check the image folders of a folder; decode every image."""
    from fda_flower.datasets.pixels import bits_in, depth_of, faults

    survey = images.load_own(folder, 0, **options).survey()
    if survey.problems:
        survey.tell("images")  # else loading the data does
    files = {name: each.classes for name, each in survey.folders.items()}
    for classes in files.values():
        paths = [path for each in classes.values() for path in each]
        depth = str(options.get("depth", "auto"))
        for problem in faults(paths, depth_of(bits_in(paths)) if depth == "auto" else int(depth)):
            survey.problems.add(problem)
    domains = {}
    for name, each in survey.folders.items():
        counts = {label: len(paths) for label, paths in each.classes.items()}
        patients = len({*each.patients}) or None
        domains[name] = DomainCheck(sum(counts.values()), counts, patients=patients)
    return Check(domains, _describe_images(images.sizes_of(files.values()), options), survey.problems)


def _describe_images(sizes: Counter[images.Size], options: Mapping[str, Any]) -> str:
    sizes_text = ", ".join(f"{height}x{width}: {count}" for (height, width), count in sizes.most_common(5))
    more = f", and {len(sizes) - 5} other sizes" if len(sizes) > 5 else ""
    size = options.get("image_size")
    fits = f", for the network {network_for_images(options)}" if size else ""
    return f"images of {sizes_text}{more}; brought to {size}{fits}"


def sizes_of(
    spec: DataSpec, problems: Problems, warnings: list[str], only: str | None = None
) -> dict[str, dict[str, int]]:
    """Load all domains, or `only` one, as in a run; return the numbers of training, unlabelled, test samples.

    Where patients are known, there are the numbers of those with training and with test samples, too.
    Problems are added to `problems`, and what targets lack to `warnings`.
    """
    from fda_flower.datasets.federation import load_domain

    sizes = {}
    for name in spec.domain_names if only is None else [only]:
        with problems.caught():
            data = load_domain(spec, name)
            domain, classes = data.domains[name], data.class_names or tuple(map(str, range(data.classes)))
            unlabelled = 0 if domain.unlabelled is None else len(domain.unlabelled)
            sizes[name] = {"train": len(domain.train), "unlabelled": unlabelled, "test": len(domain.test)}
            if domain.train.groups is not None:
                sizes[name] |= {"train-patients": domain.train.units, "test-patients": domain.test.units}
            if spec.every_site or name == spec.target_name:
                known = () if domain.train.y.is_floating_point() else classes
                warnings += [f"{name}: {each}" for each in target_problems(domain.test, domain.train, known)]
    return sizes


CHECKS: dict[str, Callable[[Path, Mapping[str, Any]], Check]] = {
    "table": check_table,
    "images": check_images,
    "hf": check_hugging_face,
}
"""The checks by data set."""
