"""Files of experiments: the package's, by name, and others, by path."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fda_flower.errors import ConfigError, check_choice, invalid, near, unknown
from fda_flower.files import read_toml
from fda_flower.reporting.results import Design, Place, file_name, slug
from fda_flower.runs.config import RunConfig
from fda_flower.runs.settings import OPTION_FIELDS, SETTINGS

if TYPE_CHECKING:
    from fda_flower.running.attacks import Attack

HERE = Path(__file__).parent
FOLDERS = (HERE / "tables", HERE.parents[1] / "experiments" / "tables")
"""The folder in an installed package, and the one in a checkout; the first that exists is used."""


def find_experiment(file: str | Path) -> Path:
    """Return the file of an experiment by its path or its name; an existing file takes precedence.

    An unknown name raises a `ConfigError` that lists all names.

    Examples
    --------
    >>> find_experiment("fashion_mnist_noise").name
    'fashion_mnist_noise.toml'
    """
    path = Path(file)
    if path.is_file() or path.parent != Path():
        return path
    known = packaged_experiments()
    name = path.name.removesuffix(".toml")
    if name not in known:
        raise ConfigError(
            f"unknown experiment '{file}'{near(name, known)}: give the path of a TOML file, or choose one of "
            f"{', '.join(known)}",
            thing="experiment",
            value=file,
        )
    return known[name]


def packaged_experiments() -> dict[str, Path]:
    """Return the files of the package's experiments by name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


Settings = dict[str, Any]

MACHINE = ("seed", "data_dir", "device")
"""Fields of a run that depend on the user or the machine, which experiments cannot set."""
ATTACK_KEYS = ("attack", "attackers")
"""Keys in addition to a run's settings; see `fda_flower.running.attacks`."""
RUN_KEYS = frozenset([*(each.key for each in SETTINGS if each.name not in MACHINE), *ATTACK_KEYS])


@dataclass(frozen=True)
class Entry:
    """A row, column or group: its label, its position on a figure's axis, and its settings of `RunConfig`.

    A row also has the `paper`'s values, by column, or by group and column; the settings `at` single columns
    or groups; and the `headline`: ``"model"``, or ``"average"`` for the averaged model.
    """

    label: str
    value: float | None
    settings: Settings
    paper: Settings
    at: dict[str, Settings]
    headline: str = "model"


