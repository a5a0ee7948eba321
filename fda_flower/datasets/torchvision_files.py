"""Functions for data sets that torchvision reads: check their files, read their two parts."""

from pathlib import Path
from typing import Any

from fda_flower.errors import ConfigError

CACHE = Path("~/.cache/fda-flower")
"""Where torchvision downloads data sets if no folder is given."""


def check_file(path: Path, md5: str) -> None:
    """Raise a `ConfigError` that names the file if it is missing or damaged."""
    from torchvision.datasets.utils import check_integrity

    if not path.exists():
        raise ConfigError(
            f"the data file '{path}' is missing: put it there, or leave out --data-dir (FDA_DATA_DIR) to "
            "download the data set"
        )
    if not check_integrity(str(path), md5):
        raise ConfigError(f"the data file '{path}' is damaged (its md5 is not {md5}): get it again")


def read_parts(dataset: Any, root: Path, download: bool = False) -> tuple[Any, Any]:
    """Return the training part and the test part of a data set.

    Raises
    ------
    ConfigError
        If the data set cannot be read or downloaded; the message names the folder.
    """
    try:
        train, test = (dataset(root, train=train, download=download) for train in (True, False))
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{dataset.__name__} cannot be read from '{root}' ({reason}): get its files again, or give a "
            "folder that has them with --data-dir (FDA_DATA_DIR)"
        ) from error
    return train, test
