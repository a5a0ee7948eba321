"""The versions that a run was made with."""

import platform
from importlib.metadata import version

PACKAGES = ("fda-flower", "flwr", "torch", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide a run's numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
