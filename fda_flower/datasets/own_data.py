"""Functions for data sets of a consortium's own data."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError

logger = logging.getLogger("fda_flower")

PARTS = ("train", "test")
"""Folders that divide the samples, where somebody else has done so already."""

NOT_IN_NAMES = ",="
"""Characters that options by name, separated by commas, cannot tell from their own."""


def own_folder(dataset: str, data_dir: Path | None) -> Path:
    """Return the folder that holds the domains; raise a `ConfigError` if none is given."""
    if data_dir is None:
        raise ConfigError(
            f"data set '{dataset}' needs the folder that holds its domains: give it with --data-dir "
            "(FDA_DATA_DIR) or, at a site, as data-dir in the node configuration"
        )
    return data_dir.expanduser()


def is_here(folder: Path | None, options: Mapping[str, Any]) -> bool:
    """Return whether the folder that holds the domains is on this machine.

    Raises
    ------
    ConfigError
        If it is not, although it is given, and the options do not name the domains.
    """
    if folder is None or folder.is_dir():
        return folder is not None
    if "domains" not in options:
        raise ConfigError(
            f"data-dir is '{folder}', which is not a folder on this machine: correct it, or, if the data are "
            "elsewhere, name the domains with the option 'domains', separated by commas"
        )
    return False


def visible(place: Path) -> list[Path]:
    """Return what a folder holds, by name, without hidden files."""
    return sorted(path for path in place.iterdir() if not path.name.startswith("."))


def found_names(dataset: str, folder: Path, names: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Return names of domains that were found in a folder, in alphabetical order.

    Raises
    ------
    ConfigError
        If there is none, or one has a character that options cannot hold.
    """
    found = tuple(sorted(names))
    if not found:
        there = ", ".join(path.name for path in visible(folder)[:10]) or "nothing"
        raise ConfigError(
            f"data set '{dataset}' finds no domain in '{folder}', which holds {there}: put {wanted} there, "
            "or give another folder with --data-dir (FDA_DATA_DIR)"
        )
    for name in found:
        if any(mark in name for mark in NOT_IN_NAMES) or name != name.strip():
            raise ConfigError(
                f"the domain '{name}' in '{folder}' has a comma, an equals sign or a space around it in its "
                "name: rename it"
            )
    return found


def warn_of_one(dataset: str, domain: str, classes: int) -> None:
    """Warn that a site that sees only its own classes cannot know those of the others."""
    logger.warning(
        "%s: of all domains, only %s is here, so the %d classes are those found in it; if another site has "
        "other classes, the run ends with an error: then list all classes in the data set's option 'classes'",
        dataset,
        domain,
        classes,
    )


def read_size(text: str) -> tuple[int, int]:
    """Return the height and the width that an option ``image_size`` names: ``64``, or ``48x64``.

    Raises
    ------
    ConfigError
        If it names none.

    Examples
    --------
    >>> read_size("64"), read_size("48x64")
    ((64, 64), (48, 64))
    """
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) > 0 for side in sides):
        raise ConfigError(
            f"option 'image_size' is '{text}', it must be at least 1: give pixels, such as 64, or height and "
            "width, such as 48x64"
        )
    return int(sides[0]), int(sides[-1])


def network_for_images(options: Mapping[str, Any]) -> str:
    """Return the name of a network that fits images of the size that the options give.

    Raises
    ------
    ConfigError
        If the options give no size, as where a server has no data.
    """
    if "image_size" not in options:
        raise ConfigError(
            "the size of the images is not known here, so no network can be chosen: give it by "
            "--dataset-option image_size=64, or choose the network by --model"
        )
    small = min(read_size(str(options["image_size"]))) < LARGE
    return "cnn" if small else "resnet18"


def network_for_inputs(options: Mapping[str, Any]) -> str:
    """Return the name of a network that fits images, if the options give their size, or rows."""
    return network_for_images(options) if "image_size" in options else "mlp"


LARGE = 64
"""Height and width, in pixels, from which two convolutions do not see enough of an image."""
