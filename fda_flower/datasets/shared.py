"""A federation's data in a file that all processes of a machine map into their memory: loaded once."""

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import torch

from fda_flower.datasets.federation import FederatedDataset, forget, load_federation, of_domain
from fda_flower.datasets.spec import DataSpec
from fda_flower.errors import RunError


def write_shared(spec: DataSpec, path: Path) -> None:
    """Load a federation's data, write them to a file, and free the memory that they take in this process.

    Raises
    ------
    ConfigError
        If a setting is invalid, or data are missing or damaged.
    RunError
        If the file cannot be written.
    """
    try:
        torch.save(load_federation(spec), path)
    except (OSError, RuntimeError) as error:
        raise RunError(
            f"the data cannot be written to '{path}' for the clients' processes ({error}): make room there, "
            "or set TMPDIR to a folder that has it"
        ) from error
    forget()
    _return_memory()


def _return_memory() -> None:
    """Give freed memory back to the system; glibc keeps it, hundreds of megabytes after large data."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def shared_domain(path: Path, name: str) -> FederatedDataset:
    """Return one client's domain from a file of `write_shared`, with the bits of `load_domain`.

    Its tensors are the file: a page is read when it is first used, and all processes hold it once.
    """
    return of_domain(_shared(path), name)


@lru_cache(maxsize=1)
def _shared(path: Path) -> FederatedDataset:
    data: FederatedDataset = torch.load(path, mmap=True, weights_only=False)
    return data
