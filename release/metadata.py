"""The parts of the package's metadata that depend on the repository's address, for hatchling."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Metadata(MetadataHookInterface):
    """Adds the README as an index shows it, and the addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what pyproject.toml lists as dynamic."""
        root, repository = Path(self.root), self.config["repository"]
        readme, makefile = ((root / name).read_text(encoding="utf-8") for name in ("README.md", "Makefile"))
        for_an_index = runpy.run_path(str(root / "release" / "readme.py"))["for_an_index"]
        page = for_an_index(readme, makefile, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
        metadata["urls"] = dict(self.config["urls"])
        if repository:
            changes = f"{repository}/blob/v{metadata['version']}/CHANGELOG.md"
            metadata["urls"] |= {"Repository": repository, "Changelog": changes}