NO_NAME = Entry("", None, {}, {}, {})
"""The only column or group where there are none."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Design):
    """A table of runs: every row with every column, in every group, with every seed.

    `text` is the file's text, merged with the file that it extends. All cells share the settings in `run`.
    """

    text: str
    seeds: tuple[int, ...] = (0,)
    run: Settings
    rows: tuple[Entry, ...]
    columns: tuple[Entry, ...]
    groups: tuple[Entry, ...]

    @property
    def places(self) -> list[Place]:
        """The places of the cells, row by row."""
        return [(g.label, r.label, c.label) for g in self.groups for r in self.rows for c in self.columns]

    @property
    def paper(self) -> dict[Place, float]:
        """The values that the paper reports, in percent."""
        return {
            (group.label, row.label, column): float(value)
            for group in self.groups
            for row in self.rows
            for column, value in (row.paper.get(group.label, {}) if group.label else row.paper).items()
        }

    def config(self, place: Place, seed: int, overrides: Mapping[str, Any]) -> RunConfig:
        """Return the configuration of a cell's run; see `configs`."""
        return self.configs([place], seed, overrides)[place]

    def configs(
        self, places: Iterable[Place], seed: int, overrides: Mapping[str, Any]
    ) -> dict[Place, RunConfig]:
        """Return the configurations of cells' runs by place; a `ConfigError` names the cell.

        Settings of the row override the column's, these the group's, these the experiment's. A row's
        settings for one column or group override all of these, and `overrides` overrides everything. Cells
        that differ only in their attack share a configuration, which takes long to check.
        """
        known: dict[str, RunConfig] = {}
        return {place: self._config(place, seed, overrides, known) for place in places}

    def readable(
        self, overrides: Mapping[str, Any], options: Mapping[Place, Mapping[str, Any]]
    ) -> dict[Place, RunConfig]:
        """Return the cells' configurations as far as they can be made here, by place.

        `options` has options of the data set that a run has found in the folder of its data, by place.
        """
        known: dict[str, RunConfig] = {}
        configs: dict[Place, RunConfig] = {}
        for place in self.places:
            for more in ({"dataset_options": options[place]}, {}) if options.get(place) else ({},):
                with suppress(ConfigError):
                    configs[place] = self._config(place, 0, merged(more, overrides), known)
                    break
        return configs

    def _config(
        self, place: Place, seed: int, overrides: Mapping[str, Any], known: dict[str, RunConfig]
    ) -> RunConfig:
        settings = self.settings(place, overrides)
        own = {key: value for key, value in settings.items() if key not in ATTACK_KEYS}
        if repr(own) not in known:
            with self._naming(place):
                known[repr(own)] = RunConfig.read({**own, "seed": seed})
        return known[repr(own)]

    def attack(
        self, place: Place, config: RunConfig, overrides: Mapping[str, Any] | None = None
    ) -> "Attack | None":
        """Return the attack on a cell with this configuration; a `ConfigError` names the cell."""
        settings = self.settings(place, overrides or {})
        if not settings.keys() & ATTACK_KEYS:
            return None
        from fda_flower.running.attacks import read_attack  # loads PyTorch

        with self._naming(place):
            return read_attack(settings, config)

    def settings(self, place: Place, overrides: Mapping[str, Any]) -> Settings:
        """Return the settings and the attack's keys of a cell."""
        entries = (self.groups, self.rows, self.columns)
        group, row, column = (
            next(entry for entry in kind if entry.label == label)
            for kind, label in zip(entries, place, strict=True)
        )
        own = [row.at[label] for label in (group.label, column.label) if label in row.at]
        return reduce(merged, (group.settings, column.settings, row.settings, *own, overrides), self.run)

    @contextmanager
    def _naming(self, place: Place) -> Iterator[None]:
        """Name the cell in the message of a `ConfigError`."""
        try:
            yield
        except ConfigError as error:
            where = ", ".join(filter(None, place))
            message = f"experiment '{self.name}', cell '{where}': {error}"
            raise ConfigError(message, thing="cell", value=where) from error


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Return settings with changes; options by name are changed one by one, and an empty table drops all."""
    options = {
        name: {**dict(settings[name]), **value}
        for name, value in changes.items()
        if name in OPTION_FIELDS and name in settings and value
    }
    return {**settings, **changes, **options}


def read_experiment(file: str | Path, machine: Mapping[str, Any] | None = None) -> Experiment:
    """Read and check an experiment's file, given as in `find_experiment`.

    Parameters
    ----------
    file : str or Path
        A path, or the name of one of the package's experiments.
    machine : Mapping, optional
        The settings of this machine with which it is checked, such as ``data_dir``, whose folder completes
        the options of a data set.

    Raises
    ------
    ConfigError
        If the file cannot be read or has an invalid key or value; the message names file, key and choices.
    """
    path = find_experiment(file)
    experiment = read_definition(path)
    with _naming_file(path):
        _check_configs(experiment, machine or {})
    return experiment


def read_definition(path: Path) -> Experiment:
    """Read an experiment's file, and check all but its runs' configurations, which may need its data."""
    text, data = read_toml("experiment", path)
    with _naming_file(path):
        if "extends" in data:
            data = _extended(path, data)
            text = tomli_w.dumps(data)
        return experiment_of(path.stem, data, text)


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Name the file in the message of a `ConfigError`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}", thing=str(path)) from error


def _extended(path: Path, data: Settings) -> Settings:
    """Return a file's keys over those of the file that it extends, in the same folder or by its name.

    Settings in ``[run]`` are merged one by one; an entry with only a label is the other file's, and one
    without settings is refused, which would otherwise be a run with all defaults under that label.
    """
    name = str(data.pop("extends"))
    neighbour = path.with_name(f"{name}.toml")
    _, base = read_toml("experiment", neighbour if neighbour.is_file() else find_experiment(name))
    if "extends" in base:
        raise invalid("extends", name, "choose a file that extends none itself")
    _check_top(base)
    _check_top(data)
    merged = {**base, **data, "run": {**base.get("run", {}), **data.get("run", {})}}
    for kind in OWN:
        for entries in (base.get(kind, []), data.get(kind, [])):
            _entries(kind, entries)
        if kind in data:
            others = {entry["label"]: entry for entry in base.get(kind, [])}
            merged[kind] = [_inherited(kind, entry, name, others) for entry in data[kind]]
    return merged


def _inherited(kind: str, entry: Settings, base: str, others: Mapping[str, Settings]) -> Settings:
    """Return an entry with settings, or the one that the `base` file has for its label alone."""
    label = entry["label"]
    if entry.keys() - OWN[kind]:
        return entry
    if entry.keys() > {"label"} or label not in others:
        like = "" if label in others else near(label, others)
        remedy = f"give its settings, or only a label of '{base}'{like}"
        raise invalid(f"label in [[{kind}]]", label, remedy, "which has no settings here")
    return others[label]


TOP = {
    **dict.fromkeys(("title", "source", "note", "axis", "group-axis", "report"), str),
    **{"rivals": list, "seeds": list, "figures": list, "average": bool, "run": dict},
    **dict.fromkeys(("rows", "columns", "groups"), list),
}


def experiment_of(name: str, data: Settings, text: str = "") -> Experiment:
    """Return the experiment with a file's content; its text is by default made from it."""
    from fda_flower.reporting import REPORTS, check_figures

    _check_top(data)
    for key in ("title", "rows", *({"columns"} & data.keys())):
        if not data.get(key):
            raise ConfigError(f"'{key}' is missing", thing=str(key))
    given: dict[str, Any] = {key: data[key] for key in data if TOP[key] is bool}
    given |= {key.replace("-", "_"): data[key].strip() for key in data if TOP[key] is str}
    given |= {key: tuple(map(str, data[key])) for key in ("figures", "rivals") if key in data}
    if "seeds" in data:
        given["seeds"] = tuple(data["seeds"])
    experiment = Experiment(
        name=name,
        text=text or tomli_w.dumps(data),
        **given,
        run=_settings("[run]", data.get("run", {})),
        rows=_entries("rows", data["rows"]),
        columns=_entries("columns", data.get("columns", [])) or (NO_NAME,),
        groups=_entries("groups", data.get("groups", [])) or (NO_NAME,),
    )
    check_figures(experiment.figures)
    if "runs" in experiment.figures and any(column.label for column in experiment.columns):
        why = "which draws one column without a name, but the columns have names"
        raise invalid("figures", "runs", "choose columns or rounds", why)
    if experiment.report not in REPORTS:
        raise unknown("report", experiment.report, REPORTS)
    seeds = experiment.seeds
    whole = all(type(seed) is int and seed >= 0 for seed in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise invalid("'seeds'", list(seeds), "give different whole numbers, such as [0, 1, 2]")
    _check_paper(experiment)
    labels = [row.label for row in experiment.rows]
    for label in experiment.rivals:
        if label not in labels:
            raise unknown("row in 'rivals'", label, labels)
    if "rivals" in data and len(set(experiment.rivals)) < 2:
        raise invalid("'rivals'", data["rivals"], "give the labels of two rows, or leave it out")
    _check_names(experiment)
    for row in experiment.rows:
        check_choice(f"'headline' of row '{row.label}'", row.headline, ("model", "average"))
    return experiment


def _check_configs(experiment: Experiment, machine: Mapping[str, Any]) -> None:
    """Check the configurations of an experiment's runs, with the settings of this machine."""
    configs = experiment.configs(experiment.places, 0, machine)
    for place, config in configs.items():
        experiment.attack(place, config)
    for row in experiment.rows:
        averages = {config.average for place, config in configs.items() if place[1] == row.label}
        if row.headline == "average" and None in averages:
            remedy = 'add average, such as average = "ema:0.9", or leave it out'
            headline = f"'headline' of row '{row.label}'"
            raise invalid(headline, row.headline, remedy, "but its runs average no models")


_WORDS = {str: "text", list: "a list", bool: "true or false", dict: "a table"}


def _check_top(data: Settings) -> None:
    _check_keys("the file", data, TOP)
    for key, kind in TOP.items():
        if key in data and not isinstance(data[key], kind):
            raise invalid(key, data[key], f"it must be {_WORDS[kind]}")


def _check_paper(experiment: Experiment) -> None:
    """Check the paper's values and the settings of rows in single columns and groups."""
    columns = [column.label for column in experiment.columns]
    groups = [group.label for group in experiment.groups if group.label]
    for row in experiment.rows:
        where = f"'paper' of row '{row.label}'"
        if groups:
            _check_keys(where, row.paper, groups)
        for values in row.paper.values() if groups else [row.paper]:
            _check_keys(where, values, columns)
            for label, value in values.items():
                _check_number(f"{where}, column '{label}'", value)
        _check_keys(f"'at' of row '{row.label}'", row.at, [*columns, *groups])


def _check_number(what: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:
        raise invalid(what, value, "give a finite number")


def _check_names(experiment: Experiment) -> None:
    cells: dict[str, Place] = {}
    for place in experiment.places:
        other = cells.setdefault(file_name(place), place)
        if other != place:
            first, second = (" / ".join(filter(None, labels)) for labels in (other, place))
            why = f"whose files would have the name of those of '{second}', '{file_name(place)}'"
            raise invalid("cells", first, "choose other labels", why)


OWN = {
    "rows": ("label", "paper", "at", "headline"),
    "columns": ("label", "value"),
    "groups": ("label", "value"),
}
"""Keys of an entry that are not settings."""


def _entries(kind: str, data: Sequence[Any]) -> tuple[Entry, ...]:
    entries = []
    for number, item in enumerate(data, 1):
        where = f"[[{kind}]] number {number}"
        if not isinstance(item, dict) or not isinstance(item.get("label"), str) or not item["label"]:
            raise ConfigError(f"{where} needs a label: give it as text", thing=where)
        _check_keys(where, item, sorted(RUN_KEYS), OWN[kind])
        value, at = item.get("value"), item.get("at", {})
        if not isinstance(at, dict):
            raise invalid(f"'at' of {where}", at, "it must be a table")
        if value is not None:
            _check_number(f"'value' of {where}", value)
        settings = {key: own for key, own in item.items() if key not in OWN[kind]}
        entries.append(
            Entry(
                item["label"],
                value,
                _settings(where, settings, of_row=kind == "rows"),
                item.get("paper", {}),
                {label: _settings(f"{where}, at '{label}'", own, of_row=True) for label, own in at.items()},
                item.get("headline", "model"),
            )
        )
    slugs = [slug(entry.label) for entry in entries]
    for entry in entries:
        if slugs.count(slug(entry.label)) > 1:
            message = f"[[{kind}]] has the label '{entry.label}' twice, or one like it: rename it"
            raise ConfigError(message, thing=f"[[{kind}]]", value=entry.label)
    return tuple(entries)


def _settings(where: str, data: Settings, *, of_row: bool = False) -> Settings:
    """Return the checked settings of a place in the file; all rows are judged in one metric."""
    _check_keys(where, data, sorted(RUN_KEYS))
    settings = {key.replace("-", "_"): value for key, value in data.items()}
    for key, value in settings.items():
        if key in OPTION_FIELDS and not isinstance(value, dict):
            raise invalid(f"'{key.replace('_', '-')}' in {where}", value, "it must be a table")
    if of_row and "metric" in settings:
        remedy = "give it in [run], a column or a group, for all rows"
        raise invalid(f"'metric' in {where}", settings["metric"], remedy)
    return settings


def _check_keys(where: str, data: Any, valid: Collection[str], more: Collection[str] = ()) -> None:
    if not isinstance(data, dict):
        raise invalid(where, data, "it must be a table")
    names = (*more, *valid)
    for key in data:
        if key not in names:
            raise unknown(f"key in {where}", key, names)
