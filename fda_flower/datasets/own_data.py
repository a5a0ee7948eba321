"""A consortium's own data: what its data sets have in common."""

import logging
from pathlib import Path

from fda_flower.errors import ConfigError

logger = logging.getLogger("fda_flower")


def own_folder(dataset: str, data_dir: Path | None) -> Path:
    """The folder that holds the domains; a `ConfigError` if there is none."""
    if data_dir is None:
        raise ConfigError(
            f"data set '{dataset}' needs the folder that holds its domains: name it by --data-dir "
            "(FDA_DATA_DIR), or at a site by data-dir in the node configuration"
        )
    return data_dir.expanduser()


def warn_of_one(dataset: str, domain: str, classes: int) -> None:
    """Say that a site that sees its own classes alone cannot know those of others."""
    logger.warning(
        "%s: of all domains only %s is here, so the %d classes are those found in it; the run ends with an "
        "error if other sites have others: then name all by the data set's option 'classes'",
        dataset,
        domain,
        classes,
    )
