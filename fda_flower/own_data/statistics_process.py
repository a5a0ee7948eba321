"""A process of its own that reads a file of SPSS, Stata or SAS: a damaged file can end it, not the run.

It is started as a script, with the name of a function of pyreadstat, the file and options as JSON, and prints
the content as JSON.
"""

import json
import os
import sys
import warnings
from typing import Any

ROOM = 8 * 2**30
"""The memory, in bytes, that it may take besides 1,000 times the file's size."""


def main(function: str, path: str, options: str) -> None:
    """Read a file and print its variables."""
    _limit_memory(ROOM + 1000 * os.path.getsize(path))
    import pyreadstat

    # A data frame of pandas would turn missing values into numbers, and dates lose their zone and hours.
    how = {"output_format": "dict", "disable_datetime_conversion": True, **json.loads(options)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells, about = getattr(pyreadstat, function)(path, **how)
        content: Any = [_variable(name, cells[name], about) for name in about.column_names]
    except Exception as error:  # of many kinds
        content = f"{error}"
    print(json.dumps(content))


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _variable(name: str, cells: Any, about: Any) -> dict[str, Any]:
    return {
        "name": name,
        "format": str(about.original_variable_types.get(name) or ""),
        "kind": about.readstat_variable_types.get(name, ""),
        "cells": list(cells),
        "labels": list(about.variable_value_labels.get(name, {}).items()),
        "declared": [[each["lo"], each["hi"]] for each in about.missing_ranges.get(name, ())],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
