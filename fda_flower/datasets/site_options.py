"""What a run may say about a site's own data: the site's file of options decides the rest."""

import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from fda_flower.datasets.folders import OPTIONS_FILE, check_part, options_in, read_domains
from fda_flower.errors import ConfigError, invalid, own_files
from fda_flower.names.options import join_names, read_options, split_names, split_quoted, unquoted
from fda_flower.names.words import ROW

AGREED = (
    *("domains", "classes", "ignore", "missing", "image_size", "depth", "window", "frame", "slice"),
    *("label_mean", "label_deviation", "horizons"),
)
"""Options on which sites agree through the run. None of them chooses a file, or which column is the label, a
text or the patient, or has words of the data leave."""

HIDDEN = {"data_dir", "seed"}

NEEDED = {
    "classes": ("classes",),
    "regression": ("label_mean", "label_deviation"),
    "survival": ("horizons",),
}
"""By task, the options that a site needs, since they would follow from the data of all sites."""


def options_at_site(
    what: str, build: Callable[..., Any], folder: str | None, run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options with which a site reads its own data.

    Parameters
    ----------
    what : str
        The data set, in words.
    build : callable
        Its loader, whose keyword arguments are the options.
    folder : str, optional
        The site's ``data-dir``.
    run : Mapping
        The options of the run.

    Raises
    ------
    ConfigError
        If the site has no ``data-dir``; if the run gives an option another value than the site, or one that
        is not `AGREED` another than its default; if classes are not listed; or if the site's own ``path``
        leads out of its folder. The words say nothing of what is there.
    """
    if folder is None:
        remedy = 'give the node configuration data-dir="..."; a run names no folder of a site'
        raise ConfigError(f"{what} is read from a site's own data-dir", thing="data-dir", remedy=remedy)
    place = Path(folder).expanduser()
    with own_files():
        own = options_in(place, build)
    given = dict(read_options(what, build, run, HIDDEN))
    for name, value in given.items():
        if not _may_give(name, value, own, build):
            message = f"the run gives the option '{name}' another value than this site, which decides it"
            remedy = f"leave it out, or let the site write it into the {OPTIONS_FILE} of its data-dir"
            raise ConfigError(message, thing=f"option '{name}'", remedy=remedy)
    options = {**given, **own}
    read_domains(str(options.get("domains", "")) or "-")  # at a site each is a plain name
    parameters = inspect.signature(build).parameters
    for name in NEEDED.get(str(options.get("task", "classes")), ()):
        if name in parameters and not str(options.get(name, "")):
            remedy = (
                f"list it by --dataset-option {name}=..., or in the {OPTIONS_FILE} of the site's data-dir"
            )
            raise ConfigError(f"a site needs the option '{name}'", thing=f"option '{name}'", remedy=remedy)
    if "path" in parameters:
        _check_path(place, str(options.get("path", "")))
    return options


def _may_give(name: str, value: object, own: Mapping[str, Any], build: Callable[..., Any]) -> bool:
    if name in own:
        return _entries(value) == _entries(own[name])
    default = inspect.signature(build).parameters[name].default
    return name in AGREED or bool(value == default)


def _entries(value: object) -> tuple[object, ...]:
    """Return the entries of a list, however it is written, or a value alone."""
    return tuple(map(unquoted, split_quoted(value, ","))) if isinstance(value, str) else (value,)


def choices_of(build: Callable[..., Any], folder: str | None) -> list[str]:
    """Return the options that a run may set at a site with this ``data-dir``."""
    own = options_in(None if folder is None else Path(folder).expanduser(), build)
    return [name for name in inspect.signature(build).parameters if name in AGREED and name not in own]


def _check_path(place: Path, path: str) -> None:
    for part in path.split("/") if path else ():
        check_part("option 'path'", part)
    if not (place / path).is_dir():
        remedy = "give a folder below the site's data-dir, without a slash at its beginning or end"
        raise ConfigError("option 'path' is no folder of this site", thing="option 'path'", remedy=remedy)


def by_patient(
    what: str,
    build: Callable[..., Any],
    patients: str,
    run: str,
    options: Mapping[str, Any],
    found: Collection[str],
) -> dict[str, Any]:
    """Return the options with which data are read where each patient is protected.

    Parameters
    ----------
    what : str
        The data set, in words.
    build : callable
        Its loader.
    patients : str
        Who is a patient: `ROW`, or a value of the option ``group``.
    run : str
        The option ``group`` of a run at a site. A column that only the run groups by is no input.
    options : Mapping
        The other options; a ``group`` among them is of those who also say who is a patient.
    found : Collection[str]
        Options that follow from the data.

    Raises
    ------
    ConfigError
        If the data set has no option ``group``, if `options` have another group, or if an option is open
        that would follow from the samples of all patients.
    """
    parameters, options = inspect.signature(build).parameters, dict(options)
    if patients != ROW and "group" not in parameters:
        remedy = f'give "{ROW}", and each row is a patient'
        raise invalid("dp-group", patients, remedy, f"but {what} has no option 'group'")
    opened = [name for name in found if name != "domains"]
    if "classes" in parameters and not options.get("classes") and options.get("task", "classes") == "classes":
        opened.append("classes")
    for name in opened:
        why = f"but the option '{name}' is open, and would follow from the samples of all patients"
        remedy = f"let the run say it for all sites: --dataset-option {name}=..."
        raise invalid("dp-unit", "patient", remedy, why)
    if "group" not in parameters:
        return options | ({"group": run} if run else {})
    group = "" if patients == ROW else patients
    if (own := str(options.get("group") or "")) not in ("", group):
        remedy = "let both name the same patients, or leave the option out"
        why = f"but the data's own option 'group' is '{own}', which keeps other samples together"
        raise invalid("dp-group", patients, remedy, why)
    names = split_names("option 'ignore'", text) if (text := str(options.get("ignore") or "")) else ()
    ignored = tuple(dict.fromkeys(name for name in (*names, run) if name not in ("", group)))
    if "ignore" in parameters and ignored != tuple(names):
        options["ignore"] = join_names(ignored)
    return options | {"group": group}
