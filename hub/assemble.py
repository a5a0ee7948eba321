"""Assemble the app for Flower's hub: the package with its licence, the hub's page, and a pyproject.toml.

Where Flower runs an app it installs its dependencies, and no extras. So this pyproject.toml, which is made
from the package's, asks for all that the app needs.
"""

import argparse
import shutil
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "torch", "simulation"
"""The extras that the app needs: its clients, and Ray for ``flwr run`` on one machine."""
CONFIG = {"sources": 1}
"""What the app configures differently: Flower simulates two nodes by default."""


def project() -> dict[str, Any]:
    """Return the contents of the app's pyproject.toml."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    metadata, app = package["project"], package["tool"]["flwr"]["app"]
    own = {key: metadata[key] for key in ("name", "version", "description", "license", "requires-python")}
    extras = [line for extra in EXTRAS for line in metadata["optional-dependencies"][extra]]
    # Flower takes one line for itself: the extra's, which brings Ray.
    needed = [line for line in metadata["dependencies"] if not line.startswith("flwr>")]
    app["config"] |= CONFIG
    return {"project": own | {"dependencies": sorted(needed + extras)}, "tool": {"flwr": {"app": app}}}


def assemble(folder: Path) -> None:
    """Write the app to a folder; what is there is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fda_flower", folder / "fda_flower", ignore=ignored)
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copy(ROOT / "hub" / "README.md", folder)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project()), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    assemble(parser.parse_args().folder)
