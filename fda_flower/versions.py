"""The versions that a run was made with."""

import platform
from functools import cache
from importlib.metadata import version

PACKAGES = ("fda-flower", "flwr", "torch", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide a run's numbers."""
    return dict(_found())


@cache
def _found() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
