"""The meaning of a table's columns, as options say it, and the options that follow from the files."""

import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from fda_flower.datasets.folders import found_names, is_here, read_domains
from fda_flower.datasets.problems import Problems
from fda_flower.datasets.registry import Sources
from fda_flower.errors import FIRST, LAST, ConfigError, invalid
from fda_flower.names.options import join_names, read_categories, split_names
from fda_flower.names.tasks import TASKS, Task
from fda_flower.own_data.followed import horizons_of, read_horizons
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table_files import SUFFIXES, FileState
from fda_flower.own_data.table_places import BY_COLUMN, Place, place_of


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of a table's columns; the fields are parsed `TableOptions`.

    `missing` allows missing features, `categorical` makes categories of columns of words, `text` is the
    column for the sentence encoder, and `domain` the one that names each row's domain. In a regression, the
    network predicts ``(label - label_mean) / label_deviation``. With the task ``multilabel``, `label` lists
    the columns of the labels; with ``survival`` it is a time, `event` says whether the event came then, and
    `horizons` are the times at which survival is predicted.
    """

    label: str = "label"
    task: Task = "classes"
    group: str = ""
    ignore: tuple[str, ...] = ()
    missing: bool = False
    categorical: bool = False
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal_comma: bool = False
    classes: tuple[str, ...] = ()
    label_mean: float = 0.0
    label_deviation: float = 1.0
    text: str = ""
    domain: str = ""
    event: str = ""
    horizons: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._check_event()
        if not self.label_deviation > 0:
            raise invalid("option 'label_deviation'", self.label_deviation, "it must be above 0")
        if self.task != "classes" and self.classes:
            why = f"but the task is {self.task}, which has no classes"
            raise invalid("option 'classes'", join_names(self.classes), "leave it out", why)
        if self.task != "regression" and (self.label_mean, self.label_deviation) != (0.0, 1.0):
            scale = f"{self.label_mean:g} and {self.label_deviation:g}"
            why = f"but the labels are {TASKS[self.task]}"
            raise invalid(
                "options 'label_mean' and 'label_deviation'", scale, "give task=regression, too", why
            )
        given = {"label": self.labels, "group": (self.group,), "ignore": self.ignore, "text": (self.text,)}
        given["categories"] = tuple(self.categories)
        given["domain"] = () if self.domain in self.ignore else (self.domain,)
        for (other, others), (option, names) in combinations(given.items(), 2):
            if both := sorted({*others} & {*names} - {""}):
                why = f"but the option '{other}' names that column too"
                raise invalid(f"option '{option}'", both[0], "a column has one meaning: name another", why)

    def _check_event(self) -> None:
        """Raise a `ConfigError` unless there is an event where patients are followed, and nowhere else."""
        if self.task == "survival" and not self.event:
            what = "name the column that says whether the event came (1) or not (0), such as event=died"
            raise ConfigError("the option 'event' is missing", thing="option 'event'", remedy=what)
        for name, value in (("event", self.event), ("horizons", self.horizons)):
            if value and self.task != "survival":
                why = f"but the task is {self.task}, in which nobody is followed"
                raise invalid(f"option '{name}'", value, "leave it out, or give task=survival, too", why)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of what a model predicts; see `labels_in`."""
        return labels_in(self.label, self.task, self.event)


def labels_in(label: str, task: str, event: str = "") -> tuple[str, ...]:
    """Return the columns that the option ``label`` names for a task, and for survival the `event`'s.

    Raise a `ConfigError` on a single one of several labels.

    Examples
    --------
    >>> labels_in("effusion,edema", "multilabel"), labels_in("stage", "classes")
    (('effusion', 'edema'), ('stage',))
    """
    if task != "multilabel":
        return (label, event) if task == "survival" else (label,)
    names = read_names("label", label)
    if len(names) < 2:
        why = "but the task is multilabel, which has several"
        raise invalid("option 'label'", label, "name all labels' columns, such as label=effusion,edema", why)
    return names


SCALE = {"label_mean", "label_deviation"}
"""The options that scale the labels of a regression; each follows from the sources' labels if it is open."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options on a table's columns, as a run gives them; `docs/own-data.md` describes them."""

    label: str = "label"
    classes: str = ""
    task: Task = "classes"
    missing: Literal["refuse", "mean"] = "refuse"
    categorical: Literal["refuse", "onehot"] = "refuse"
    categories: str = ""
    ignore: str = ""
    group: str = ""
    decimal: Literal["point", "comma"] = "point"
    label_mean: float = 0.0
    label_deviation: float = 1.0
    text: str = ""
    domain: str = ""
    event: str = ""
    horizons: str = ""

    @property
    def meaning(self) -> Meaning:
        """The meaning of the columns; raise a `ConfigError` if options contradict one another."""
        return Meaning(
            label=self.label,
            group=self.group,
            ignore=read_names("ignore", self.ignore),
            missing=self.missing == "mean",
            categorical=self.categorical == "onehot",
            categories=read_categories(self.categories),
            decimal_comma=self.decimal == "comma",
            classes=read_names("classes", self.classes),
            task=self.task,
            label_mean=self.label_mean,
            label_deviation=self.label_deviation,
            text=self.text,
            domain=self.domain,
            event=self.event,
            horizons=read_horizons(self.horizons),
        )


