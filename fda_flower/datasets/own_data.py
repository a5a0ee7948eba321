"""The user's own data: their folders, and warnings about them."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError, invalid
from fda_flower.models.tokens import NAME

LISTED = 10
"""The most classes that a message lists."""

FEWEST_TESTS = 10
"""A target with fewer test samples is warned."""


def label_problems(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return a sentence for each reason why a model cannot learn all classes, with the counts.

    `labels` are the labelled samples' classes, as positions in `names`.

    Examples
    --------
    >>> label_problems([0, 0, 0, 1], ["cat", "dog", "eel"])
    ['1 of 3 classes has a single label: dog', '1 of 3 classes has no label: eel']
    >>> label_problems([1, 1], ["cat", "dog"])
    ['all 2 labels are of one class, dog: a model can learn no other from them']
    """
    counts = Counter(labels)
    if len(counts) == 1 and len(names) > 1:
        (only,) = counts
        return [
            f"all {len(labels)} labels are of one class, {names[only]}: a model can learn no other from them"
        ]
    rare = {
        what: [name for i, name in enumerate(names) if counts[i] == count]
        for count, what in ((1, "a single label"), (0, "no label"))
    }
    problems = []
    for what, found in rare.items():
        more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
        have = f"{len(found)} of {len(names)} classes {'has' if len(found) == 1 else 'have'}"
        problems += [f"{have} {what}: {', '.join(found[:LISTED])}{more}"] if found else []
    return problems


def few_tests(samples: int) -> list[str]:
    """Return a sentence if a target has too few test samples, else nothing.

    Examples
    --------
    >>> few_tests(4)
    ['4 test samples are too few to judge a model by: give the target at least 10']
    """
    if samples >= FEWEST_TESTS:
        return []
    counted = f"{samples} test sample{' is' if samples == 1 else 's are'}"
    return [f"{counted} too few to judge a model by: give the target at least {FEWEST_TESTS}"]


def target_problems(tests: int, labels: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return a sentence for each reason why a target's samples are too few; `names`: the classes'."""
    return few_tests(tests) + (label_problems(labels, names) if names else [])


logger = logging.getLogger("fda_flower")

PARTS = ("train", "test")
"""Folders of an existing split of the samples."""

NOT_IN_NAMES = ",="
"""Characters with a meaning in options, invalid in names."""


def unusable(thing: str, value: object, what: str, remedy: str) -> ConfigError:
    """Return the error for data that cannot be used, whose message begins with ``the THING 'VALUE'``."""
    return ConfigError(f"the {thing} '{value}' {what}", thing=thing, value=value, remedy=remedy)


def own_folder(dataset: str, data_dir: Path | None) -> Path:
    """Return the folder that holds the domains; raise a `ConfigError` if none is given."""
    if data_dir is None:
        what = f"data set '{dataset}' needs the folder that holds its domains"
        remedy = "give it with --data-dir (FDA_DATA_DIR) or, at a site, as data-dir in the node configuration"
        raise ConfigError(what, thing="data set", value=dataset, remedy=remedy)
    return data_dir.expanduser()


def is_here(folder: Path, options: Mapping[str, Any]) -> bool:
    """Return whether a folder exists here; raise a `ConfigError` if it must, to find the domains."""
    if not folder.is_dir() and "domains" not in options:
        names = "name the domains with the option 'domains', separated by commas"
        remedy = f"correct it, or, if the data are elsewhere, {names}"
        raise invalid("data-dir", folder, remedy, "which is not a folder on this machine")
    return folder.is_dir()


SYSTEM = (
    *("__macosx", "@eadir", "$recycle.bin", "lost+found", "system volume information"),
    *("desktop.ini", "ehthumbs.db", "thumbs.db"),
)
"""Files and folders that systems add, in lower case; others are hidden."""


def is_shown(name: str) -> bool:
    """Return whether a file or folder is neither hidden nor of the system."""
    return not name.startswith(".") and name.lower() not in SYSTEM


def visible(place: Path) -> list[Path]:
    """Return a folder's entries by name, without those that are hidden or of the system."""
    return sorted(path for path in place.iterdir() if is_shown(path.name))


def found_names(dataset: str, folder: Path, names: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Return the domains in a folder by name.

    Raise a `ConfigError` if there is none, or a name has a character that options cannot hold.
    """
    found = tuple(sorted(names))
    if not found:
        there = ", ".join(path.name for path in visible(folder)[:10]) or "nothing"
        what = f"data set '{dataset}' finds no domain in '{folder}', which holds {there}"
        remedy = f"put {wanted} there, or give another folder with --data-dir (FDA_DATA_DIR)"
        raise ConfigError(what, thing="data set", value=dataset, remedy=remedy)
    for name in found:
        if any(mark in name for mark in NOT_IN_NAMES) or name != name.strip():
            what = f"in '{folder}' has a comma, an equals sign or a space around it in its name"
            raise unusable("domain", name, what, "rename it")
    return found


def warn_of_one(dataset: str, domain: str, classes: int) -> None:
    """Warn that a site that sees only its own classes cannot know the classes of the others."""
    logger.warning(
        "%s: of all domains, only %s is here, so the %d classes are those found in it; if another site has "
        "other classes, the run ends with an error: then list all classes in the data set's option 'classes'",
        dataset,
        domain,
        classes,
    )


def read_size(text: str) -> tuple[int, int]:
    """Parse the height and width of an option ``image_size``.

    Examples
    --------
    >>> read_size("64"), read_size("48x64")
    ((64, 64), (48, 64))
    """
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) > 0 for side in sides):
        remedy = "give pixels, such as 64, or height and width, such as 48x64"
        raise invalid("option 'image_size'", text, remedy, "it must be at least 1")
    return int(sides[0]), int(sides[-1])


def network_for_images(options: Mapping[str, Any]) -> str:
    """Return the network for images whose size the options give."""
    if "image_size" not in options:
        raise ConfigError(
            "the size of the images is not known here, so no network can be chosen: give it by "
            "--dataset-option image_size=64, or choose the network by --model",
            thing="option 'image_size'",
        )
    return "cnn" if min(read_size(str(options["image_size"]))) < LARGE else "efficientnet-lite0"


def network_for_rows(options: Mapping[str, Any]) -> str:
    """Return the network for rows, with a text if the options name its column."""
    return NAME if options.get("text") else "mlp"


def network_for_inputs(options: Mapping[str, Any]) -> str:
    """Return the network for images, if the options give their size, else for rows."""
    return (network_for_images if "image_size" in options else network_for_rows)(options)


def network_for_folders(options: Mapping[str, Any]) -> str:
    """Return the network for images in folders."""
    return network_for_images({"image_size": FULL_SIZE, **options})


FULL_SIZE = 224
"""Height and width to which such a data set's images are resized by default."""

LARGE = 64
"""Height and width, in pixels, from which two convolutions see too little of an image."""
