"""What the site needs beyond MkDocs and its plugins.

* Pages from outside docs/, each at its path in the repository, so that a link such as
  ``../experiments/README.md`` works where the repository is read, and on the site.
* A search shows the pages of docs/ before those from outside and the API reference.
* In the API reference, names of classes in the text become links, as NumPy docstrings mean them.
"""

import re
from pathlib import Path
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "deploy/**/*",
    "examples/README.md",
    "examples/*/README.md",
    "experiments/README.md",
    "experiments/leaderboard/README.md",
    "experiments/tables/*",
    "experiments/results/*",
    "findings/README.md",
    "release/README.md",
)
"""What of the repository is on the site."""

RELATIVE_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)(?=[#)])")

CLASS = re.compile(r"<code>((?:fda_flower\.[.\w]+|[A-Z]\w+))</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern) if path.is_file()):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rank the page, and turn links between paths of the repository into links between paths of the site."""
    origin = Path(page.file.abs_src_path or "")
    if origin.is_relative_to(DOCS) and not page.file.src_uri.startswith("api/"):
        page.meta.setdefault("search", {"boost": 4})

    def on_site(link: re.Match[str]) -> str:
        target = (origin.parent / link[1]).resolve()
        if target.is_dir():
            target /= "README.md"
        if not target.is_file():
            return link[1]  # MkDocs warns
        path = target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT)
        return relpath(path.as_posix(), Path(page.file.src_uri).parent.as_posix())

    return RELATIVE_LINK.sub(on_site, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link names of classes in the API reference; those that it does not have stay as they are."""
    if not page.file.src_uri.startswith("api/"):
        return html
    package = "fda_flower" if page.file.name == "index" else f"fda_flower.{page.file.name}"

    def linked(name: re.Match[str]) -> str:
        full = name[1] if name[1].startswith("fda_flower.") else f"{package}.{name[1]}"
        return f'<autoref identifier="{full}" optional>{name[0]}</autoref>'

    return CLASS.sub(linked, html)