def as_option(name: str, names: Iterable[str]) -> str:
    """Return words of a command that give names in an option of the data set."""
    first, *others = [*names]
    if len(others) < FIRST + LAST:
        return f"--dataset-option {shlex.quote(f'{name}={join_names([first, *others])}')}"
    return f"--dataset-option {name}=... (their {len(others) + 1:,} names, separated by commas)"


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Parse a list of names, which may be empty."""
    return split_names(f"option '{option}'", text) if text else ()


def complete(
    folder: Path | None, options: Mapping[str, Any], target: str | None, only_sources: Sources = None
) -> dict[str, Any]:
    """Return the missing options that follow from the tables in a folder.

    These are the domains and, in a regression, the mean and deviation of the sources' labels, or the horizons
    of a survival.
    """
    missing: dict[str, Any] = {}
    if folder is None or not (folder.is_file() or is_here(folder, options)):
        return missing
    place = place_of(folder, Reading.of(options), str(options.get("domain", "")))
    if "domains" not in options:
        wanted = (
            f"a file for each domain, such as north{SUFFIXES[0]}, or one with a column that names them "
            f"({BY_COLUMN}),"
        )
        missing["domains"] = ",".join(found_names("table", folder, {*place.domains()}, wanted))
    domains = read_domains(str({**options, **missing}["domains"]), below=True)
    sources = sources_in(domains, target, only_sources)
    label = str(options.get("label", TableOptions.label))
    if options.get("task") == "regression" and not options.keys() >= SCALE:
        missing |= scale_of(_labels_in(place, tuple(sources), label, place.states(sources)), options)
    if options.get("task") == "survival" and not options.get("horizons"):
        labels = label, str(options.get("event", ""))
        horizons = _horizons_in(place, tuple(domains), tuple(sources), labels, place.states(domains))
        missing |= {"horizons": horizons} if horizons else {}
    return missing


def sources_in(domains: Sequence[str], target: str | None, only_sources: Sources) -> list[str]:
    """Return the sources that take part."""
    sources = [name for name in domains if name != (target or domains[-1])]
    return [name for name in sources if name in (only_sources or sources)]


def scale_of(labels: Iterable[float], options: Mapping[str, Any] = {}) -> dict[str, float]:
    """Return the mean and the deviation of labels as options that `options` lack; empty if all are equal.

    Both have three digits; the mean has more if it would be off by a twentieth of the deviation otherwise.

    Examples
    --------
    >>> scale_of([1012.2, 1013.8]), scale_of([61.0, 78.0])
    ({'label_mean': 1013.0, 'label_deviation': 0.8}, {'label_mean': 69.5, 'label_deviation': 8.5})
    """
    numbers = list(labels)
    if len(numbers) < 2 or not (deviation := statistics.pstdev(numbers)):
        return {}
    mean = statistics.mean(numbers)
    near = (float(f"{mean:.{digits}g}") for digits in range(3, 18))
    short = next((each for each in near if abs(each - mean) <= deviation / 20), mean)
    scale = {"label_mean": short, "label_deviation": float(f"{deviation:.3g}")}
    return {name: number for name, number in scale.items() if name not in options}


@lru_cache(maxsize=64)
def _horizons_in(
    place: Place,
    domains: tuple[str, ...],
    sources: tuple[str, ...],
    labels: tuple[str, str],
    states: tuple[FileState, ...],
) -> str:
    """Return the horizons that follow from the times and events of domains; cached likewise."""
    tables = place.read(domains, Problems(), ahead=True)
    time, event = labels
    columns = {
        domain: [
            (table.columns[time].numbers, table.columns[event].numbers)
            for table in parts.values()
            if {*table.header}.issuperset(labels)
        ]
        for domain, parts in tables.items()
    }
    return horizons_of(columns, sources)


@lru_cache(maxsize=64)
def _labels_in(
    place: Place, domains: tuple[str, ...], label: str, states: tuple[FileState, ...]
) -> list[float]:
    """Return the domains' labels that are numbers; cached for the runs of a comparison."""
    tables = place.read(domains, Problems(), ahead=True)
    columns = [
        table.columns[label] for parts in tables.values() for table in parts.values() if label in table.header
    ]
    return [float(number) for cells in columns for number in cells.numbers if math.isfinite(number)]
