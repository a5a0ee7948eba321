"""Functions for data sets of a consortium's own data."""

import logging
from pathlib import Path

from fda_flower.errors import ConfigError

logger = logging.getLogger("fda_flower")


def own_folder(dataset: str, data_dir: Path | None) -> Path:
    """Return the folder that holds the domains; raise a `ConfigError` if none is given."""
    if data_dir is None:
        raise ConfigError(
            f"data set '{dataset}' needs the folder that holds its domains: give it with --data-dir "
            "(FDA_DATA_DIR) or, at a site, as data-dir in the node configuration"
        )
    return data_dir.expanduser()


def warn_of_one(dataset: str, domain: str, classes: int) -> None:
    """Warn that a site that sees only its own classes cannot know those of the others."""
    logger.warning(
        "%s: of all domains, only %s is here, so the %d classes are those found in it; if another site has "
        "other classes, the run ends with an error: then list all classes in the data set's option 'classes'",
        dataset,
        domain,
        classes,
    )
