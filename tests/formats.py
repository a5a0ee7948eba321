"""A table of columns as a file of each format that is read."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyreadstat

WRITERS: dict[str, Any] = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".xlsx": lambda table, path: table.to_excel(path, index=False),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
    ".sav": lambda table, path: pyreadstat.write_sav(table, str(path)),
    ".dta": lambda table, path: pyreadstat.write_dta(table, str(path)),
    ".xpt": lambda table, path: pyreadstat.write_xport(table, str(path)),
}
"""By suffix, a function that writes a data frame of pandas to a path."""


def write_as(path: Path, table: pd.DataFrame) -> Path:
    """Write a table in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[path.suffix](table, path)
    return path
