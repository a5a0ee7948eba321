"""The Flower app that is submitted: thin, it names the package that server and sites have installed."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w


def write_app(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the app into a folder.

    Parameters
    ----------
    folder : Path
        An empty one.
    settings : Mapping
        The run's configuration, as Flower takes it: text and numbers by kebab-case names.
    """
    project = {
        "name": "fda-flower",
        "version": version("fda-flower"),
        "description": "Federated domain adaptation, from the installed package",
        "license": "Apache-2.0",
        # Flower would install them anew for each run.
        "dependencies": [],
    }
    app = {
        "publisher": "fda-flower",
        "components": {
            "serverapp": "fda_flower.server_app:app",
            "clientapp": "fda_flower.client_app:app",
        },
        "config": dict(settings),
    }
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
