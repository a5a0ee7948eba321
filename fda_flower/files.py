"""Files that are written whole or not at all, and values that any JSON reader takes."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODEL, DESCRIPTION = "model.safetensors", "model.json"
"""The model of a run, and what it is; see `fda_flower.prediction.files`."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written; the file that was there stays as it is.
    """
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def checksum(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a header and arrays: names, types and shapes too, but not the header's sha256."""
    digest = hashlib.sha256()
    digest.update(json.dumps({k: v for k, v in header.items() if k != "sha256"}, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def json_safe(value: Any) -> Any:
    """Return the same JSON value with NaN and infinity as null.

    Examples
    --------
    >>> json_safe({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
